"""Weighted pooling and the final normalisation in compiled loops."""

from __future__ import annotations

from math import frexp, prod

import numpy as np

from demopool.implementations.shared import blas
from demopool.implementations.shared.blas import Array

from . import products
from .compiled import grain_of, kernel, spread, threads


def direct(X: Array, a: Array | None, *, order: int, norm: str = "none") -> Array:
    """``X^T diag(a) X`` as a symmetric product of ``sqrt(a) X``; ``a^T X`` for order 1.

    With a ``norm`` every matrix is normalised from its lower triangle.
    """
    *batch, n, d = X.shape
    dtype = blas.working_dtype(X)
    images = X.reshape(-1, n, d)
    weights = None if a is None else np.ascontiguousarray(a, dtype).reshape(-1, n)
    pooled = np.empty((len(images), *(d,) * order), dtype)
    if order == 2:
        products.moments(images, weights, pooled, triangle=norm != "none")
        if norm != "none":
            _normalize_symmetric(pooled, norm)
    elif images.flags.c_contiguous and images.dtype == dtype:
        given = np.ones(images.shape[:2], dtype) if weights is None else weights
        spread(_weighted_sums, len(images), images, given, pooled, grain=grain_of(n * d))
    else:
        for b, (_, image) in enumerate(blas.images(images)):
            pooled[b] = blas.weighted_sum(image, None if weights is None else weights[b])
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
    in_place = overwrite and v.flags.c_contiguous and v.flags.writeable and v.dtype == dtype
    result = v if in_place else np.array(v, dtype, order="C")
    if kind != "none":
        _normalize_rows(result.reshape(-1, prod(v.shape[v.ndim - axes :])), kind)
    return result


def _normalize_rows(rows: Array, kind: str) -> None:
    rooted, size = kind == "signed-sqrt-l2", rows.shape[1]
    if len(rows) >= threads():
        spread(_normalize_some, len(rows), rows, rooted, grain=grain_of(size))
    else:
        for row in rows:
            _normalize_by_parts(row, rooted)


def _normalize_symmetric(matrices: Array, kind: str) -> None:
    """The same of matrices of which only the lower triangle is read."""
    d, rooted = matrices.shape[-1], kind == "signed-sqrt-l2"
    sums = np.zeros((len(matrices), d))
    if len(matrices) >= threads():
        spread(_normalize_matrices, len(matrices), matrices, rooted, sums, grain=grain_of(d**2))
    else:
        for S, found in zip(matrices, sums, strict=True):
            spread(_sum_rows, d, S, rooted, found, grain=256, triangle=True)
            length = _known_length(found, S, rooted)
            tiles = -(-d // products.TILE)
            spread(_write_tiles, tiles, S, rooted, length, grain=8, triangle=True)
    for S, found in zip(matrices, sums, strict=True):
        if not _known_length(found, S, rooted):
            products.mirror(S)
            _normalize_rows(S.reshape(1, -1), kind)


@kernel
def _normalize_matrices(start: int, stop: int, S: Array, rooted: bool, sums: Array) -> None:
    d = S.shape[1]
    for b in range(start, stop):
        _sum_rows(0, d, S[b], rooted, sums[b])
        length = _known_length(sums[b], S[b], rooted)
        _write_tiles(0, (d + products.TILE - 1) // products.TILE, S[b], rooted, length)


@kernel
def _sum_rows(start: int, stop: int, S: Array, rooted: bool, sums: Array) -> None:
    """What rows start..stop of the triangle, and the same numbers above it, add to the sum."""
    for i in range(start, stop):
        left = _sum_of_squares(0, i, S[i], rooted)
        sums[i] = 2 * left + _sum_of_squares(i, i + 1, S[i], rooted)


@kernel
def _known_length(sums: Array, S: Array, rooted: bool) -> float:
    """The length from the sums of all rows, or 0 if it is 0 or out of range."""
    total = 0.0
    for i in range(len(sums)):
        total += sums[i]
    return np.sqrt(total) if _is_known(total, S, rooted) else 0.0


@kernel
def _is_known(total: float, values: Array, rooted: bool) -> bool:
    """Whether the root of the sum is the length, and one over it a number of the values' dtype.
    Sums are in float64, which holds the squares of all float32."""
    least = 1e-75 if values.itemsize == 4 else 1e-280
    return (total > least or (rooted and total > 0)) and total < 1 / least


@kernel
def _write_tiles(start: int, stop: int, S: Array, rooted: bool, length: float) -> None:
    """Write rows of tiles of the lower triangle, and mirror each while it is in the cache."""
    if length == 0:
        return
    for tile in range(start, stop):
        for i in range(tile * products.TILE, min((tile + 1) * products.TILE, len(S))):
            _scale(0, i + 1, S[i], rooted, length)
        products.mirror_tiles(tile, tile + 1, S)


def _normalize_by_parts(row: Array, rooted: bool) -> None:
    sums: dict[int, float] = {}

    def part(start: int, stop: int) -> None:
        sums[start] = _sum_of_squares(start, stop, row, rooted)

    spread(part, len(row), grain=grain_of(1))
    length = _length(sum(sums[start] for start in sorted(sums)), row, rooted)
    spread(_scale, len(row), row, rooted, length, grain=grain_of(1))


@kernel
def _normalize_some(start: int, stop: int, rows: Array, rooted: bool) -> None:
    for i in range(start, stop):
        row = rows[i]
        length = _length(_sum_of_squares(0, len(row), row, rooted), row, rooted)
        _scale(0, len(row), row, rooted, length)


@kernel
def _sum_of_squares(start: int, stop: int, row: Array, rooted: bool) -> float:
    """The sum of squares of the values to write; the square of a root is the number itself. Slices
    are used because Numba can only vectorise over an index that it knows to be non-negative."""
    part = row[start:stop]
    total = 0.0
    for i in range(len(part)):
        value = np.float64(part[i])
        total += abs(value) if rooted else value * value
    return total


@kernel
def _length(total: float, row: Array, rooted: bool) -> float:
    """The root of the sum. A row that is out of range is multiplied by a power of two first."""
    if _is_known(total, row, rooted):
        return np.sqrt(total)
    largest = 0.0
    for i in range(len(row)):
        value = np.float64(row[i])
        if not abs(value) <= largest:  # NaN as well
            largest = abs(value)
    if largest == 0:
        return 1.0
    c = 2.0 ** max(-1000, min(1000, -frexp(largest)[1]))
    for i in range(len(row)):
        row[i] = np.float64(row[i]) * c
    return np.sqrt(_sum_of_squares(0, len(row), row, rooted))


@kernel
def _scale(start: int, stop: int, row: Array, rooted: bool, length: float) -> None:
    """In place, always: a loop from one array to another is not vectorised if they are the same."""
    factor = row.dtype.type(1.0 / length)
    part = row[start:stop]
    for i in range(len(part)):
        value = part[i]
        if rooted:
            value = np.copysign(np.sqrt(abs(value)), value)
        part[i] = value * factor
