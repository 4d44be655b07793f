"""Weighted pooling and the final normalisation on NumPy arrays."""

from __future__ import annotations

import numpy as np

from demopool.implementations.shared import blas
from demopool.implementations.shared.blas import Array

# Features are copied and weighted in chunks of this size, never as a whole.
_CHUNK_BYTES = 4 * 2**20

# The normalisation processes blocks that stay in the cache.
_CACHE_BYTES = 2**18


def direct(X: Array, a: Array | None, *, order: int) -> Array:
    """``X^T diag(a) X`` as a symmetric product of ``sqrt(a) X``; ``a^T X`` for order 1."""
    d = X.shape[-1]
    dtype = blas.working_dtype(X)
    pooled = np.empty((*X.shape[:-2], *(d,) * order), dtype=dtype)
    for index, image in blas.images(X):
        weights = None if a is None else a[index]
        if order == 1:
            ones = np.ones(len(image), dtype=dtype) if weights is None else weights
            pooled[index] = blas.vector_times(ones, image)
        else:
            weighted_outer(image, weights, pooled[index])
            blas.mirror(pooled[index])
    return pooled


def weighted_outer(image: Array, weights: Array | None, out: Array) -> Array:
    """Lower triangle of ``X^T diag(a) X`` of one image into ``out``."""
    if weights is None:
        return blas.outer(image, out)
    root = np.sqrt(weights)[:, np.newaxis]
    for rows in blas.row_chunks(len(image), image[0].nbytes, _CHUNK_BYTES):
        blas.outer(image[rows] * root[rows], out, add=rows.start > 0)
    return out


def normalize(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
    """Signed square root and l2 norm over the last ``axes`` axes, in two passes per descriptor."""
    dtype = blas.working_dtype(v)
    in_place = overwrite and v.flags.c_contiguous and v.flags.writeable and v.dtype == dtype
    result = v if in_place else np.array(v, dtype=dtype, order="C")
    if kind == "none":
        return result
    for index in np.ndindex(v.shape[: v.ndim - axes]):
        flat = result[index].reshape(-1)
        if kind == "signed-sqrt-l2":
            for block in blas.row_chunks(flat.size, flat.itemsize, _CACHE_BYTES):
                part = flat[block]
                np.copysign(np.sqrt(np.abs(part)), part, out=part)
        length = blas.norm(flat)
        if length != 0:
            flat /= length
    return result
