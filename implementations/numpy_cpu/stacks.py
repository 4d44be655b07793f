"""Products of stacks of images: one call for all of them where they are small.

NumPy multiplies a stack matrix by matrix, so an image has the same bits in every stack. It uses its
own copy of OpenBLAS, whose threads would compete with those of SciPy's (``shared/blas.py``), but
products as small as these are computed in the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from demopool.implementations.shared import blas, scaling
from demopool.implementations.shared.blas import Array

# Up to so many multiplications OpenBLAS uses no threads: of two matrices, of a matrix and a vector.
_MATRICES, _VECTOR = 2**18, 9215

# Images of a stack: few calls, and what is computed for them is still in the cache for the next.
_STACK_BYTES = 2**18


def are_small(n: int, d: int) -> bool:
    """Whether images of that size are multiplied as a stack."""
    return n * d * max(n, d) <= _MATRICES and n * n <= _VECTOR


def together(bytes_of_one: int) -> int:
    """How many images of a stack to process at a time."""
    return max(1, _STACK_BYTES // bytes_of_one)


def grams_in_range(images: Array, out: Array) -> Array | float:
    """Gram matrices of c X as ``scaling.gram_in_range``, small ones whole, and c of each image, or
    1.0 if that is c of all."""
    n, d = images.shape[1:]
    dtype = blas.working_dtype(images)
    if not are_small(n, d):
        found = [
            scaling.gram_in_range(blas.working(image), part)
            for (_, image), part in zip(blas.images(images), out, strict=True)
        ]
        return np.array(found)
    images = np.ascontiguousarray(images, dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.matmul(images, images.mT, out=out)
    squared_norms = out.diagonal(axis1=1, axis2=2)
    if scaling.are_ordinary(squared_norms):
        return 1.0
    c = np.ones(len(images))
    for b in np.flatnonzero(~scaling.is_safe(squared_norms)):
        image, c[b] = scaling.into_range(images[b])
        np.matmul(image, image.T, out=out[b])
    return c


def product_with(K: Array, d: int) -> Callable[[Array], Array]:
    """``K v`` of every image, for K as :func:`grams_in_range` fills it from d columns."""
    if are_small(K.shape[-1], d):
        return partial(np.matvec, K)

    def times(v: Array) -> Array:
        found = np.empty_like(v)
        for S, a, row in zip(K, v, found, strict=True):
            row[...] = blas.symmetric_times_vector(S, a)
        return found

    return times


def moments(images: Array, a: Array | None, out: Array) -> None:
    """``X^T diag(a) X`` of every small image, whole, as a symmetric product of ``sqrt(a) X``."""
    n, d = images.shape[1:]
    roots = None if a is None else np.sqrt(a)[..., np.newaxis]
    for part in blas.row_chunks(len(images), 1, together(n * d * out.itemsize)):
        if roots is None:
            rows = np.ascontiguousarray(images[part], out.dtype)
        else:
            rows = np.multiply(images[part], roots[part], order="C")
        np.matmul(rows.mT, rows, out=out[part])
