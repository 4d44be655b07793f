"""What kernels share: places of threads, sums of warps, and tiles of products.

Products work on tiles of 64 x 64 results by 16 x 16 threads, 4 x 4 results each in registers; the
factors go through shared memory 16 columns at a time, in rows padded against bank conflicts. Thread
(tx, ty) has rows ty, ty + 16, ... and columns tx, tx + 16, ... of a tile, so that neighbouring
threads read and write neighbouring words. Of the symmetric products (Gram, outer) only tiles on
and below the diagonal are computed, and written twice.

Indices are unsigned: to signed ones Numba adds code that makes negative ones count from the end.
A block finds its image and its tile in blockIdx.x alone, which may be large, unlike y and z.
"""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, float32, uint32, uint64
from numba.cuda.extending import intrinsic

from demopool.implementations.shared.grids import BLOCK, TILE, WARPS

HALF = 32
STEP = 16
PADDED = STEP + 1
WIDE = TILE + 1
ALL_LANES = 0xFFFFFFFF


@cuda.jit(device=True, inline="always")
def position() -> Any:
    """Of a thread in a flat array, which may have more than 2^32 elements."""
    return uint64(cuda.blockIdx.x) * uint64(BLOCK) + uint64(cuda.threadIdx.x)


def _instruction(name: str) -> Any:
    """Of two uint32, as one instruction: to a division Numba would add what to do for a zero."""

    def typed(_: Any, a: Any, b: Any) -> Any:
        def built(_: Any, builder: Any, __: Any, args: Any) -> Any:
            return getattr(builder, name)(*args)

        return uint32(uint32, uint32), built

    return intrinsic(typed)


_udiv, _urem = _instruction("udiv"), _instruction("urem")


@cuda.jit(device=True, inline="always")
def quotient(a: Any, b: Any) -> Any:
    """In 32 unsigned bits: of two integers Numba would make a signed division of 64."""
    return _udiv(uint32(a), uint32(b))


@cuda.jit(device=True, inline="always")
def remainder(a: Any, b: Any) -> Any:
    return _urem(uint32(a), uint32(b))


@cuda.jit(device=True, inline="always")
def place(blocks: Any) -> Any:
    """The image of a block, and the position in it of a thread, if ``blocks`` share an image."""
    j = uint32(remainder(cuda.blockIdx.x, blocks) * BLOCK + cuda.threadIdx.x)
    return quotient(cuda.blockIdx.x, blocks), j


@cuda.jit(device=True, inline="always")
def sum_of_half_warp(value: Any) -> Any:
    """Over the 16 threads of a tile's row."""
    for step in (8, 4, 2, 1):
        value += cuda.shfl_xor_sync(ALL_LANES, value, step)
    return value


@cuda.jit(device=True, inline="always")
def sum_of_warp(value: Any) -> Any:
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(ALL_LANES, value, step)
    return value


@cuda.jit(device=True, inline="always")
def largest_of_warp(value: Any) -> Any:
    for step in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, step))
    return value


@cuda.jit(device=True, inline="always")
def sum_of_block(value: Any, parts: Any) -> Any:
    """All threads get it; ``parts`` must not be written again before a barrier."""
    value = sum_of_warp(value)
    if uint32(cuda.threadIdx.x) & 31 == 0:
        parts[uint32(cuda.threadIdx.x) >> 5] = value
    cuda.syncthreads()
    value = parts[uint32(0)]
    for i in range(1, WARPS):
        value += parts[uint32(i)]
    return value


@cuda.jit(device=True, inline="always")
def largest_of_block(value: Any, parts: Any) -> Any:
    value = largest_of_warp(value)
    if uint32(cuda.threadIdx.x) & 31 == 0:
        parts[uint32(cuda.threadIdx.x) >> 5] = value
    cuda.syncthreads()
    value = parts[uint32(0)]
    for i in range(1, WARPS):
        value = max(value, parts[uint32(i)])
    return value


@cuda.jit(device=True, inline="always")
def triangle_row(tile: Any) -> Any:
    """The row of the tile with a number when those on and below the diagonal are counted in rows.

    The root is exact enough for 1024 rows of tiles; the loops mend the last unit.
    """
    row = uint32((math.sqrt(float32(uint32(8 * tile + 1))) - float32(1)) * float32(0.5))
    while uint32(row * (row + 1) // 2) > tile:
        row = uint32(row - 1)
    while uint32((row + 1) * (row + 2) // 2) <= tile:
        row = uint32(row + 1)
    return row


@cuda.jit(device=True, inline="always")
def tile_of_block(tiles: Any, parts: Any) -> Any:
    """Where the tile of a block is, of those on and below the diagonals of all images: its image,
    its first row and its first column; and which of the ``parts`` of it the block has."""
    block, part = quotient(cuda.blockIdx.x, parts), remainder(cuda.blockIdx.x, parts)
    number = remainder(block, tiles)
    row = triangle_row(number)
    column = uint32(number - row * (row + 1) // 2)
    return (quotient(block, tiles), uint32(row * TILE), uint32(column * TILE)), part


@cuda.jit(device=True, inline="always")
def set_to_zero(sums: Any) -> None:
    for i in range(4):
        for j in range(4):
            sums[i, j] = sums.dtype.type(0)


@cuda.jit(device=True, inline="always")
def multiply_tiles(rows: Any, columns: Any, sums: Any, tx: Any, ty: Any) -> None:
    """The products of STEP columns of two tiles, added to the results of a thread.

    They are added up on their own first: in one long sum of equal terms, as of an image of one
    colour, all rounding errors have one sign.
    """
    parts = cuda.local.array((4, 4), sums.dtype)
    for i in range(4):
        for j in range(4):
            parts[i, j] = sums.dtype.type(0)
    for k in range(STEP):
        for i in range(4):
            x = rows[uint32(ty + 16 * i), uint32(k)]
            for j in range(4):
                parts[i, j] += x * columns[uint32(tx + 16 * j), uint32(k)]
    for i in range(4):
        for j in range(4):
            sums[i, j] += parts[i, j]


@cuda.jit(device=True, inline="always")
def product_of_rows(
    P: Any, Q: Any, at: Any, start: Any, stop: Any, rows: Any, columns: Any, sums: Any
) -> None:
    """A tile of P Q^T, of the columns from ``start`` to ``stop``: rows of P and of Q from where the
    tile begins.

    Beyond the last row the last one is read again, without a branch: its products are not kept.
    Beyond the last column are zeros.
    """
    image, first, second = at
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    last, final = uint32(P.shape[1] - 1), uint32(Q.shape[1] - 1)
    zero = P.dtype.type(0)
    while start < stop:
        k = uint32(start + tx)
        there = min(k, uint32(stop - 1))
        for i in range(4):
            r = uint32(ty + 16 * i)
            x = P[image, min(uint32(first + r), last), there]
            y = Q[image, min(uint32(second + r), final), there]
            rows[r, tx] = x if k < stop else zero
            columns[r, tx] = y if k < stop else zero
        cuda.syncthreads()
        multiply_tiles(rows, columns, sums, tx, ty)
        cuda.syncthreads()
        start = uint32(start + STEP)
