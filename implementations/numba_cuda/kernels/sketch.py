"""Tensor Sketch of second moments: out[(h1[i] + h2[j]) mod k] += s1[i] s2[j] M[i, j].

Row by row, no two threads add to one bin: within a row bins differ where those of the second hash
do, and a thread adds up all values of such a bin. So no atomics are needed, and the order of all
additions is fixed. Values come sorted by their bins: those of ``filled[u]`` are number ``runs[u]``
to ``runs[u + 1] - 1``.

Several blocks share an image; each has rows of M and a sketch of its own in ``out``, (images,
blocks, k), and ``added`` adds them up.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, uint32

from demopool.implementations.shared.grids import BLOCK

from .tiles import place, quotient, remainder


@cuda.jit(device=True, inline="always")
def shifted(first: Any, second: Any, k: Any) -> Any:
    """The sum of two bins, modulo k."""
    found = uint32(uint32(first) + uint32(second))
    return found if found < k else uint32(found - k)


def scatter(
    M: Any, h1: Any, s1: Any, s2: Any, places: Any, filled: Any, runs: Any, out: Any
) -> None:
    """In shared memory: k bins, and two rows of M. A row is read as it is and sorted on its way to
    one of the two, while others still read the other; value j is number ``places[j]``."""
    memory = cuda.shared.array(0, M.dtype)
    t, blocks = uint32(cuda.threadIdx.x), uint32(out.shape[1])
    image, part = quotient(cuda.blockIdx.x, blocks), remainder(cuda.blockIdx.x, blocks)
    d, k = uint32(M.shape[1]), uint32(out.shape[2])
    i = t
    while i < k:
        memory[i] = M.dtype.type(0)
        i = uint32(i + BLOCK)
    values, others = k, uint32(k + d)
    row = uint32(part)
    while row < d:
        j = t
        while j < d:
            value = M[image, row, j]
            memory[uint32(values + uint32(places[j]))] = value if s1[row] == s2[j] else -value
            j = uint32(j + BLOCK)
        cuda.syncthreads()
        u = t
        while u < filled.shape[0]:
            total = M.dtype.type(0)
            i, stop = uint32(runs[u]), uint32(runs[uint32(u + 1)])
            while i < stop:
                total += memory[uint32(values + i)]
                i = uint32(i + 1)
            memory[shifted(filled[u], h1[row], k)] += total
            u = uint32(u + BLOCK)
        values, others = others, values
        row = uint32(row + blocks)
    cuda.syncthreads()
    i = t
    while i < k:
        out[image, part, i] = memory[i]
        i = uint32(i + BLOCK)


def scatter_far(
    M: Any, h1: Any, s1: Any, s2: Any, order: Any, filled: Any, runs: Any, out: Any
) -> None:
    """The same where that does not fit into shared memory: straight to the block's own sketch.
    Value number i is ``order[i]``."""
    t, blocks = uint32(cuda.threadIdx.x), uint32(out.shape[1])
    image, part = quotient(cuda.blockIdx.x, blocks), remainder(cuda.blockIdx.x, blocks)
    d, k = uint32(M.shape[1]), uint32(out.shape[2])
    i = t
    while i < k:
        out[image, part, i] = M.dtype.type(0)
        i = uint32(i + BLOCK)
    row = uint32(part)
    while row < d:
        cuda.syncthreads()
        u = t
        while u < filled.shape[0]:
            total = M.dtype.type(0)
            i, stop = uint32(runs[u]), uint32(runs[uint32(u + 1)])
            while i < stop:
                j = uint32(order[i])
                value = M[image, row, j]
                total += value if s1[row] == s2[j] else -value
                i = uint32(i + 1)
            out[image, part, shifted(filled[u], h1[row], k)] += total
            u = uint32(u + BLOCK)
        row = uint32(row + blocks)


def added(parts: Any, out: Any, blocks: Any) -> None:
    """The sum of the sketches of every image, in order; ``blocks`` share an image."""
    image, j = place(blocks)
    if j < uint32(out.shape[1]):
        total, part = out.dtype.type(0), uint32(0)
        while part < uint32(parts.shape[1]):
            total += parts[image, part, j]
            part = uint32(part + 1)
        out[image, j] = total
