"""Symmetric products: of one image by BLAS, of many images at once by a compiled kernel.

BLAS splits every product over all threads, which then wait for each other; with one image per
thread none waits. The kernel reaches about 85 % of the speed of OpenBLAS on one core, so it pays
off if there are at least as many images as threads. For fewer images, and where rows are too short
to fill its registers, BLAS is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp, ldexp

import numpy as np

from demopool.implementations.shared import blas
from demopool.implementations.shared.blas import Array

from .compiled import grain_of, kernel, spread, threads

# Rows of X per band of the triangle: they stay in the second-level cache.
BAND = 48

# BLAS is faster for large results, which its threads share well, and for short sums, where the
# kernel's overhead per result is too large. To call it takes longer than a small result.
_LARGE, _SMALL = 1024, 256
_SHORT_SUM = 128

TILE = 64
"""Tile size when a matrix is transposed or mirrored."""


def image_by_image(images: int, size: int, length: int) -> bool:
    """Whether each thread should compute whole products; ``length`` is that of the sums."""
    is_worth_it = size <= _SMALL or (size <= _LARGE and length >= _SHORT_SUM)
    return images >= threads() and is_worth_it


@kernel
def gram_band(X: Array, start: int, stop: int, K: Array) -> None:
    """Rows start..stop of ``X X^T`` up to the diagonal, three rows by four at a time; a few
    entries above it may be overwritten."""
    whole = start + (stop - start) // 3 * 3
    for j in range(0, whole, 4):
        first = start if j < start else start + (j - start) // 3 * 3
        if j + 4 <= len(X):
            for i in range(first, whole, 3):
                _three_by_four(X, i, j, K)
        else:
            for i in range(first, whole):
                for column in range(j, i + 1):
                    K[i, column] = _dot(X[i], X[column])
    for i in range(whole, stop):
        for j in range(i + 1):
            K[i, j] = _dot(X[i], X[j])


@kernel
def _three_by_four(X: Array, i: int, j: int, K: Array) -> None:
    a0, a1, a2 = X[i], X[i + 1], X[i + 2]
    b0, b1, b2, b3 = X[j], X[j + 1], X[j + 2], X[j + 3]
    zero = X.dtype.type(0)
    s00, s01, s02, s03 = zero, zero, zero, zero
    s10, s11, s12, s13 = zero, zero, zero, zero
    s20, s21, s22, s23 = zero, zero, zero, zero
    for k in range(X.shape[1]):
        x0, x1, x2 = a0[k], a1[k], a2[k]
        y0, y1, y2, y3 = b0[k], b1[k], b2[k], b3[k]
        s00 += x0 * y0
        s01 += x0 * y1
        s02 += x0 * y2
        s03 += x0 * y3
        s10 += x1 * y0
        s11 += x1 * y1
        s12 += x1 * y2
        s13 += x1 * y3
        s20 += x2 * y0
        s21 += x2 * y1
        s22 += x2 * y2
        s23 += x2 * y3
    K[i, j], K[i, j + 1], K[i, j + 2], K[i, j + 3] = s00, s01, s02, s03
    K[i + 1, j], K[i + 1, j + 1], K[i + 1, j + 2], K[i + 1, j + 3] = s10, s11, s12, s13
    K[i + 2, j], K[i + 2, j + 1], K[i + 2, j + 2], K[i + 2, j + 3] = s20, s21, s22, s23


@kernel
def _dot(x: Array, y: Array) -> float:
    total = x.dtype.type(0)
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@kernel
def power_of_two_near_one(row: Array) -> float:
    """The power of two that brings the norm of a row to between 1/2 and 1."""
    total = 0.0
    for k in range(len(row)):
        total += np.float64(row[k]) * np.float64(row[k])
    size = np.sqrt(total)
    if not 0.0 < size < np.inf:
        return 1.0
    _, exponent = frexp(size)
    return ldexp(1.0, min(max(-exponent, -120), 120))


@kernel
def weighted_rows(start: int, stop: int, X: Array, a: Array, out: Array) -> None:
    """``sqrt(a) X``, for the symmetric product."""
    for i in range(start, stop):
        root = np.sqrt(a[i])
        for j in range(X.shape[1]):
            out[i, j] = root * X[i, j]


@kernel
def _weighted_columns(X: Array, a: Array, out: Array) -> None:
    """``X sqrt(a)``, where the columns of X are features."""
    roots = np.sqrt(a)
    for i in range(len(X)):
        for j in range(len(roots)):
            out[i, j] = X[i, j] * roots[j]


@kernel
def weighted_transpose(X: Array, a: Array, out: Array) -> None:
    """``(sqrt(a) X)^T``: the outer products of X's rows are the Gram matrix of its columns."""
    n, d = X.shape
    for top in range(0, n, TILE):
        for left in range(0, d, TILE):
            for i in range(top, min(top + TILE, n)):
                root, row = np.sqrt(a[i]), X[i, left : min(left + TILE, d)]
                for j in range(len(row)):
                    out[left + j, i] = root * row[j]


@kernel
def mirror_tiles(start: int, stop: int, S: Array) -> None:
    """Copy rows of tiles of the lower triangle onto the columns of tiles above.

    A buffer is used because elements of a column of S lie a row length apart, which for d = 512 or
    2048 maps them all to the same few cache lines. Slices are used because Numba can only vectorise
    over an index that it knows to be non-negative.
    """
    size = len(S)
    buffer = np.empty((TILE, TILE), S.dtype)
    for tile in range(start, stop):
        top, bottom = tile * TILE, min((tile + 1) * TILE, size)
        for left in range(0, bottom, TILE):
            right = min(left + TILE, size)
            for i in range(bottom - top):
                row = S[top + i, left:right]
                for j in range(len(row)):
                    buffer[j, i] = row[j]
            for j in range(right - left):
                first = j + 1 if left == top else 0
                row, column = S[left + j, top + first : bottom], buffer[j, first:]
                for i in range(len(row)):
                    row[i] = column[i]


def mirror(S: Array) -> Array:
    """Copy the lower triangle of a matrix onto the upper, in place."""
    spread(mirror_tiles, -(-len(S) // TILE), S, grain=8, triangle=True)
    return S


@kernel
def _moments(
    start: int, stop: int, X: Array, a: Array, by_channel: bool, triangle: bool, out: Array
) -> None:
    """``X^T diag(a) X`` of images start..stop; with ``triangle``, only the lower one."""
    d, n = out.shape[1], a.shape[1]
    columns = np.empty((d, n), X.dtype)
    for b in range(start, stop):
        if by_channel:
            _weighted_columns(X[b], a[b], columns)
        else:
            weighted_transpose(X[b], a[b], columns)
        for top in range(0, d, BAND):
            gram_band(columns, top, min(top + BAND, d), out[b])
        if not triangle:
            mirror_tiles(0, (d + TILE - 1) // TILE, out[b])


def moments(X: Array, a: Array | None, out: Array, *, triangle: bool) -> Array:
    """``X^T diag(a) X`` of images ``(images, n, d)``; with ``triangle``, only the lower triangle of
    each."""
    images, n, d = X.shape
    # The kernel's copy of an image must stay small.
    is_small = n * d * out.itemsize <= 2 * blas.CHUNK_BYTES
    if image_by_image(images, d, n) and is_small:
        weights = np.ones((images, n), out.dtype) if a is None else a
        for group, some, by_channel in in_groups(X):
            arguments = (some, weights[group], by_channel, triangle, out[group])
            spread(_moments, len(some), *arguments, grain=grain_of(n * d * d))
        return out
    for b, (_, image) in enumerate(blas.images(X)):
        blas.weighted_outer(image, None if a is None else a[b], out[b])
        if not triangle:
            mirror(out[b])
    return out


def in_groups(X: Array) -> Iterator[tuple[slice, Array, bool]]:
    """Images as compiled kernels read them: ``(images, n, d)``, or ``(images, d, n)`` and True.

    All at once where they are in one of these orders. Others, and those in half precision, are
    copied in small groups.
    """
    images, n, d = X.shape
    dtype = np.dtype(blas.working_dtype(X))
    by_channel = X.swapaxes(1, 2)
    if X.dtype == dtype and X.flags.c_contiguous:
        yield slice(0, images), X, False
    elif X.dtype == dtype and by_channel.flags.c_contiguous:
        yield slice(0, images), by_channel, True
    else:
        together = max(threads(), blas.CHUNK_BYTES // (n * d * dtype.itemsize))
        for group in blas.row_chunks(images, 1, together):
            yield group, np.ascontiguousarray(X[group], dtype), False
