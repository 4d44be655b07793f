"""Weighted pooling and the final normalisation on NumPy arrays."""

from __future__ import annotations

from functools import lru_cache
from math import prod, sqrt
from typing import Any

import numpy as np

from demopool.implementations.shared import blas
from demopool.implementations.shared.blas import Array
from demopool.implementations.shared.scaling import near_one

from . import stacks

# The normalisation processes blocks that stay in the cache.
_CACHE_BYTES = 2**18


def direct(X: Array, a: Array | None, *, order: int, norm: str = "none") -> Array:
    """``X^T diag(a) X`` as a symmetric product of ``sqrt(a) X``; ``a^T X`` for order 1.

    With a ``norm`` every matrix is normalised from its lower triangle, while it is in the cache.
    """
    n, d = X.shape[-2:]
    dtype = blas.working_dtype(X)
    pooled = np.empty((*X.shape[:-2], *(d,) * order), dtype=dtype)
    if order == 2 and stacks.are_small(n, d):
        given = None if a is None else a.reshape(-1, n)
        stacks.moments(X.reshape(-1, n, d), given, pooled.reshape(-1, d, d))
        return normalize(pooled, axes=2, kind=norm, overwrite=True)
    for index, image in blas.images(X):
        weights = None if a is None else a[index]
        if order == 1:
            pooled[index] = blas.weighted_sum(image, weights)
        else:
            blas.weighted_outer(image, weights, pooled[index])
            _finish(pooled[index], norm)
    return pooled


def _finish(S: Array, norm: str) -> None:
    """A symmetric matrix from its lower triangle, in place."""
    rooted = norm == "signed-sqrt-l2"
    if norm != "none" and _normalize_triangle(S, rooted):
        return
    blas.mirror(S)
    if norm != "none":
        _normalize_flat(S.reshape(-1), rooted)


def normalize(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
    """Signed square root and l2 norm over the last ``axes`` axes: one pass reads, one writes.

    The norm of the roots is the root of the sum of magnitudes, so it is known before any is taken.
    """
    dtype = blas.working_dtype(v)
    in_place = overwrite and v.flags.c_contiguous and v.flags.writeable and v.dtype == dtype
    result = v if in_place else np.array(v, dtype=dtype, order="C")
    rooted = kind == "signed-sqrt-l2"
    size = prod(v.shape[v.ndim - axes :])
    if kind == "none":
        return result
    rows = result.reshape(-1, size)
    if 2 * size * result.itemsize <= _CACHE_BYTES:
        for part in blas.row_chunks(len(rows), size * rows.itemsize, _CACHE_BYTES):
            _normalize_rows(rows[part], rooted)
        return result
    for row in rows:
        _normalize_flat(row, rooted)
    return result


def _normalize_triangle(S: Array, rooted: bool) -> bool:
    """Write both triangles of a symmetric matrix from the lower one, in bands of rows.

    Returns False, and writes nothing of use, where that does not pay off or leaves the range.
    """
    size = len(S)
    if size <= blas.STRIP:
        return False
    bands = list(blas.row_chunks(size, 1, blas.STRIP))
    memory = np.empty(blas.STRIP * size, S.dtype)
    total = 0.0
    for rows in bands:
        corner, left = S[rows, rows], S[rows, : rows.start]
        blas.mirror(corner)
        total += _sum_of_squares(corner, rooted, memory) + 2 * _sum_of_squares(left, rooted, memory)
    length = _length(total, S, rooted)
    if length is None:
        return False
    for rows in bands:
        band = S[rows, : rows.stop]
        scaled = _scaled(band, rooted, length, memory)
        band[...] = scaled
        S[: rows.start, rows] = scaled[:, : rows.start].T
    return True


def _normalize_rows(rows: Array, rooted: bool) -> None:
    """Each row by itself, all of them in the cache."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        memory = (np.abs if rooted else np.square)(rows)
        totals = np.add.reduce(memory, axis=-1, keepdims=True)
    least, most = _limits(rows.shape[1], rows.dtype, rooted)
    if len(rows) == 1:  # where two calls of NumPy are a tenth of the work
        low = high = totals.item()
    else:
        low, high = np.minimum.reduce(totals, axis=None), np.maximum.reduce(totals, axis=None)
    if low > least and high < most:
        lengths = np.sqrt(totals)
        if rooted:
            np.sqrt(memory, out=memory)
            memory /= lengths
            np.copysign(memory, rows, out=rows)
        else:
            rows /= lengths
    elif len(rows) == 1:
        _normalize_flat(rows[0], rooted)
    else:
        for b in range(len(rows)):
            _normalize_rows(rows[b : b + 1], rooted)


def _normalize_flat(flat: Array, rooted: bool) -> None:
    blocks = list(blas.row_chunks(flat.size, flat.itemsize, _CACHE_BYTES))
    memory = np.empty_like(flat[blocks[0]])
    total = sum(_sum_of_squares(flat[block], rooted, memory) for block in blocks)
    length = _length(total, flat, rooted)
    if length is None:
        # Roots are in range, and BLAS has a norm that is safe from overflow and underflow, if only
        # the norm itself is a number with all its digits.
        if rooted:
            for block in blocks:
                flat[block] = _scaled(flat[block], True, 1.0, memory)
        flat *= flat.dtype.type(near_one(max(float(flat.max()), -float(flat.min())), flat.dtype))
        length, rooted = blas.norm(flat), False
    if length != 0:
        for block in blocks:
            flat[block] = _scaled(flat[block], rooted, length, memory)


def _sum_of_squares(part: Array, rooted: bool, memory: Array) -> float:
    """Of the values to write; the square of a root is the magnitude itself. NumPy sums contiguous
    numbers in pairs, whose error does not grow with their number."""
    terms = memory[: part.size].reshape(part.shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return float((np.abs if rooted else np.square)(part, out=terms).sum())


def _length(total: float, values: Array, rooted: bool) -> float | None:
    """The root of a sum of squares; None if some of them left the range of the dtype."""
    least, most = _limits(values.size, values.dtype, rooted)
    return sqrt(total) if least < total < most else None


@lru_cache(maxsize=64)
def _limits(size: int, dtype: Any, rooted: bool) -> tuple[float, float]:
    """Between which a sum of so many squares is known not to have left the range."""
    limits = np.finfo(dtype)
    return 0.0 if rooted else size * float(limits.tiny) / float(limits.eps), float(limits.max)


def _scaled(part: Array, rooted: bool, length: float, memory: Array) -> Array:
    """The values to write, in ``memory``."""
    scaled = memory[: part.size].reshape(part.shape)
    if not rooted:
        return np.divide(part, length, out=scaled)
    np.abs(part, out=scaled)
    np.sqrt(scaled, out=scaled)
    scaled /= length
    return np.copysign(scaled, part, out=scaled)
