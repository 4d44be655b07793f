"""Tensor Sketch: in the frequency domain, or from the second moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from demopool.contract import Hashes
from demopool.implementations.cupy_cuda import pool
from demopool.implementations.cupy_cuda.launch import Array, Launcher, i32, u32, u64
from demopool.implementations.shared import grids

# Sketches and their spectra exist for as many features at once as fit in here: enough to fill a
# GPU. CuPy keeps the plans of its transforms; all parts but the last have the same one.
SPECTRUM_BYTES = 128 * 2**20


class CountSketch(NamedTuple):
    """One hash: the bin and the sign of each value, and the values sorted by their bins."""

    bins: Array
    signs: Array
    order: Array
    starts: Array


class PreparedHashes(NamedTuple):
    """Both hashes on a device, and as they were given."""

    first: CountSketch
    second: CountSketch
    hashes: Hashes

    def to(self, on: Launcher) -> PreparedHashes:
        """Where the features are; themselves, if they are there."""
        return self if on.holds(self.first.bins) else prepare(self.hashes, on.asarray)


def prepare(hashes: Hashes, asarray: Callable[[Any], Array]) -> PreparedHashes:
    """Sort once, for many calls; ``asarray`` brings a NumPy array to the device."""

    def one(h: Any, s: Any) -> CountSketch:
        order = np.argsort(h, kind="stable").astype(np.int32)
        starts = np.searchsorted(h[order], np.arange(hashes.k + 1)).astype(np.int32)
        parts = (h.astype(np.int32), s.astype(np.int8), order, starts)
        return CountSketch(*(asarray(np.ascontiguousarray(part)) for part in parts))

    return PreparedHashes(one(hashes.h1, hashes.s1), one(hashes.h2, hashes.s2), hashes)


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
    first, second, hashes = prepared
    out = on.zeros((images, hashes.k), M)
    blocks, shape = grids.scatters(images, d, hashes.k, on.itemsize(M), on.most_shared)
    kernel = "scatter" if shape.shared else "scatter_far"
    arrays = (first.bins, second.bins, first.signs, second.signs, out)
    on.run(kernel, shape, M, *arrays, u32(d), u32(hashes.k), u32(blocks))
    return out


def _spectra(on: Launcher, X: Array, prepared: PreparedHashes, a: Array | None) -> Iterator[Array]:
    """Spectra of the (weighted) sketches, ``(images, rows, k // 2 + 1)``, some rows at a time."""
    images, n, _ = X.shape
    if not images:
        return
    # Two sketches and two spectra, each about k numbers per feature.
    bytes_of_row = 4 * prepared.hashes.k * on.itemsize(X) * images
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
    images, n, d = X.shape
    X = on.contiguous(X)
    weights = X if a is None else on.contiguous(a)
    out = on.empty((images, n, k), X)
    blocks, shape = grids.sketches(images * n, k)
    sizes = (u64(images * n), u32(d), u32(k), u32(blocks), i32(a is not None))
    on.run("count_sketch", shape, X, weights, by.starts, by.order, by.signs, out, *sizes)
    return out


def _as(on: Launcher, found: Array, X: Array) -> Array:
    """In the dtype of the features: NumPy's transforms may have widened it."""
    return on.xp.astype(found, X.dtype, copy=False)
