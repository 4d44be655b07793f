"""Count sketches of a second moment."""

from __future__ import annotations

from typing import Any

from numba import cuda, uint32

from demopool.implementations.shared.grids import BLOCK

from .tiles import quotient, remainder


def scatter(M: Any, h1: Any, h2: Any, s1: Any, s2: Any, out: Any, blocks: Any) -> None:
    """out[(h1[i] + h2[j]) mod k] += s1[i] s2[j] M[i, j]: in shared memory, then added to ``out``.

    ``blocks`` share an image, each has rows of M; ``out`` starts at 0.
    """
    histogram = cuda.shared.array(0, M.dtype)
    t = uint32(cuda.threadIdx.x)
    image = quotient(cuda.blockIdx.x, blocks)
    d, k = uint32(M.shape[1]), uint32(out.shape[1])
    i = t
    while i < k:
        histogram[i] = M.dtype.type(0)
        i = uint32(i + BLOCK)
    cuda.syncthreads()
    row = remainder(cuda.blockIdx.x, blocks)
    while row < d:
        start, sign = uint32(h1[row]), s1[row]
        j = t
        while j < d:
            target = remainder(start + uint32(h2[j]), k)
            cuda.atomic.add(histogram, target, M[image, row, j] * (sign * s2[j]))
            j = uint32(j + BLOCK)
        row = uint32(row + blocks)
    cuda.syncthreads()
    i = t
    while i < k:
        if histogram[i] != 0:
            cuda.atomic.add(out, (image, i), histogram[i])
        i = uint32(i + BLOCK)


def scatter_far(M: Any, h1: Any, h2: Any, s1: Any, s2: Any, out: Any, blocks: Any) -> None:
    """The same for sketches that do not fit into shared memory: straight to ``out``."""
    image = quotient(cuda.blockIdx.x, blocks)
    d, k = uint32(M.shape[1]), uint32(out.shape[1])
    row = remainder(cuda.blockIdx.x, blocks)
    while row < d:
        start, sign = uint32(h1[row]), s1[row]
        j = uint32(cuda.threadIdx.x)
        while j < d:
            target = remainder(start + uint32(h2[j]), k)
            cuda.atomic.add(out, (image, target), M[image, row, j] * (sign * s2[j]))
            j = uint32(j + BLOCK)
        row = uint32(row + blocks)
