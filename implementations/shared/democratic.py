"""Gamma-democratic weights image by image on NumPy arrays, whatever multiplies by K.

``demopool.reference.weights`` has the mathematics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from . import blas, scaling
from .blas import Array

# Rows handled at once where K is not built: few calls, and a block is still in the cache when it is
# multiplied and reduced.
BLOCK_BYTES = 2**20

# x^T M x is a difference of large numbers for a row that is nearly orthogonal to all stronger ones:
# its rounding error, relative to the sum, is about eps over this share of what a row in a random
# direction would have. Below it the row's entries of K are summed one by one.
ALIGNED = 0.01

Product = Callable[[Array], Array]


class Kernel(NamedTuple):
    """K of the features multiplied by c, a power of two (which multiplies exactly)."""

    times: Product
    row_sums: Array
    squared_norms: Array
    c: float


def weights(
    X: Array,
    kernel_of: Callable[[Array], Kernel],
    *,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
) -> Array:
    """Image by image: Sinkhorn in range, then back to the features as they were given."""
    found = np.zeros(X.shape[:-1], dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        kernel = kernel_of(image)
        a = sinkhorn(kernel, gamma, tau, iterations)
        factor = scaling.weights_factor(
            kernel.c, gamma=gamma, tau=tau, iterations=iterations, order=order
        )
        # Zero rows keep their weight of zero.
        present = kernel.squared_norms != 0
        np.multiply(a, a.dtype.type(factor), out=found[index], where=present)
    return found


def sinkhorn(kernel: Kernel, gamma: float, tau: float, iterations: int) -> Array:
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


def matrix_free_kernel(image: Array, times_moment: Callable[[Array], Product]) -> Kernel:
    """K through the moment: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, in O(nd + d^2) memory.

    ``times_moment`` makes that product for an image in range; the rows for which it rounds too much
    are summed exactly here.
    """
    n, d = image.shape
    with np.errstate(over="ignore", invalid="ignore"):
        squared_norms, c = np.vecdot(image, image), 1.0
    if not scaling.is_safe(squared_norms.max()):
        image, c = scaling.into_range(image)
        squared_norms = np.vecdot(image, image)
    by_moment = times_moment(image)
    ones = np.ones_like(squared_norms)
    row_sums = by_moment(ones)
    in_any_direction = squared_norms * (squared_norms.sum() / d)
    unreliable = np.flatnonzero((row_sums < ALIGNED * in_any_direction) & (squared_norms > 0))

    def corrected(result: Array, v: Array) -> Array:
        for part in blas.row_chunks(len(unreliable), n * v.itemsize, BLOCK_BYTES):
            rows = unreliable[part]
            products = blas.product_transposed(image[rows], image)
            result[rows] = blas.matrix_times_vector(np.square(products), v)
        return result

    return Kernel(lambda v: corrected(by_moment(v), v), corrected(row_sums, ones), squared_norms, c)
