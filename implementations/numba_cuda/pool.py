"""Pooling and the final normalisation on a GPU."""

from __future__ import annotations

import numpy as np

from demopool.implementations.numba_cuda import arrays, kernels
from demopool.implementations.numba_cuda.arrays import Array
from demopool.implementations.numba_cuda.launch import Launcher
from demopool.implementations.shared import grids


def direct(on: Launcher, X: Array, a: Array | None, *, order: int) -> Array:
    """``X^T diag(a) X``, or ``sum_i a_i x_i`` for order 1."""
    images, _, d = X.shape
    weights = on.empty((images, 0), X.dtype) if a is None else a
    if order == 1:
        out = on.empty((images, d), X.dtype)
        blocks, shape = grids.columns(images, d)
        on.run(kernels.weighted_sum, shape, X, weights, out, np.int32(blocks))
        return out
    A = on.empty((images, d, d), X.dtype)
    count = grids.triangle(d)
    on.run(kernels.outer, grids.products(images * count), X, weights, A, np.int32(count))
    return A


def normalize(on: Launcher, V: Array, *, kind: str) -> Array:
    """Signed square root and l2 norm, or l2 alone, of every row of a matrix."""
    if kind == "none":
        return arrays.copied(on, V)
    count, values = V.shape
    power = np.int32(1 if kind == "signed-sqrt-l2" else 2)
    out, shared = on.empty(V.shape, V.dtype), values * V.dtype.itemsize
    if shared + grids.WARPS * V.dtype.itemsize <= grids.SHARED_BYTES:
        on.run(kernels.normalized_at_once, grids.one_block_each(count, shared), V, out, power)
        return out
    magnitude = arrays.largest(on, V)
    sums = on.full((count,), V.dtype)
    chunks, shape = grids.chunks(count, values)
    on.run(kernels.power_sums, shape, V, magnitude, sums, np.int32(chunks), power)
    blocks, shape = grids.per_image(count, values)
    on.run(kernels.normalized, shape, V, magnitude, sums, out, power, np.int32(blocks))
    return out
