"""Gamma-democratic weights on NumPy arrays; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, inf, ldexp
from typing import Any, NamedTuple

import numpy as np
from demopool.implementations.shared.scaling import weights_factor

from . import blas
from .blas import Array

# Rows that the matrix-free route handles at once: few calls, and a block is still in the cache when
# it is multiplied and reduced.
_BLOCK_BYTES = 2**20

# Rows of the triangle that become kernel values at once: few calls, little beyond the diagonal.
_KERNEL_ROWS = 1024

# A largest squared norm in here can be squared once more, and summed, in float32, and leaves room
# below for rows of 1e-8 times that norm.
_SAFE_LOW, _SAFE_HIGH = 2.0**-8, 2.0**40
_MILD_LOW, _MILD_HIGH = 2.0**-16, 2.0**16

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
        # The first row tells the scale, usually; the diagonal tells whether it did. Products are
        # scaled after they are made, so features far from 1 are scaled first, in a copy.
        c = _near_one(blas.norm(image[0]), image.dtype)
        if _MILD_LOW < c < _MILD_HIGH:
            squared_norms = blas.gram(image, K, scale=c * c).diagonal().copy()
        if not (_MILD_LOW < c < _MILD_HIGH and _SAFE_LOW < squared_norms.max() < _SAFE_HIGH):
            image, c = _into_range(image)
            squared_norms = blas.gram(image, K).diagonal().copy()
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
        if not _SAFE_LOW < squared_norms.max() < _SAFE_HIGH:
            image, c = _into_range(image)
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
        factor = weights_factor(kernel.c, gamma=gamma, tau=tau, iterations=iterations, order=order)
        # Zero rows keep their weight of zero.
        present = kernel.squared_norms != 0
        np.multiply(a, a.dtype.type(factor), out=weights[index], where=present)
    return weights


def _sinkhorn(kernel: _Kernel, gamma: float, tau: float, iterations: int) -> Array:
    """T products with K for T iterations: K 1 is needed for the target and serves the first one."""
    a = np.ones_like(kernel.squared_norms)
    # A zero row has an empty row in K. Any positive number there keeps it away from the others.
    absent = np.flatnonzero(kernel.squared_norms == 0)
    Ka = kernel.row_sums
    Ka[absent] = 1.0
    target = Ka**gamma
    for iteration in range(iterations):
        if iteration:
            Ka = kernel.times(a)
            Ka[absent] = 1.0
        s = np.multiply(a, Ka, out=Ka)
        s /= target
        s **= tau
        a = a / s
    return a


def _into_range(image: Array) -> tuple[Array, float]:
    """A copy whose largest value is near 1, and the factor; zeros and NaN stay as they are."""
    c = _near_one(max(float(image.max()), -float(image.min())), image.dtype)
    return image * image.dtype.type(c), c


def _near_one(size: float, dtype: Any) -> float:
    """The power of two that brings ``size`` to between 1/2 and 1, or near it for subnormals."""
    largest = -int(np.finfo(dtype).minexp)
    return ldexp(1.0, min(-frexp(size)[1], largest)) if 0.0 < size < inf else 1.0
