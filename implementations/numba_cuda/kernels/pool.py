"""Pooling of first order, and the final normalisation."""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, uint32

from demopool.implementations.shared.grids import BLOCK, PIECE, WARP, WARPS

from .tiles import (
    largest_of_block,
    quotient,
    remainder,
    sum_of_block,
    sum_of_warp,
)


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


def power_sums(V: Any, magnitude: Any, sums: Any, power: Any) -> None:
    """Sums of (|v| / max |v|)^power, 1 or 2, over the chunks of every image, (images, chunks): one
    number for each block."""
    parts = cuda.shared.array(WARPS, V.dtype)
    chunks = uint32(sums.shape[1])
    image, chunk = quotient(cuda.blockIdx.x, chunks), remainder(cuda.blockIdx.x, chunks)
    j = uint32(chunk * BLOCK + cuda.threadIdx.x)
    total = V.dtype.type(0)
    scale = magnitude[image]
    if scale > 0:
        while j < V.shape[1]:
            share = abs(V[image, j]) / scale
            total += share if power == 1 else share * share
            j = uint32(j + chunks * BLOCK)
    total = sum_of_block(total, parts)
    if cuda.threadIdx.x == 0:
        sums[image, chunk] = total


@cuda.jit(device=True, inline="always")
def over_norm(value: Any, scale: Any, total: Any, power: Any) -> Any:
    """sign(v) sqrt(|v|), or v, over its norm."""
    share = abs(value) / scale
    return math.copysign(
        math.sqrt(share / total) if power == 1 else share / math.sqrt(total), value
    )


def normalized(V: Any, magnitude: Any, sums: Any, out: Any, power: Any, blocks: Any) -> None:
    """``blocks`` share an image, PIECE values each; zeros stay zeros. Every warp adds up the sums
    of the chunks, in the same order."""
    image = quotient(cuda.blockIdx.x, blocks)
    j = uint32(remainder(cuda.blockIdx.x, blocks) * PIECE + cuda.threadIdx.x)
    stop = min(uint32(j + PIECE), uint32(V.shape[1]))
    scale, total = magnitude[image], V.dtype.type(0)
    i = uint32(cuda.threadIdx.x & 31)
    while i < sums.shape[1]:
        total += sums[image, i]
        i = uint32(i + WARP)
    total = sum_of_warp(total)
    while j < stop:
        value = V[image, j]
        out[image, j] = over_norm(value, scale, total, power) if scale > 0 else value
        j = uint32(j + BLOCK)


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
