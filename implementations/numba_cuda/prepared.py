"""Hashes as the kernels want them, made once for many calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from demopool.contract import Hashes

from .launch import Array


class PreparedHashes(NamedTuple):
    """Bins and signs on the device; ``hashes`` as they were given."""

    h1: Array
    h2: Array
    s1: Array
    s2: Array
    hashes: Hashes


def prepare(hashes: Hashes, asarray: Callable[[Array], Array]) -> PreparedHashes:
    """Bins as 32-bit integers, signs as float32, which is exact in any product."""
    h1, h2 = (asarray(h.astype(np.int32)) for h in (hashes.h1, hashes.h2))
    s1, s2 = (asarray(s.astype(np.float32)) for s in (hashes.s1, hashes.s2))
    return PreparedHashes(h1, h2, s1, s2, hashes)
