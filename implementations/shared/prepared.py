"""Hashes as the kernels of Numba want them, made once for many calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from demopool.contract import Hashes

Array = Any


class PreparedHashes(NamedTuple):
    """Bins and signs where the kernels are; ``hashes`` as they were given."""

    h1: Array
    h2: Array
    s1: Array
    s2: Array
    hashes: Hashes

    def to(self, on: Any) -> PreparedHashes:
        """Where the features are; themselves, if they are there."""
        return self if on.holds(self.h1) else prepare(self.hashes, on.asarray, self.h1.dtype)


def prepare(
    hashes: Hashes, asarray: Callable[[Array], Array] = np.asarray, bins: Any = np.int64
) -> PreparedHashes:
    """Bins as integers of a type, signs as float32, which is exact in any product."""
    h1, h2 = (asarray(np.ascontiguousarray(h, bins)) for h in (hashes.h1, hashes.h2))
    s1, s2 = (asarray(np.ascontiguousarray(s, np.float32)) for s in (hashes.s1, hashes.s2))
    return PreparedHashes(h1, h2, s1, s2, hashes)
