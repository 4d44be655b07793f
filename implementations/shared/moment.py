"""The second moment in parts, where the whole matrix would need too much memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from . import blas
from .blas import Array

# Maximum memory for parts of the d x d matrix; a matrix that fits is computed whole, by the
# symmetric product.
MOMENT_BYTES = 8 * 2**20


def is_whole(image: Array) -> bool:
    d = image.shape[1]
    return d * d * np.dtype(blas.working_dtype(image)).itemsize <= MOMENT_BYTES


def rows(image: Array, weights: Array | None) -> Iterator[tuple[slice, Array]]:
    """Rows of ``X^T diag(a) X``, as many at a time as the budget allows."""
    d, itemsize = image.shape[1], np.dtype(blas.working_dtype(image)).itemsize
    for part in blas.row_chunks(d, (d + len(image)) * itemsize, MOMENT_BYTES):
        columns = blas.working(image[:, part])
        if weights is not None:
            columns = columns * weights[:, np.newaxis]
        products = (
            blas.transposed_product(columns[rows], some) for rows, some in blas.working_rows(image)
        )
        yield part, reduce(np.add, products)
