"""Arrays of a device as kernels want them: contiguous, with one leading axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from demopool.implementations.numba_cuda import kernels
from demopool.implementations.numba_cuda.launch import Launcher
from demopool.implementations.shared import grids

Array = Any


def flat(array: Array) -> Array:
    """One axis."""
    return array.reshape(int(np.prod(array.shape)))


def in_range(on: Launcher, X: Array) -> tuple[Array, Array]:
    """A copy whose largest value in every image is near 1, and the exponents of the scale."""
    count = X.shape[0]
    values = int(np.prod(X.shape[1:]))
    exponents = on.full((count,), np.int32)
    out = on.empty(X.shape, X.dtype)
    if count and values:
        two = X.reshape((count, values))
        magnitude = largest(on, two)
        target = out.reshape((count, values))
        blocks, shape = grids.per_image(count, values)
        on.run(kernels.scaled, shape, two, magnitude, target, exponents, np.int32(blocks))
    return out, exponents


def largest(on: Launcher, V: Array) -> Array:
    """max |v| of every row of a matrix."""
    found = on.full((V.shape[0],), V.dtype)
    chunks, shape = grids.chunks(*V.shape)
    on.run(kernels.largest, shape, V, found, np.int32(chunks))
    return found


def copied(on: Launcher, array: Array, dtype: Any = None) -> Array:
    """In memory of its own, contiguous; in another dtype if one is given."""
    out = on.empty(array.shape, dtype or array.dtype)
    count = int(np.prod(array.shape))
    if count:
        on.run(kernels.copied, grids.flat(count), array, flat(out))
    return out
