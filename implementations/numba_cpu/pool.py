"""Weighted pooling and the final normalisation in compiled loops."""

from __future__ import annotations

import numpy as np

from demopool.implementations.shared import blas
from demopool.implementations.shared.blas import Array

from . import products
from .compiled import kernel, spread, threads

# Size of a group of images that are copied together if they are not row-major, or half precision.
_GROUP_BYTES = 32 * 2**20

# Minimum number of elements per thread.
_GRAIN = 50_000


def direct(X: Array, a: Array | None, *, order: int) -> Array:
    """``X^T diag(a) X`` as a symmetric product of ``sqrt(a) X``; ``a^T X`` for order 1."""
    *batch, n, d = X.shape
    dtype = blas.working_dtype(X)
    every = X.reshape(-1, n, d)
    weights = None if a is None else np.ascontiguousarray(a, dtype).reshape(-1, n)
    pooled = np.empty((len(every), *(d,) * order), dtype)
    for group in blas.row_chunks(len(every), n * d * pooled.itemsize, _GROUP_BYTES):
        images = np.ascontiguousarray(every[group], dtype)
        given = None if weights is None else weights[group]
        if order == 2:
            products.moments(images, given, pooled[group])
        else:
            ones = np.ones(images.shape[:2], dtype)
            into, grain = pooled[group], 1 + _GRAIN // (n * d)
            spread(
                _weighted_sums,
                len(images),
                images,
                ones if given is None else given,
                into,
                grain=grain,
            )
    return pooled.reshape(*batch, *(d,) * order)


@kernel
def _weighted_sums(start: int, stop: int, X: Array, a: Array, out: Array) -> None:
    for b in range(start, stop):
        total = out[b]
        total[:] = 0
        for i in range(X.shape[1]):
            for j in range(X.shape[2]):
                total[j] += a[b, i] * X[b, i, j]


def normalize(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
    """Signed square root and l2 norm over the last ``axes`` axes: one pass reads, one writes."""
    dtype = blas.working_dtype(v)
    source = np.ascontiguousarray(v, dtype)
    in_place = source is not v or (overwrite and v.flags.writeable)
    if kind == "none":
        return source if in_place else source.copy()
    result = source if in_place else np.empty_like(source)
    size = int(np.prod(v.shape[v.ndim - axes :]))
    rows, out = source.reshape(-1, size), result.reshape(-1, size)
    rooted = kind == "signed-sqrt-l2"
    if len(rows) >= threads():
        spread(_normalize_rows, len(rows), rows, rooted, out, grain=1 + _GRAIN // size)
    else:
        for row, into in zip(rows, out, strict=True):
            _normalize_by_parts(row, rooted, into)
    return result


def _normalize_by_parts(row: Array, rooted: bool, out: Array) -> None:
    sums: dict[int, float] = {}

    def part(start: int, stop: int) -> None:
        sums[start] = _sum_of_squares(start, stop, row, rooted)

    spread(part, len(row), grain=_GRAIN)
    length = _length(sum(sums[start] for start in sorted(sums)), row, rooted)
    spread(_write, len(row), row, rooted, length, out, grain=_GRAIN)


@kernel
def _normalize_rows(start: int, stop: int, rows: Array, rooted: bool, out: Array) -> None:
    for i in range(start, stop):
        row = rows[i]
        length = _length(_sum_of_squares(0, len(row), row, rooted), row, rooted)
        _write(0, len(row), row, rooted, length, out[i])


@kernel
def _sum_of_squares(start: int, stop: int, row: Array, rooted: bool) -> float:
    """The sum of squares of the values to write; the square of a root is the number itself."""
    total = 0.0
    for i in range(start, stop):
        value = np.float64(row[i])
        total += abs(value) if rooted else value * value
    return total


@kernel
def _length(total: float, row: Array, rooted: bool) -> float:
    """The root of the sum. Values that float64 cannot square are scaled and summed again."""
    if 1e-280 < total < 1e300 or (rooted and total < 1e300):
        return np.sqrt(total) if total > 0 else 1.0
    largest = 0.0
    for i in range(len(row)):
        value = np.float64(row[i])
        if not abs(value) <= largest:  # NaN as well
            largest = abs(value)
    if largest == 0:
        return 1.0
    again = 0.0
    for i in range(len(row)):
        value = np.float64(row[i]) / largest
        again += abs(value) if rooted else value * value
    return np.sqrt(again) * (np.sqrt(largest) if rooted else largest)


@kernel
def _write(start: int, stop: int, row: Array, rooted: bool, length: float, out: Array) -> None:
    factor = row.dtype.type(1.0 / length)
    for i in range(start, stop):
        value = row[i]
        if rooted:
            root = np.sqrt(abs(value))
            value = root if value >= 0 else -root
        out[i] = value * factor
