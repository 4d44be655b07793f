"""Gamma-democratic weights on NumPy arrays; see ``demopool.reference.weights``."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from demopool.implementations.shared import blas, democratic
from demopool.implementations.shared.blas import Array

from . import stacks

# Rows of the triangle squared at once: few calls, and few entries above the diagonal.
_KERNEL_ROWS = 1024


def dense(X: Array, *, order: int, **settings: Any) -> Array:
    """Build the lower half of K once, then one symmetric mat-vec per iteration."""
    n, d = X.shape[-2:]
    dtype = blas.working_dtype(X)
    together = min(stacks.together(n * n * np.dtype(dtype).itemsize), prod(X.shape[:-2]))
    # The upper triangle is never read. It is zero, so that blocks may extend into it.
    kernels = np.zeros((together, n, n), dtype)

    def kernel_of(images: Array) -> democratic.Kernel:
        K = kernels[: len(images)]
        c = stacks.grams_in_range(images, K)
        squared_norms = K.diagonal(axis1=1, axis2=2).copy()
        for start in range(0, n, _KERNEL_ROWS):
            lower = K[:, start : start + _KERNEL_ROWS, : start + _KERNEL_ROWS]
            if order == 2:
                np.multiply(lower, lower, out=lower)
            else:
                np.maximum(lower, 0.0, out=lower)
        times = stacks.product_with(K, d)
        row_sums = times(np.ones_like(squared_norms))
        present = democratic.present(images, squared_norms)
        return democratic.Kernel(times, row_sums, squared_norms, present, c)

    return democratic.weights(X, kernel_of, together=together, order=order, **settings)


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
