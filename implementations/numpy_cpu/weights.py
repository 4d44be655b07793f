"""Gamma-democratic weights on NumPy arrays; see ``demopool.reference.weights``."""

from __future__ import annotations

from typing import Any

import numpy as np

from demopool.implementations.shared import blas, democratic, scaling
from demopool.implementations.shared.blas import Array

# Rows of the triangle squared at once: few calls, and few entries above the diagonal.
_KERNEL_ROWS = 1024


def dense(X: Array, *, order: int, **settings: Any) -> Array:
    """Build the lower half of K once, then one symmetric mat-vec per iteration."""
    n = X.shape[-2]
    # The upper triangle is never read. It is zero, so that blocks may extend into it.
    K = np.zeros((n, n), dtype=blas.working_dtype(X))

    def kernel_of(image: Array) -> democratic.Kernel:
        c = scaling.gram_in_range(blas.working(image), K)
        squared_norms = K.diagonal().copy()
        for start in range(0, n, _KERNEL_ROWS):
            lower = K[start : start + _KERNEL_ROWS, : start + _KERNEL_ROWS]
            if order == 2:
                np.multiply(lower, lower, out=lower)
            else:
                np.maximum(lower, 0.0, out=lower)
        row_sums = times(np.ones_like(squared_norms))
        present = democratic.present(image, squared_norms)
        return democratic.Kernel(times, row_sums, squared_norms, present, c)

    def times(v: Array) -> Array:
        return blas.symmetric_times_vector(K, v)

    return democratic.weights(X, kernel_of, order=order, **settings)


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
