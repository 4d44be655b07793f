"""``pool_files`` on a few small images, and what it must give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import demopool as dp
from demopool import PoolResult, features

SKETCHED: dict[str, Any] = {"k": 32, "memory": 4e9}
RNG = np.random.default_rng(0)


def some_images(count: int, n: int, d: int = 4) -> NDArray[Any]:
    return RNG.standard_normal((count, n, d)).astype(np.float16)


def pooled(folder: Path, name: str = "out.npy", **options: Any) -> PoolResult:
    path = folder.parent / name
    return dp.pool_files(folder, path, "sketched-democratic", **(SKETCHED | options))


def content_of(folder: Path, name: str = "out.npy") -> bytes:
    return (folder.parent / name).read_bytes()


def expected_of(folder: Path, **options: Any) -> NDArray[Any]:
    images = features.open(folder)
    rows = [dp.describe(x, "sketched-democratic", k=32, **options) for x in images]
    return np.stack(rows)
