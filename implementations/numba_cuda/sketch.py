"""Tensor Sketch from the second moment on a GPU. Numba has no FFT: that route is not here."""

from __future__ import annotations

from demopool.implementations.shared.prepared import PreparedHashes

from . import arrays, launches, pool
from .launcher import Array, Launcher


def pool_moment(on: Launcher, X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Pool ``M = X^T diag(a) X``, then scatter its entries."""
    return of_matrices(on, pool.direct(on, X, a, order=2), prepared)


def of_matrices(on: Launcher, M: Array, prepared: PreparedHashes) -> Array:
    out = arrays.zeros(on, (M.shape[0], prepared.hashes.k), M.dtype)
    on.run(launches.scatter(M, prepared, out))
    return out
