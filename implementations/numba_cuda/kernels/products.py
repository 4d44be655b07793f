"""Symmetric products in tiles, X X^T and X^T diag(a) X; in parts where a GPU has too few tiles.

Sums of the rows of K come as n numbers for each column of tiles, which the first iteration adds up
in order: no two blocks add to the same number.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, uint32

from demopool.implementations.shared.grids import THREADS, TILE

from .tiles import (
    HALF,
    PADDED,
    STEP,
    WIDE,
    multiply_tiles,
    product_of_rows,
    quotient,
    set_to_zero,
    sum_of_half_warp,
    tile_of_block,
)

SQUARE, RECTIFY, KEEP = 0, 1, 2
"""What becomes of a product."""


@cuda.jit(device=True, inline="always")
def product_of_columns(
    X: Any, a: Any, at: Any, start: Any, stop: Any, rows: Any, columns: Any, sums: Any
) -> None:
    """A tile of X^T diag(a) X, of the features from ``start`` to ``stop``; beyond them it is as in
    ``product_of_rows``."""
    image, first, second = at
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    last = uint32(X.shape[2] - 1)
    weighted = a.shape[1] > 0
    zero = X.dtype.type(0)
    while start < stop:
        # Neighbouring threads read neighbouring columns of one feature.
        feature = uint32(start + ty)
        there = min(feature, uint32(stop - 1))
        weight = a[image, there] if weighted else X.dtype.type(1)
        for i in range(4):
            r = uint32(tx + 16 * i)
            x = X[image, there, min(uint32(first + r), last)]
            y = X[image, there, min(uint32(second + r), last)]
            rows[r, ty] = weight * x if feature < stop else zero
            columns[r, ty] = y if feature < stop else zero
        cuda.syncthreads()
        multiply_tiles(rows, columns, sums, tx, ty)
        cuda.syncthreads()
        start = uint32(start + STEP)


@cuda.jit(device=True, inline="always")
def make_kernel(sums: Any, kind: Any) -> None:
    """Products to entries of K."""
    zero = sums.dtype.type(0)
    for i in range(4):
        for j in range(4):
            value = sums[i, j]
            if kind == SQUARE:
                sums[i, j] = value * value
            elif kind == RECTIFY and value < zero:
                sums[i, j] = zero


@cuda.jit(device=True, inline="always")
def store_twice(C: Any, at: Any, sums: Any, tile: Any, row_sums: Any, wanted: Any) -> None:
    """A tile of a symmetric C, and its mirror image through shared memory; sums of rows if wanted.

    Of a tile on the diagonal the part above it is the mirror image of the part below, like any
    other: rounding must not make C less symmetric than it is.

    A thread adds up what it writes of a row, and 16 threads have a row. On the diagonal they have
    the same row of the mirror image.
    """
    own = cuda.local.array(4, sums.dtype)
    mirrored = cuda.local.array(4, sums.dtype)
    image, first, second = at
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    n = uint32(C.shape[1])
    for i in range(4):
        own[i] = mirrored[i] = sums.dtype.type(0)
        row = uint32(first + ty + 16 * i)
        for j in range(4):
            column = uint32(second + tx + 16 * j)
            if row < n and column <= row:
                C[image, row, column] = sums[i, j]
                own[i] += sums[i, j]
    # The mirror image in two halves: 64 rows of float64 would be too much shared memory.
    for half in range(2):
        for i in range(2):
            for j in range(4):
                tile[uint32(ty + 16 * i), uint32(tx + 16 * j)] = sums[2 * half + i, j]
        cuda.syncthreads()
        for i in range(4):
            row = uint32(second + ty + 16 * i)
            for j in range(2):
                column = uint32(first + 32 * half + tx + 16 * j)
                value = tile[uint32(tx + 16 * j), uint32(ty + 16 * i)]
                if row < column and column < n:
                    C[image, row, column] = value
                    mirrored[i] += value
        cuda.syncthreads()
    if wanted:
        for i in range(4):
            r = uint32(ty + 16 * i)
            total, other = sum_of_half_warp(own[i]), sum_of_half_warp(mirrored[i])
            if first == second:
                total += other
            elif tx == 0:
                row_sums[image, quotient(first, TILE), uint32(second + r)] = other
            if tx == 0 and first + r < n:
                row_sums[image, quotient(second, TILE), uint32(first + r)] = total


def gram(X: Any, K: Any, row_sums: Any, tiles: Any, kind: Any) -> None:
    """K = (X X^T)^2, or max(X X^T, 0), and its row sums; ``tiles`` in a triangle."""
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    tile = cuda.shared.array((HALF, WIDE), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    at, _ = tile_of_block(tiles, 1)
    set_to_zero(sums)
    product_of_rows(X, X, at, uint32(0), uint32(X.shape[2]), rows, columns, sums)
    make_kernel(sums, kind)
    store_twice(K, at, sums, tile, row_sums, True)


def outer(X: Any, a: Any, A: Any, tiles: Any) -> None:
    """A = X^T diag(a) X; ``a`` has no columns for weights of 1."""
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    tile = cuda.shared.array((HALF, WIDE), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    at, _ = tile_of_block(tiles, 1)
    set_to_zero(sums)
    product_of_columns(X, a, at, uint32(0), uint32(X.shape[1]), rows, columns, sums)
    store_twice(A, at, sums, tile, A, False)


@cuda.jit(device=True, inline="always")
def put_part(parts: Any, part: Any, sums: Any) -> None:
    """The results of a thread, where the same thread finds them."""
    own = parts[quotient(cuda.blockIdx.x, parts.shape[1]), part]
    t = uint32(cuda.threadIdx.y * THREADS + cuda.threadIdx.x)
    for i in range(4):
        for j in range(4):
            own[uint32((4 * i + j) * THREADS * THREADS + t)] = sums[i, j]


def gram_parts(X: Any, parts: Any, tiles: Any, length: Any) -> None:
    """Several blocks share a tile, each has ``length`` columns of X; ``parts`` is (tiles of all
    images, blocks that share one, values of a tile)."""
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    at, part = tile_of_block(tiles, parts.shape[1])
    start = uint32(part * length)
    stop = min(uint32(start + length), uint32(X.shape[2]))
    set_to_zero(sums)
    product_of_rows(X, X, at, start, stop, rows, columns, sums)
    put_part(parts, part, sums)


def outer_parts(X: Any, a: Any, parts: Any, tiles: Any, length: Any) -> None:
    """The same of X^T diag(a) X, with ``length`` features each."""
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    at, part = tile_of_block(tiles, parts.shape[1])
    start = uint32(part * length)
    stop = min(uint32(start + length), uint32(X.shape[1]))
    set_to_zero(sums)
    product_of_columns(X, a, at, start, stop, rows, columns, sums)
    put_part(parts, part, sums)


def from_parts(parts: Any, C: Any, row_sums: Any, tiles: Any, kind: Any) -> None:
    """What ``gram`` or, with KEEP, ``outer`` would have found, from the parts of each tile."""
    tile = cuda.shared.array((HALF, WIDE), C.dtype)
    sums = cuda.local.array((4, 4), C.dtype)
    at, _ = tile_of_block(tiles, 1)
    set_to_zero(sums)
    t = uint32(cuda.threadIdx.y * THREADS + cuda.threadIdx.x)
    part = uint32(0)
    while part < uint32(parts.shape[1]):
        own = parts[uint32(cuda.blockIdx.x), part]
        for i in range(4):
            for j in range(4):
                sums[i, j] += own[uint32((4 * i + j) * THREADS * THREADS + t)]
        part = uint32(part + 1)
    make_kernel(sums, kind)
    store_twice(C, at, sums, tile, row_sums, kind != KEEP)
