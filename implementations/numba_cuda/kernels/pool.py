"""Weighted pooling and the final normalisation."""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, uint32

from demopool.implementations.shared.grids import BLOCK, TILE, WARP, WARPS

from .tiles import (
    HALF,
    PADDED,
    STEP,
    WIDE,
    largest_of_block,
    multiply_tiles,
    place,
    quotient,
    remainder,
    store_twice,
    sum_of_block,
    sum_of_warp,
    triangle_row,
)


def outer(X: Any, a: Any, A: Any, tiles: Any) -> None:
    """A = X^T diag(a) X; ``a`` has no columns for weights of 1."""
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    tile = cuda.shared.array((HALF, WIDE), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    image = quotient(cuda.blockIdx.x, tiles)
    number = remainder(cuda.blockIdx.x, tiles)
    row = triangle_row(number)
    first = uint32(row * TILE)
    second = uint32((number - row * (row + 1) // 2) * TILE)
    n, d = uint32(X.shape[1]), uint32(X.shape[2])
    weighted = a.shape[1] > 0
    zero = X.dtype.type(0)
    for i in range(4):
        for j in range(4):
            sums[i, j] = zero
    start = uint32(0)
    while start < n:
        # Neighbouring threads read neighbouring columns of one feature.
        feature = uint32(start + ty)
        weight = zero
        if feature < n:
            weight = a[image, feature] if weighted else X.dtype.type(1)
        for i in range(4):
            r = uint32(tx + 16 * i)
            p, q = uint32(first + r), uint32(second + r)
            rows[r, ty] = weight * X[image, feature, p] if feature < n and p < d else zero
            columns[r, ty] = X[image, feature, q] if feature < n and q < d else zero
        cuda.syncthreads()
        multiply_tiles(rows, columns, sums, tx, ty)
        cuda.syncthreads()
        start = uint32(start + STEP)
    store_twice(A, image, first, second, sums, tile, a[:, :0])


def weighted_sum(X: Any, a: Any, out: Any, chunks: Any) -> None:
    """sum_i a_i x_i: a block for 32 columns, 8 threads for each of them."""
    parts = cuda.shared.array((8, 33), X.dtype)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    image = quotient(cuda.blockIdx.x, chunks)
    column = uint32(remainder(cuda.blockIdx.x, chunks) * WARP + tx)
    n, d = uint32(X.shape[1]), uint32(X.shape[2])
    weighted = a.shape[1] > 0
    total = X.dtype.type(0)
    if column < d:
        i = ty
        while i < n:
            weight = a[image, i] if weighted else X.dtype.type(1)
            total += weight * X[image, i, column]
            i = uint32(i + 8)
    parts[ty, tx] = total
    cuda.syncthreads()
    if ty == 0 and column < d:
        for other in range(1, 8):
            total += parts[uint32(other), tx]
        out[image, column] = total


def power_sums(V: Any, magnitude: Any, sums: Any, chunks: Any, power: Any) -> None:
    """Sum of (|v| / max |v|)^power, 1 or 2, of every image; ``sums`` starts at 0."""
    image = quotient(cuda.blockIdx.x, chunks)
    j = uint32(remainder(cuda.blockIdx.x, chunks) * BLOCK + cuda.threadIdx.x)
    total = V.dtype.type(0)
    scale = magnitude[image]
    if scale > 0:
        while j < V.shape[1]:
            share = abs(V[image, j]) / scale
            total += share if power == 1 else share * share
            j = uint32(j + chunks * BLOCK)
    total = sum_of_warp(total)
    if uint32(cuda.threadIdx.x) & 31 == 0:
        cuda.atomic.add(sums, image, total)


@cuda.jit(device=True, inline="always")
def over_norm(value: Any, scale: Any, total: Any, power: Any) -> Any:
    """sign(v) sqrt(|v|), or v, over its norm."""
    share = abs(value) / scale
    return math.copysign(
        math.sqrt(share / total) if power == 1 else share / math.sqrt(total), value
    )


def normalized(V: Any, magnitude: Any, sums: Any, out: Any, power: Any, blocks: Any) -> None:
    """``blocks`` share an image; zeros stay zeros."""
    image, j = place(blocks)
    if j < uint32(V.shape[1]):
        value, scale = V[image, j], magnitude[image]
        out[image, j] = over_norm(value, scale, sums[image], power) if scale > 0 else value


def normalized_at_once(V: Any, out: Any, power: Any) -> None:
    """All of it, for descriptors that fit into shared memory: a block reads each of them once."""
    values = cuda.shared.array(0, V.dtype)
    parts = cuda.shared.array(WARPS, V.dtype)
    image, t, count = uint32(cuda.blockIdx.x), uint32(cuda.threadIdx.x), uint32(V.shape[1])
    scale = V.dtype.type(0)
    j = t
    while j < count:
        value = V[image, j]
        values[j] = value
        scale = max(scale, abs(value))
        j = uint32(j + BLOCK)
    scale = largest_of_block(scale, parts)
    cuda.syncthreads()
    total = V.dtype.type(0)
    j = t
    while j < count and scale > 0:
        share = abs(values[j]) / scale
        total += share if power == 1 else share * share
        j = uint32(j + BLOCK)
    total = sum_of_block(total, parts)
    j = t
    while j < count:
        out[image, j] = over_norm(values[j], scale, total, power) if scale > 0 else values[j]
        j = uint32(j + BLOCK)
