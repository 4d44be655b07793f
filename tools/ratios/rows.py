"""What is compared, and the rows that several backends have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import demopool as dp
from benchmarks.baselines import plain_democratic

Call = Callable[[], Any]


class Ratio(NamedTuple):
    """Our time divided by that of the baseline must be at most ``bar``.

    With ``apart``, a turn is a pause, one uncounted call and several counted ones: for pairs where
    spinning threads of one version would slow down the other.
    """

    job: str
    baseline: str
    ours: Call
    theirs: Call
    bar: float
    apart: bool = False


class Memory(NamedTuple):
    """The extra memory of a call, including its result, must be at most ``megabytes``."""

    job: str
    ours: Call
    megabytes: float


def features(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def pooled(backend: str, X: Any) -> Call:
    """Democratic pooling by the operations of one backend."""
    ops = dp.backend(backend)
    return lambda: ops.pool(X, ops.weights(X))


def small_images(backend: str, bar: float) -> list[Ratio]:
    """What a call costs beside its products: plain NumPy pays nothing for checks and for auto."""

    def described(X: NDArray[Any]) -> Call:
        return lambda: dp.describe(X, "democratic", backend=backend)

    def plain(X: NDArray[Any]) -> Call:
        return lambda: [plain_democratic(image) for image in X]

    rows = []
    for n in (4, 16, 49, 100, 196):
        X = features(64, n, 64)
        one, many = f"describe n={n} d=64", f"describe b=64 n={n} d=64"
        rows.append(Ratio(one, "plain NumPy", described(X[0]), plain(X[:1]), 2.0))
        rows.append(Ratio(many, "plain NumPy, one by one", described(X), plain(X), bar))
    return rows


def with_its_norm(backend: str, maps: Any) -> Ratio:
    """The final norm of a large descriptor: the same call with and without it."""
    options: dict[str, Any] = {"layout": "nchw", "backend": backend}
    return Ratio(
        "democratic conv maps 8 x 2048 x 14 x 14, with its norm",
        "without the norm",
        lambda: dp.describe(maps, "democratic", **options),
        lambda: dp.describe(maps, "democratic", normalize="none", **options),
        1.6,
    )


def memory_of_half_precision(backend: str) -> Memory:
    """In float32 the features alone would be 25.6 MB."""
    half = features(100_000, 64).astype(np.float16)
    options: dict[str, Any] = {"route": "matrix-free", "backend": backend}
    job = "democratic in half precision n=100000 d=64"
    return Memory(job, lambda: dp.describe(half, "democratic", **options), 10)
