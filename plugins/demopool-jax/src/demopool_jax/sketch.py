"""Tensor Sketch: in the frequency domain, or from the second moment."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from demopool.contract import Hashes

from .kernels import pool

# Numbers in the spectra of the features that are transformed together.
_SPECTRUM_SIZE = 2**20


class Bins(NamedTuple):
    """Hashes as arrays. Their length k is a Python number, which a tracer must not replace."""

    h1: Array
    h2: Array
    s1: Array
    s2: Array


class Prepared(NamedTuple):
    bins: Bins
    k: int


def prepare(hashes: Hashes) -> Prepared:
    """In 32 bits, which JAX has without its switch; signs are exact in any product."""
    h1, h2 = (jnp.asarray(h, np.int32) for h in (hashes.h1, hashes.h2))
    s1, s2 = (jnp.asarray(s, np.float32) for s in (hashes.s1, hashes.s2))
    return Prepared(Bins(h1, h2, s1, s2), hashes.k)


def sketch_fft(X: Array, bins: Bins, *, k: int) -> Array:
    """The sketch of every feature."""
    return jnp.fft.irfft(_spectra(X, bins, k), k).astype(X.dtype)


def pool_fft(X: Array, bins: Bins, a: Array | None, *, k: int) -> Array:
    """Spectra summed over some features at a time: one inverse transform per image."""
    *batch, n, d = X.shape
    rows = min(n, max(1, _SPECTRUM_SIZE // k))
    blocks = -(-n // rows)
    if a is None:
        a = jnp.ones(X.shape[:-1], X.dtype)
    # Rows of zeros fill the last block, and add nothing.
    padding = [(0, 0)] * len(batch) + [(0, blocks * rows - n)]
    weights = jnp.pad(a, padding).reshape(*batch, blocks, rows)
    features = jnp.pad(X, [*padding, (0, 0)]).reshape(*batch, blocks, rows, d)

    def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        some, of_them = block
        return total + jnp.sum(_spectra(some, bins, k) * of_them[..., None], axis=-2), None

    parts = jnp.moveaxis(features, -3, 0), jnp.moveaxis(weights, -2, 0)
    nothing = jnp.zeros((*batch, k // 2 + 1), jnp.result_type(X.dtype, jnp.complex64))
    total, _ = lax.scan(add, nothing, parts)
    return jnp.fft.irfft(total, k).astype(X.dtype)


def pool_moment(X: Array, bins: Bins, a: Array | None, *, k: int) -> Array:
    """Tensor Sketch is linear in ``x x^T``: pool first, then scatter the moment once."""
    return of_matrices(pool(X, a, order=2), bins, k)


def of_matrices(M: Array, bins: Bins, k: int) -> Array:
    """Sketches of symmetric matrices, ``(..., d, d) -> (..., k)``."""
    where, signs = _entries(bins, k, M.dtype)
    values = (M * signs).reshape(*M.shape[:-2], where.size)
    return jnp.zeros((*M.shape[:-2], k), M.dtype).at[..., where.reshape(-1)].add(values)


def spread(v: Array, bins: Bins, k: int) -> Array:
    """The transpose of :func:`of_matrices`, which is its derivative."""
    where, signs = _entries(bins, k, v.dtype)
    return v[..., where] * signs


def _entries(bins: Bins, k: int, dtype: object) -> tuple[Array, Array]:
    """Bin and sign of each entry (i, j) of a matrix."""
    signs = bins.s1[:, None] * bins.s2
    return (bins.h1[:, None] + bins.h2) % k, signs.astype(dtype)


def _spectra(X: Array, bins: Bins, k: int) -> Array:
    def transformed(h: Array, s: Array) -> Array:
        counts = jnp.zeros((*X.shape[:-1], k), X.dtype).at[..., h].add(X * s.astype(X.dtype))
        return jnp.fft.rfft(counts)

    return transformed(bins.h1, bins.s1) * transformed(bins.h2, bins.s2)
