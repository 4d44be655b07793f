"""Tensor Sketch in compiled loops: in the frequency domain, or from the second moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import fft

from demopool.contract import Hashes
from demopool.implementations.shared import blas, moment
from demopool.implementations.shared.blas import Array

from .compiled import kernel, spread, threads

# Maximum memory for the sketches and spectra of the features processed at once.
_SPECTRUM_BYTES = 4 * 2**20

# Minimum number of elements per thread: scattering takes about 2 ns per element.
_GRAIN = 30_000


class PreparedHashes(NamedTuple):
    """Bins as 64-bit integers, signs as float32, which is exact in any product; and as they were
    given."""

    h1: Array
    h2: Array
    s1: Array
    s2: Array
    hashes: Hashes


def prepare(hashes: Hashes) -> PreparedHashes:
    h1, h2 = (np.ascontiguousarray(h, np.int64) for h in (hashes.h1, hashes.h2))
    s1, s2 = (np.ascontiguousarray(s, np.float32) for s in (hashes.s1, hashes.s2))
    return PreparedHashes(h1, h2, s1, s2, hashes)


def sketch_fft(X: Array, prepared: PreparedHashes) -> Array:
    """The sketch of every feature: two forward transforms, one inverse transform."""
    k = prepared.hashes.k
    sketches = np.empty((*X.shape[:-1], k), dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        for rows in _chunks(image, k):
            first, second = _spectra(blas.block(image, rows), prepared)
            first *= second
            sketches[index][rows] = fft.irfft(first, k, workers=threads())
    return sketches


def pool_fft(X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Sum in the frequency domain: one inverse transform per image, not per feature."""
    k = prepared.hashes.k
    pooled = np.empty((*X.shape[:-2], k), dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        weights = np.ones(len(image), pooled.dtype) if a is None else np.ascontiguousarray(a[index])
        total = np.zeros(k // 2 + 1, dtype=np.result_type(pooled, np.complex64))
        for rows in _chunks(image, k):
            first, second = _spectra(blas.block(image, rows), prepared)
            spread(_add_products, len(total), first, second, weights[rows], total, grain=1000)
        pooled[index] = fft.irfft(total, k)
    return pooled


def pool_moment(X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Tensor Sketch is linear in ``x x^T``: pool first, then scatter the d x d moment once."""
    k = prepared.hashes.k
    pooled = np.empty((*X.shape[:-2], k), dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        weights = None if a is None else np.ascontiguousarray(a[index])
        d = image.shape[1]
        if moment.is_whole(image):
            M = blas.weighted_outer(image, weights, np.empty((d, d), pooled.dtype))
            pooled[index] = _scatter_triangle(M, prepared)
        else:
            pooled[index] = sum(
                _scatter_rows(part, rows.start, prepared)
                for rows, part in moment.rows(image, weights)
            )
    return pooled


def sketch_of_matrices(M: Array, prepared: PreparedHashes) -> Array:
    """Tensor Sketch of one symmetric matrix, ``(d, d) -> (k,)``, by scattering it."""
    return _scatter_triangle(M, prepared)


def _chunks(image: Array, k: int) -> list[slice]:
    """Chunks of features: each needs two sketches and two spectra of about k numbers."""
    itemsize = np.dtype(blas.working_dtype(image)).itemsize
    return list(blas.row_chunks(len(image), 4 * k * itemsize, _SPECTRUM_BYTES))


def _spectra(rows: Array, prepared: PreparedHashes) -> tuple[Array, Array]:
    k, grain = prepared.hashes.k, 1 + _GRAIN // (rows.shape[1] + prepared.hashes.k)
    found = []
    for h, s in ((prepared.h1, prepared.s1), (prepared.h2, prepared.s2)):
        sketches = np.empty((len(rows), k), rows.dtype)
        spread(_count_sketches, len(rows), rows, h, s, sketches, grain=grain)
        found.append(fft.rfft(sketches, workers=threads()))
    return found[0], found[1]


@kernel
def _count_sketches(start: int, stop: int, X: Array, h: Array, s: Array, out: Array) -> None:
    for i in range(start, stop):
        row, sketch = X[i], out[i]
        sketch[:] = 0
        for j in range(len(row)):
            sketch[h[j]] += s[j] * row[j]


@kernel
def _add_products(
    start: int, stop: int, first: Array, second: Array, a: Array, total: Array
) -> None:
    """Add the weighted products of spectra to ``total``, for frequencies start..stop."""
    for i in range(len(first)):
        for f in range(start, stop):
            total[f] += a[i] * (first[i, f] * second[i, f])


def _scatter_triangle(M: Array, prepared: PreparedHashes) -> Array:
    """The sketch of a symmetric matrix, of which only the lower triangle is read."""
    return _in_parts(_scatter_lower, M, 0, prepared, triangle=True)


def _scatter_rows(M: Array, top: int, prepared: PreparedHashes) -> Array:
    """The sketch of rows of a matrix that start at row ``top``."""
    return _in_parts(_scatter_all, M, top, prepared)


def _in_parts(
    scatter: Callable[..., None],
    M: Array,
    top: int,
    prepared: PreparedHashes,
    *,
    triangle: bool = False,
) -> Array:
    """Scatter with separate bins per thread, which are added in a fixed order."""
    h1, h2, s1, s2, hashes = prepared
    sums: dict[int, Array] = {}

    def part(start: int, stop: int) -> None:
        sums[start] = np.zeros(2 * hashes.k)
        scatter(start, stop, M, h1[top:], h2, s1[top:], s2, sums[start])

    spread(part, len(M), grain=1 + _GRAIN // M.shape[1], triangle=triangle)
    bins = np.add.reduce([sums[start] for start in sorted(sums)])
    folded: Array = bins[: hashes.k] + bins[hashes.k :]
    return folded


@kernel
def _scatter_lower(
    start: int,
    stop: int,
    M: Array,
    h1: Array,
    h2: Array,
    s1: Array,
    s2: Array,
    bins: Array,
) -> None:
    """Add ``s1[i] s2[j] M[i, j]`` to bin ``h1[i] + h2[j]`` of 2k bins, in float64 because a bin may
    be the sum of very many values. Entry (i, j) below the diagonal also counts as (j, i)."""
    for i in range(start, stop):
        row = M[i]
        here1, here2, sign1, sign2 = h1[i], h2[i], s1[i], s2[i]
        for j in range(i):
            bins[here1 + h2[j]] += sign1 * s2[j] * row[j]
            bins[h1[j] + here2] += s1[j] * sign2 * row[j]
        bins[here1 + here2] += sign1 * sign2 * row[i]


@kernel
def _scatter_all(
    start: int,
    stop: int,
    M: Array,
    h1: Array,
    h2: Array,
    s1: Array,
    s2: Array,
    bins: Array,
) -> None:
    """Scatter whole rows start..stop in the same way."""
    for i in range(start, stop):
        row, here, sign = M[i], h1[i], s1[i]
        for j in range(M.shape[1]):
            bins[here + h2[j]] += sign * s2[j] * row[j]
