"""Products of stacks of images: one call for all of them where they are small.

NumPy multiplies a stack matrix by matrix, so an image has the same bits in every stack. It uses its
own copy of OpenBLAS, whose threads would compete with those of SciPy's (``shared/blas.py``), but
products as small as these are computed in the calling thread.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from demopool.implementations.shared import blas, democratic, scaling
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


def kernel(images: Array, order: int, K: Array) -> democratic.Kernel:
    """K of every small image, whole."""
    images = np.ascontiguousarray(images, K.dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.matmul(images, images.mT, out=K)
    squared_norms = K.diagonal(axis1=1, axis2=2)
    is_unscaled = scaling.need_no_scaling(squared_norms)
    c: Array | float = 1.0
    present: Array | bool = True
    if not is_unscaled:
        c = np.ones(len(images))
        for b in np.flatnonzero(~scaling.is_safe(squared_norms)):
            image, c[b] = scaling.into_range(images[b])
            np.matmul(image, image.T, out=K[b])
        present = democratic.present(images, squared_norms)
    to_kernel(K, order)
    row_sums = np.add.reduce(K, axis=-1)
    if len(K) == 1:  # the same bits in half the time
        return democratic.Kernel(K[0].dot, row_sums[0], present, c, is_full=is_unscaled)
    return democratic.Kernel(partial(np.matvec, K), row_sums, present, c, is_full=is_unscaled)


def to_kernel(gram: Array, order: int) -> None:
    """Kernel values of a Gram matrix, in its place."""
    if order == 2:
        np.multiply(gram, gram, out=gram)
    else:
        np.maximum(gram, 0.0, out=gram)


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
