"""Gamma-democratic weights on NumPy arrays; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, inf
from typing import NamedTuple

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


class _Kernel(NamedTuple):
    """K of the features multiplied by c, a power of two (which multiplies exactly)."""

    times: Callable[[Array], Array]
    squared_norms: Array
    c: float


def dense(X: Array, *, gamma: float, tau: float, iterations: int, order: int) -> Array:
    """Build the lower half of K once, then one symmetric mat-vec per iteration."""
    n = X.shape[-2]
    # The upper triangle is never read. It is zero, so that blocks may reach into it.
    K = np.zeros((n, n), dtype=blas.working_dtype(X))

    def kernel_of(image: Array) -> _Kernel:
        # The first row tells the scale, usually; the diagonal tells whether it did.
        c = _near_one(blas.norm(image[0]))
        squared_norms = blas.gram(image, K, scale=c * c).diagonal().copy()
        if not _SAFE_LOW < squared_norms.max() < _SAFE_HIGH:
            image, c = _into_range(image)
            squared_norms = blas.gram(image, K).diagonal().copy()
        for start in range(0, n, _KERNEL_ROWS):
            lower = K[start : start + _KERNEL_ROWS, : start + _KERNEL_ROWS]
            if order == 2:
                np.multiply(lower, lower, out=lower)
            else:
                np.maximum(lower, 0.0, out=lower)
        return _Kernel(lambda v: blas.symmetric_times_vector(K, v), squared_norms, c)

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

        def times_K(v: Array) -> Array:
            root = np.sqrt(v)[:, np.newaxis]
            for block in blocks:
                blas.outer(image[block] * root[block], moment, add=block.start > 0)
            result = np.empty_like(v)
            for block in blocks:
                rows = image[block]
                np.vecdot(blas.times_symmetric(rows, moment), rows, out=result[block])
            return result

        return _Kernel(times_K, squared_norms, c)

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
    Ka = kernel.times(a)
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
    c = _near_one(max(float(image.max()), -float(image.min())))
    return image * image.dtype.type(c), c


def _near_one(size: float) -> float:
    """The power of two that brings ``size`` to between 1/2 and 1."""
    return 2.0 ** -frexp(size)[1] if 0.0 < size < inf else 1.0
