"""Gamma-democratic weights on NumPy arrays; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from demopool.implementations.shared import blas, scaling
from demopool.implementations.shared.blas import Array

# Rows that the matrix-free route handles at once: few calls, and a block is still in the cache when
# it is multiplied and reduced.
_BLOCK_BYTES = 2**20

# Rows of the triangle that become kernel values at once: few calls, little beyond the diagonal.
_KERNEL_ROWS = 1024

# x^T M x is a difference of large numbers for a row that is nearly orthogonal to all stronger ones:
# its rounding error, relative to the sum, is about eps over this share of what a row in a random
# direction would have. Below it the row's entries of K are summed one by one.
_ALIGNED = 0.01


class _Kernel(NamedTuple):
    """K of the features multiplied by c, a power of two (which multiplies exactly)."""

    times: Callable[[Array], Array]
    row_sums: Array
    squared_norms: Array
    c: float


def dense(X: Array, *, gamma: float, tau: float, iterations: int, order: int) -> Array:
    """Build the lower half of K once, then one symmetric mat-vec per iteration."""
    n = X.shape[-2]
    # The upper triangle is never read. It is zero, so that blocks may reach into it.
    K = np.zeros((n, n), dtype=blas.working_dtype(X))

    def kernel_of(image: Array) -> _Kernel:
        c = scaling.gram_in_range(image, K)
        squared_norms = K.diagonal().copy()
        for start in range(0, n, _KERNEL_ROWS):
            lower = K[start : start + _KERNEL_ROWS, : start + _KERNEL_ROWS]
            if order == 2:
                np.multiply(lower, lower, out=lower)
            else:
                np.maximum(lower, 0.0, out=lower)
        row_sums = blas.symmetric_times_vector(K, np.ones_like(squared_norms))
        return _Kernel(lambda v: blas.symmetric_times_vector(K, v), row_sums, squared_norms, c)

    return _weights(X, kernel_of, gamma, tau, iterations, order)


def matrix_free(X: Array, *, gamma: float, tau: float, iterations: int, order: int) -> Array:
    """Never build K: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, in O(nd + d^2) memory."""
    n, d = X.shape[-2:]
    moment = np.empty((d, d), dtype=blas.working_dtype(X))
    blocks = list(blas.row_chunks(n, d * moment.itemsize, _BLOCK_BYTES))

    def kernel_of(image: Array) -> _Kernel:
        with np.errstate(over="ignore", invalid="ignore"):
            squared_norms, c = np.vecdot(image, image), 1.0
        if not scaling.is_safe(squared_norms.max()):
            image, c = scaling.into_range(image)
            squared_norms = np.vecdot(image, image)

        def by_moment(v: Array) -> Array:
            root = np.sqrt(v)[:, np.newaxis]
            for block in blocks:
                blas.outer(image[block] * root[block], moment, add=block.start > 0)
            result = np.empty_like(v)
            for block in blocks:
                rows = image[block]
                np.vecdot(blas.times_symmetric(rows, moment), rows, out=result[block])
            return result

        ones = np.ones_like(squared_norms)
        row_sums = by_moment(ones)
        in_any_direction = squared_norms * (squared_norms.sum() / d)
        unreliable = np.flatnonzero((row_sums < _ALIGNED * in_any_direction) & (squared_norms > 0))

        def corrected(result: Array, v: Array) -> Array:
            for part in blas.row_chunks(len(unreliable), n * v.itemsize, _BLOCK_BYTES):
                rows = unreliable[part]
                products = blas.product_transposed(image[rows], image)
                result[rows] = blas.matrix_times_vector(np.square(products), v)
            return result

        def times_K(v: Array) -> Array:
            return corrected(by_moment(v), v)

        return _Kernel(times_K, corrected(row_sums, ones), squared_norms, c)

    return _weights(X, kernel_of, gamma, tau, iterations, order)


def _weights(
    X: Array,
    kernel_of: Callable[[Array], _Kernel],
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
) -> Array:
    """Image by image: Sinkhorn in range, then back to the features as they were given."""
    weights = np.zeros(X.shape[:-1], dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        kernel = kernel_of(image)
        a = _sinkhorn(kernel, gamma, tau, iterations)
        factor = scaling.weights_factor(
            kernel.c, gamma=gamma, tau=tau, iterations=iterations, order=order
        )
        # Zero rows keep their weight of zero.
        present = kernel.squared_norms != 0
        np.multiply(a, a.dtype.type(factor), out=weights[index], where=present)
    return weights


def _sinkhorn(kernel: _Kernel, gamma: float, tau: float, iterations: int) -> Array:
    """T products with K for T iterations: K 1 is needed for the target and serves the first one."""
    a = np.ones_like(kernel.squared_norms)
    # A row of zeros, or of less than the dtype can square twice, has an empty row in K. With a one
    # there it keeps its weight of 1, away from the others.
    empty = np.flatnonzero(kernel.row_sums == 0)
    Ka = kernel.row_sums
    Ka[empty] = 1.0
    target = Ka**gamma
    for iteration in range(iterations):
        if iteration:
            Ka = kernel.times(a)
            Ka[empty] = 1.0
        s = np.multiply(a, Ka, out=Ka)
        s /= target
        s **= tau
        a = a / s
    return a
