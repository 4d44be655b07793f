"""Tensor Sketch from the second moment on a GPU. Numba has no FFT: that route is not here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from demopool.contract import Hashes
from demopool.implementations.numba_cuda import kernels, pool
from demopool.implementations.numba_cuda.arrays import Array
from demopool.implementations.numba_cuda.launch import Launcher
from demopool.implementations.shared import grids


class PreparedHashes(NamedTuple):
    """Bins and signs on the device; ``hashes`` as they were given."""

    h1: Array
    h2: Array
    s1: Array
    s2: Array
    hashes: Hashes


def pool_moment(on: Launcher, X: Array, prepared: PreparedHashes, a: Array | None) -> Array:
    """Pool ``M = X^T diag(a) X``, then scatter its entries."""
    return of_matrices(on, pool.direct(on, X, a, order=2), prepared)


def of_matrices(on: Launcher, M: Array, prepared: PreparedHashes) -> Array:
    images, d, _ = M.shape
    k = prepared.hashes.k
    out = on.full((images, k), M.dtype)
    blocks, shape = grids.scatters(images, d, k, M.dtype.itemsize)
    kernel = kernels.scatter if shape.shared else kernels.scatter_far
    hashes = (prepared.h1, prepared.h2, prepared.s1, prepared.s2)
    on.run(kernel, shape, M, *hashes, out, np.int32(blocks))
    return out
