"""The second moment in parts, where the whole matrix would need too much memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import blas
from .blas import Array

# Maximum memory for parts of the d x d matrix; a matrix that fits is computed whole, by the
# symmetric product.
MOMENT_BYTES = 8 * 2**20


def is_whole(image: Array) -> bool:
    d = image.shape[1]
    return d * d * image.itemsize <= MOMENT_BYTES


def rows(image: Array, weights: Array | None) -> Iterator[tuple[slice, Array]]:
    """Rows of ``X^T diag(a) X``, as many at a time as the budget allows."""
    d = image.shape[1]
    for part in blas.row_chunks(d, (d + len(image)) * image.itemsize, MOMENT_BYTES):
        columns = np.ascontiguousarray(image[:, part])
        if weights is not None:
            columns = columns * weights[:, np.newaxis]
        yield part, blas.transposed_product(columns, image)
