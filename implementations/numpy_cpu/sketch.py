"""Tensor Sketch on NumPy arrays: in the frequency domain, or from the second moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import fft

from demopool.contract import Hashes, usable_cores
from demopool.implementations.shared import blas, moment
from demopool.implementations.shared.blas import Array

# Maximum memory for the sketches and spectra of the features processed at once.
_SPECTRUM_BYTES = 4 * 2**20


class _CountSketch(NamedTuple):
    """One hash, sorted by bin, so that each bin is a sum over consecutive rows."""

    order: Array
    signs: Array
    starts: Array
    bins: Array


class PreparedHashes(NamedTuple):
    """Both hashes sorted for the ``fft`` route, and unchanged for the ``moment`` route."""

    first: _CountSketch
    second: _CountSketch
    hashes: Hashes


def prepare(hashes: Hashes) -> PreparedHashes:
    """Sort the hashes once, for many calls."""
    return PreparedHashes(
        _sorted_by_bin(hashes.h1, hashes.s1), _sorted_by_bin(hashes.h2, hashes.s2), hashes
    )


def sketch_fft(X: Array, prepared: PreparedHashes) -> Array:
    """The sketch of every feature: two forward transforms, one inverse transform."""
    k = prepared.hashes.k
    sketches = np.empty((*X.shape[:-1], k), dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        for rows, spectrum in _spectra(image, prepared, None):
            sketches[index][rows] = fft.irfft(spectrum, k, axis=0, workers=_workers()).T
    return sketches


def pool_fft(X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Sum in the frequency domain: one inverse transform per image, not per feature."""
    k = prepared.hashes.k
    pooled = np.empty((*X.shape[:-2], k), dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        total = np.zeros(k // 2 + 1, dtype=np.result_type(pooled, np.complex64))
        for _, spectrum in _spectra(image, prepared, None if a is None else a[index]):
            total += spectrum.sum(axis=1)
        pooled[index] = fft.irfft(total, k)
    return pooled


def pool_moment(X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Tensor Sketch is linear in ``x x^T``: pool first, then scatter the d x d moment once."""
    k = prepared.hashes.k
    pooled = np.empty((*X.shape[:-2], k), dtype=blas.working_dtype(X))
    for index, image in blas.images(X):
        bins = np.zeros(2 * k)
        for rows, part in _moment_rows(image, None if a is None else a[index]):
            _scatter(part, rows, prepared.hashes, bins)
        pooled[index] = bins[:k] + bins[k:]
    return pooled


def sketch_of_matrices(M: Array, prepared: PreparedHashes) -> Array:
    """Tensor Sketch of symmetric matrices, ``(..., d, d) -> (..., k)``, by scattering them."""
    k = prepared.hashes.k
    sketches = np.empty((*M.shape[:-2], k), dtype=M.dtype)
    for index in np.ndindex(M.shape[:-2]):
        bins = np.zeros(2 * k)
        _scatter(M[index], slice(0, M.shape[-1]), prepared.hashes, bins)
        sketches[index] = bins[:k] + bins[k:]
    return sketches


def _spectra(
    image: Array, prepared: PreparedHashes, weights: Array | None
) -> Iterator[tuple[slice, Array]]:
    """Spectra of the (weighted) sketches, ``(k // 2 + 1, rows)``, in chunks of rows.

    Features are columns here: a bin is then a sum of contiguous rows, and the transforms run over
    the first axis, many at a time.
    """
    n, k = len(image), prepared.hashes.k
    workers = _workers()
    # Two sketches and two spectra, each about k numbers per feature.
    dtype = np.dtype(blas.working_dtype(image))
    chunks = list(blas.row_chunks(n, 4 * k * dtype.itemsize, _SPECTRUM_BYTES))
    widest = max((chunk.stop - chunk.start for chunk in chunks), default=0)
    # Every chunk fills the same bins, so the zeros between them stay zero.
    buffers = np.zeros((2, k, widest), dtype)
    for rows in chunks:
        columns = blas.working(image[rows]).T
        width = columns.shape[1]
        scale = None if weights is None else weights[rows]
        first, second = (buffer[:, :width] for buffer in buffers)
        _count_sketch(columns, prepared.first, scale, out=first)
        _count_sketch(columns, prepared.second, None, out=second)
        spectrum = fft.rfft(first, axis=0, workers=workers)
        spectrum *= fft.rfft(second, axis=0, workers=workers)
        yield rows, spectrum


def _count_sketch(columns: Array, by: _CountSketch, scale: Array | None, out: Array) -> None:
    signed = columns[by.order]
    signed *= by.signs[:, np.newaxis].astype(columns.dtype)
    if scale is not None:
        signed *= scale
    out[by.bins] = np.add.reduceat(signed, by.starts, axis=0)


def _sorted_by_bin(h: Array, s: Array) -> _CountSketch:
    order = np.argsort(h, kind="stable")
    bins, starts = np.unique(h[order], return_index=True)
    return _CountSketch(order, s[order], starts, bins)


def _moment_rows(image: Array, weights: Array | None) -> Iterator[tuple[slice, Array]]:
    """Rows of ``X^T diag(a) X``: all at once, or as many as the budget allows."""
    if not moment.is_whole(image):
        return moment.rows(image, weights)
    d = image.shape[1]
    whole = blas.weighted_outer(image, weights, np.empty((d, d), blas.working_dtype(image)))
    return iter([(slice(0, d), blas.mirror(whole))])


def _scatter(M: Array, rows: slice, hashes: Hashes, bins: Array) -> None:
    """Add ``s1[i] s2[j] M[i, j]`` to bin ``h1[i] + h2[j]`` of 2k bins; the caller folds them."""
    d = M.shape[1]
    s2 = hashes.s2.astype(M.dtype)
    # An index and a double-precision copy of the values, 8 bytes each.
    for part in blas.row_chunks(len(M), 16 * d, moment.MOMENT_BYTES // 2):
        here = slice(rows.start + part.start, rows.start + part.stop)
        index = np.add.outer(hashes.h1[here], hashes.h2)
        signs = np.multiply.outer(hashes.s1[here], s2)
        signs *= M[part]
        bins += np.bincount(index.ravel(), signs.ravel(), minlength=bins.size)


def _workers() -> int:
    """The number of parallel transforms: as many as BLAS may use threads."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return usable_cores()
