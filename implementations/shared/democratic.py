"""Gamma-democratic weights of images or of stacks of them on NumPy arrays, for any product with K.

``demopool.reference.weights`` explains the mathematics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from . import blas, scaling
from .blas import Array
from .cancellation import doubt_limit

# Size of a block of rows where K is not built: few calls, and a block is still in the cache when it
# is multiplied and reduced.
BLOCK_BYTES = 2**20

Product = Callable[[Array], Array]
Forms = Callable[[Array], tuple[Array, Array]]
"""Computes ``x_i^T M x_i`` of all rows, M the moment with the given weights, and M's diagonal."""


class Kernel(NamedTuple):
    """K of the features multiplied by c, a power of two (which multiplies exactly).

    Of one image, or of a stack of them: then vectors are rows of arrays, and so are those that
    ``times`` takes, and c is a number for each, or one for all. ``present`` rows are not zero; True
    if no row is. ``is_full`` if no row of K is known to be empty.
    """

    times: Product
    row_sums: Array
    present: Array | bool
    c: Array | float
    is_full: bool = False


def weights(
    X: Array,
    kernel_of: Callable[[Array], Kernel],
    *,
    together: int | None = None,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
) -> Array:
    """The weights of every image: Sinkhorn on scaled features, then rescaled to the given ones.

    ``kernel_of`` receives one image, or stacks of ``together`` images.
    """
    every = X.reshape(-1, *X.shape[-2:])
    found = np.zeros(every.shape[:-1], dtype=blas.working_dtype(X))
    parts: Iterator[tuple[Any, Array]] = blas.images(every)
    if together is not None:
        parts = ((part, every[part]) for part in blas.row_chunks(len(every), 1, together))
    for index, images in parts:
        kernel = kernel_of(images)
        a = sinkhorn(kernel, gamma, tau, iterations)
        factors = scaling.weights_factors(
            kernel.c, a.dtype, gamma=gamma, tau=tau, iterations=iterations, order=order
        )
        if kernel.present is True:
            np.multiply(a, factors, out=found[index])
        else:  # zero rows keep their weight of zero
            np.multiply(a, factors, out=found[index], where=kernel.present)
    return found.reshape(X.shape[:-1])


def sinkhorn(kernel: Kernel, gamma: float, tau: float, iterations: int) -> Array:
    """T iterations by T products with K: K 1, needed for the target, also serves the first one."""
    Ka = kernel.row_sums
    if iterations == 0:
        return np.ones_like(Ka)
    # A row of zeros, or of values too small to be squared twice, has an empty row in K. Setting its
    # row sum to one keeps its weight at 1, without effect on the others.
    empty = None if kernel.is_full or np.minimum.reduce(Ka, axis=None) > 0 else Ka == 0
    if empty is not None:
        Ka[empty] = 1.0
    target = Ka**gamma
    a = (target / Ka) ** tau
    for _ in range(1, iterations):
        Ka = kernel.times(a)
        if empty is not None:
            Ka[empty] = 1.0
        if tau == 0.5:  # a root, and fewer passes: a call of NumPy takes as long as a small image
            a *= target
            a /= Ka
            np.sqrt(a, out=a)
        else:
            Ka *= a
            Ka /= target
            Ka **= tau
            a /= Ka
    return a


def matrix_free_kernel(image: Array, forms_of: Callable[[Array], Forms]) -> Kernel:
    """K by the moment: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, in O(nd + d^2) memory.

    ``forms_of`` computes the forms of a scaled image; doubtful ones are computed again here.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squared_norms, c = _squared_norms(image), 1.0
    if not scaling.is_safe(squared_norms):
        image, c = scaling.into_range(image)
        squared_norms = _squared_norms(image)
    forms_with = forms_of(image)
    limit = squared_norms.dtype.type(doubt_limit(*image.shape))

    def times(v: Array) -> Array:
        forms, diagonal = forms_with(v)
        # Usually no row comes near the limit, which the largest diagonal entry shows cheaply.
        suspects = _below(squared_norms * diagonal.max(), forms * limit)
        if suspects.size:
            sums = [
                blas.matrix_times_vector(np.square(blas.working(image[suspects[part]])), diagonal)
                for part in blas.row_chunks(suspects.size, image[0].nbytes, BLOCK_BYTES)
            ]
            doubtful = suspects[_below(np.concatenate(sums), forms[suspects] * limit)]
            if doubtful.size:
                forms[doubtful] = _again(image, doubtful, v)
        return forms

    row_sums = times(np.ones_like(squared_norms))
    return Kernel(times, row_sums, present(image, squared_norms), c)


def blocks_of(image: Array) -> list[slice]:
    """Blocks of rows for products with a moment."""
    row_bytes = image.shape[1] * np.dtype(blas.working_dtype(image)).itemsize
    return list(blas.row_chunks(len(image), row_bytes, BLOCK_BYTES))


def _squared_norms(image: Array) -> Array:
    found = np.empty(len(image), blas.working_dtype(image))
    for rows in blocks_of(image):
        block = blas.block(image, rows)
        np.vecdot(block, block, out=found[rows])
    return found


def _below(limits: Array, forms: Array) -> Array:
    """Where a form is below its limit, or NaN."""
    return np.flatnonzero(~(forms >= limits))


def _again(image: Array, rows: Array, v: Array) -> Array:
    """``(K v)_i`` of some rows without the error of the moment.

    Few rows: the sum of their entries of K. Many rows in float32: forms with the moment in float64.
    Their error of 1e-16 of the limit is less than that of entries of K in float32, each of which
    has an error of at least the square of 1e-7.
    """
    n, d = image.shape
    found = np.zeros(rows.size, v.dtype)
    if image.dtype == np.float64 or rows.size <= d // 2:
        for part in blas.row_chunks(rows.size, n * v.itemsize, BLOCK_BYTES):
            suspects = blas.working(image[rows[part]])
            for columns, others in blas.working_rows(image):
                products = blas.product_transposed(suspects, others)
                found[part] += blas.matrix_times_vector(np.square(products), v[columns])
        return found
    moment = np.empty((d, d))
    root = np.sqrt(v, dtype=np.float64)[:, np.newaxis]
    for block in blas.row_chunks(n, d * moment.itemsize, BLOCK_BYTES):
        blas.outer(image[block] * root[block], moment, add=block.start > 0)
    for part in blas.row_chunks(rows.size, d * moment.itemsize, BLOCK_BYTES):
        some = image[rows[part]].astype(np.float64, order="C")
        forms = np.vecdot(blas.times_symmetric(some, moment), some)
        # No entry of K is negative: a sum is at least the row's own term.
        found[part] = np.maximum(forms, np.vecdot(some, some) ** 2 * v[rows[part]])
    return found


def present(image: Array, squared_norms: Array) -> Array | bool:
    """Rows that are not zero, even if their squares underflow to zero; True if none is."""
    if np.minimum.reduce(squared_norms, axis=None) > 0:
        return True
    found = squared_norms != 0
    nothing = ~found
    found[nothing] = image[nothing].any(axis=-1)
    return found
