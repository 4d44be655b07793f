"""Gamma-democratic weights on NumPy arrays; see ``demopool.reference.weights``."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from demopool.implementations.shared import blas, democratic, scaling
from demopool.implementations.shared.blas import Array

from . import stacks

# Rows of the triangle squared at once: few calls, and few entries above the diagonal.
_KERNEL_ROWS = 1024


def dense(X: Array, *, order: int, **settings: Any) -> Array:
    """Build K once, or its lower half, then one symmetric mat-vec per iteration."""
    n, d = X.shape[-2:]
    dtype = np.dtype(blas.working_dtype(X))
    together = min(stacks.together(n * n * dtype.itemsize), prod(X.shape[:-2]))
    if stacks.are_small(n, d):
        kernels, make = np.empty((together, n, n), dtype), stacks.kernel
    else:
        # The upper triangle is never read. It is zero, so that blocks may extend into it.
        kernels, make = np.zeros((together, n, n), dtype), _kernel

    def kernel_of(images: Array) -> democratic.Kernel:
        return make(images, order, kernels[: len(images)])

    return democratic.weights(X, kernel_of, together=together, order=order, **settings)


def _kernel(images: Array, order: int, K: Array) -> democratic.Kernel:
    """The lower half of K, image by image."""
    parts = list(zip((image for _, image in blas.images(images)), K, strict=True))
    c = np.array([scaling.gram_in_range(blas.working(image), S) for image, S in parts])
    squared_norms = K.diagonal(axis1=1, axis2=2).copy()
    for start in range(0, K.shape[-1], _KERNEL_ROWS):
        rows = slice(start, start + _KERNEL_ROWS)
        stacks.to_kernel(K[:, rows, : rows.stop], order)

    def times(v: Array) -> Array:
        if len(K) == 1:
            return blas.symmetric_times_vector(K[0], v[0])[np.newaxis]
        return np.stack([blas.symmetric_times_vector(*each) for each in zip(K, v, strict=True)])

    row_sums = times(np.ones_like(squared_norms))
    return democratic.Kernel(times, row_sums, democratic.present(images, squared_norms), c)


def matrix_free(X: Array, **settings: Any) -> Array:
    """Never build K: each iteration computes the moment and one product with it, both symmetric."""
    d = X.shape[-1]
    moment = np.empty((d, d), dtype=blas.working_dtype(X))

    def forms_of(image: Array) -> democratic.Forms:
        blocks = democratic.blocks_of(image)

        def forms_with(v: Array) -> tuple[Array, Array]:
            root = np.sqrt(v)[:, np.newaxis]
            for block in blocks:
                blas.outer(image[block] * root[block], moment, add=block.start > 0)
            forms = np.empty_like(v)
            for block in blocks:
                rows = blas.block(image, block)
                np.vecdot(blas.times_symmetric(rows, moment), rows, out=forms[block])
            return forms, moment.diagonal()

        return forms_with

    def kernel_of(image: Array) -> democratic.Kernel:
        return democratic.matrix_free_kernel(image, forms_of)

    return democratic.weights(X, kernel_of, **settings)
