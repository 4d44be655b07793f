"""Tensor Sketch from the second moment on a GPU. Numba has no FFT: that route is not here."""

from __future__ import annotations

from demopool.implementations.shared import grids
from demopool.implementations.shared.prepared import PreparedHashes

from . import launches, pool
from .launcher import Array, Launcher


def pool_moment(on: Launcher, X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Pool ``M = X^T diag(a) X``, then scatter its entries."""
    return of_matrices(on, pool.direct(on, X, a, order=2), prepared)


def of_matrices(on: Launcher, M: Array, prepared: PreparedHashes) -> Array:
    """A sketch for each of the blocks that share a matrix, and their sum."""
    images, d, _ = M.shape
    k = prepared.hashes.k
    blocks, _ = grids.sorted_scatters(images, d, k, M.dtype.itemsize, grids.SHARED_BYTES)
    parts = on.empty((images, blocks, k), M.dtype)
    on.run(launches.scatter(M, prepared, parts))
    if blocks == 1:
        return on.reshape(parts, (images, k))
    out = on.empty((images, k), M.dtype)
    on.run(launches.added(parts, out))
    return out
