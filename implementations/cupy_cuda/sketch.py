"""Tensor Sketch: in the frequency domain, or from the second moment."""

from __future__ import annotations

from collections.abc import Iterator

from demopool.implementations.shared import grids
from demopool.implementations.shared.prepared import CountSketch, PreparedHashes

from . import launches, pool
from .launcher import Array, Launcher, itemsize

# Sketches and their spectra exist for as many features at once as fit in here: enough to fill a
# GPU. CuPy keeps the plans of its transforms; all parts but the last have the same one.
SPECTRUM_BYTES = 128 * 2**20


def sketch_fft(on: Launcher, X: Array, prepared: PreparedHashes) -> Array:
    """Every feature's own sketch: two transforms forward, one back."""
    images, n, d = X.shape
    k = prepared.hashes.k
    rows = on.reshape(X, (1, images * n, d))
    parts = [on.xp.fft.irfft(part, n=k) for part in _spectra(on, rows, prepared, None)]
    found = on.xp.concat(parts, axis=-2) if parts else on.empty((1, 0, k), X)
    return on.reshape(_as(on, found, X), (images, n, k))


def pool_fft(on: Launcher, X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Sum in the frequency domain: one inverse transform per image, not per feature."""
    k = prepared.hashes.k
    total: Array = None
    for spectrum in _spectra(on, X, prepared, a):
        part = on.xp.sum(spectrum, axis=-2)
        total = part if total is None else total + part
    if total is None:
        return on.zeros((X.shape[0], k), X)
    return _as(on, on.xp.fft.irfft(total, n=k), X)


def pool_moment(on: Launcher, X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Tensor Sketch is linear in ``x x^T``: pool first, then scatter the d x d moment once."""
    return of_matrices(on, pool.second_moment(on, X, a), prepared)


def of_matrices(on: Launcher, M: Array, prepared: PreparedHashes) -> Array:
    """Tensor Sketch of matrices, ``(images, d, d) -> (images, k)``, by scattering them."""
    images, d, _ = M.shape
    k = prepared.hashes.k
    blocks, _ = grids.sorted_scatters(images, d, k, itemsize(M), on.max_shared)
    parts = on.empty((images, blocks, k), M)
    on.run(launches.scatter(M, prepared, parts, on.max_shared))
    if blocks == 1:
        return parts[:, 0, :]
    out = on.empty((images, k), M)
    on.run(launches.added(parts, out))
    return out


def _spectra(on: Launcher, X: Array, prepared: PreparedHashes, a: Array | None) -> Iterator[Array]:
    """Spectra of the (weighted) sketches, ``(images, rows, k // 2 + 1)``, some rows at a time."""
    images, n, _ = X.shape
    if not images:
        return
    # Two sketches and two spectra, each about k numbers per feature.
    bytes_of_row = 4 * prepared.hashes.k * itemsize(X) * images
    step = max(1, SPECTRUM_BYTES // bytes_of_row)
    for start in range(0, n, step):
        stop = min(start + step, n)
        rows = X[:, start:stop, :]
        weights = None if a is None else a[:, start:stop]
        first = on.xp.fft.rfft(_count_sketch(on, rows, prepared.first, weights, prepared.hashes.k))
        second = on.xp.fft.rfft(_count_sketch(on, rows, prepared.second, None, prepared.hashes.k))
        yield first * second


def _count_sketch(on: Launcher, X: Array, by: CountSketch, a: Array | None, k: int) -> Array:
    """Part of the rows of every image is a copy: a kernel wants them in one piece."""
    images, n, _ = X.shape
    X, out = on.contiguous(X), on.empty((images, n, k), X)
    on.run(launches.count_sketch(X, None if a is None else on.contiguous(a), by, out))
    return out


def _as(on: Launcher, found: Array, X: Array) -> Array:
    """In the dtype of the features: NumPy's transforms may have widened it."""
    return on.xp.astype(found, X.dtype, copy=False)
