"""Gamma-democratic weights on NumPy arrays; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import NamedTuple

import numpy as np
from demopool.implementations.shared.scaling import weights_factor

from . import blas
from .blas import Array

TimesKernel = Callable[[Array], Array]
"""v -> K v"""

# Rows that the matrix-free route handles at once, so that a block stays in the cache while it is
# weighted, multiplied and reduced.
_BLOCK_BYTES = 2**18

# Largest squared norms in here can be squared once more, and summed, without leaving float32.
_SAFE_LOW, _SAFE_HIGH = 2.0**-40, 2.0**40


def dense(X: Array, *, gamma: float, tau: float, iterations: int, order: int) -> Array:
    """Build the lower half of K once, then one symmetric mat-vec per iteration."""
    n = X.shape[-2]
    # Zeros, because squaring goes by whole blocks and the upper triangle is never written.
    K = np.zeros((n, n), dtype=blas.working_dtype(X))

    def kernel_of(scaled: _Scaled) -> TimesKernel:
        blas.gram(scaled.image, K, scale=scaled.c_left**2)
        _make_kernel(K, order)
        return lambda v: blas.symmetric_times_vector(K, v)

    return _weights(X, kernel_of, gamma, tau, iterations, order)


def matrix_free(X: Array, *, gamma: float, tau: float, iterations: int, order: int) -> Array:
    """Never build K: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, in O(nd + d^2) memory."""
    n, d = X.shape[-2:]
    moment = np.empty((d, d), dtype=blas.working_dtype(X))
    blocks = list(blas.row_chunks(n, d * moment.itemsize, _BLOCK_BYTES))

    def kernel_of(scaled: _Scaled) -> TimesKernel:
        def times_K(v: Array) -> Array:
            root = np.sqrt(v)[:, np.newaxis] * v.dtype.type(scaled.c_left**2)
            for block in blocks:
                blas.outer(scaled.image[block] * root[block], moment, add=block.start > 0)
            result = np.empty_like(v)
            for block in blocks:
                rows = scaled.image[block]
                np.einsum("nd,nd->n", blas.times_symmetric(rows, moment), rows, out=result[block])
            return result

        return times_K

    return _weights(X, kernel_of, gamma, tau, iterations, order)


def _weights(
    X: Array,
    kernel_of: Callable[[_Scaled], TimesKernel],
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
) -> Array:
    """Image by image: into range, Sinkhorn, and back to the features as they were given."""
    weights = np.empty(X.shape[:-1], dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        scaled = _scaled(image)
        a = _sinkhorn(kernel_of(scaled), scaled.squared_norms, gamma, tau, iterations)
        factor = weights_factor(scaled.c, gamma=gamma, tau=tau, iterations=iterations, order=order)
        np.multiply(a, a.dtype.type(factor), out=weights[index])
    return weights


def _sinkhorn(
    times_K: TimesKernel,
    squared_norms: Array,
    gamma: float,
    tau: float,
    iterations: int,
) -> Array:
    """T products with K for T iterations: K 1 is needed for the target and serves the first one."""
    ones = np.ones_like(squared_norms)
    absent = np.flatnonzero(squared_norms == 0)
    Ka = times_K(ones)
    Ka[absent] = 1.0
    target = Ka**gamma
    a = ones
    for iteration in range(iterations):
        if iteration:
            Ka = times_K(a)
            Ka[absent] = 1.0
        a = a / (a * Ka / target) ** tau
    a[absent] = 0.0
    return a


def _make_kernel(G: Array, order: int) -> None:
    """Lower triangle of the Gram matrix to that of the kernel, in place."""
    for rows in blas.row_chunks(len(G), G.shape[1] * G.itemsize, _BLOCK_BYTES):
        lower = G[rows, : rows.stop]
        if order == 2:
            np.multiply(lower, lower, out=lower)
        else:
            np.maximum(lower, 0.0, out=lower)


class _Scaled(NamedTuple):
    """An image and the power of two that brings its largest row norm near 1.

    Powers of two multiply exactly. Usually the image is left alone and the factor is still to be
    applied to each product (``c_left``); features whose products would leave the range of the
    dtype are multiplied first, in a copy.
    """

    image: Array
    squared_norms: Array
    c: float
    c_left: float


def _scaled(image: Array) -> _Scaled:
    squared_norms = np.einsum("nd,nd->n", image, image)
    largest = float(squared_norms.max())
    if _SAFE_LOW < largest < _SAFE_HIGH:
        c = 2.0 ** -(frexp(largest)[1] // 2)
        return _Scaled(image, squared_norms, c, c)
    magnitude = max(float(image.max()), -float(image.min()))
    if magnitude == 0.0 or not np.isfinite(magnitude):
        return _Scaled(image, squared_norms, 1.0, 1.0)
    c = 2.0 ** -frexp(magnitude)[1]
    image = image * image.dtype.type(c)
    return _Scaled(image, np.einsum("nd,nd->n", image, image), c, 1.0)
