"""Small kernels for Numba, run from the PTX it makes of them.

Indices are unsigned: to signed ones Numba adds code that makes negative ones count from the end.
"""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, float32, uint32

TILE = 16
PADDED = TILE + 1


@cuda.jit
def squared_gram(X: Any, K: Any) -> None:
    rows = cuda.shared.array((TILE, PADDED), float32)
    columns = cuda.shared.array((TILE, PADDED), float32)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    image = uint32(cuda.blockIdx.z)
    i = uint32(cuda.blockIdx.y * TILE + ty)
    j = uint32(cuda.blockIdx.x * TILE + tx)
    other = uint32(cuda.blockIdx.x * TILE + ty)
    n, d = uint32(X.shape[1]), uint32(X.shape[2])
    total = float32(0)
    start = uint32(0)
    while start < d:
        k = uint32(start + tx)
        rows[ty, tx] = X[image, i, k] if i < n and k < d else float32(0)
        columns[ty, tx] = X[image, other, k] if other < n and k < d else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += rows[ty, uint32(k)] * columns[tx, uint32(k)]
        cuda.syncthreads()
        start = uint32(start + TILE)
    if i < n and j < n:
        K[image, i, j] = total * total


@cuda.jit
def sinkhorn(K: Any, weights: Any, target: Any, iterations: Any) -> None:
    now = cuda.shared.array(64, float32)
    image, t = uint32(cuda.blockIdx.x), uint32(cuda.threadIdx.x)
    n = uint32(K.shape[1])
    if t < n:
        now[t] = float32(1)
    cuda.syncthreads()
    for _ in range(iterations):
        following = float32(1)
        if t < n:
            total, j = float32(0), uint32(0)
            while j < n:
                total += K[image, t, j] * now[j]
                j = uint32(j + 1)
            following = now[t] / math.sqrt(now[t] * total / target)
        cuda.syncthreads()
        if t < n:
            now[t] = following
        cuda.syncthreads()
    if t < n:
        weights[image, t] = now[t]


@cuda.jit
def row_sums(x: Any, sums: Any) -> None:
    lane = uint32(cuda.threadIdx.x & 31)
    row = uint32((cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) >> 5)
    if row >= x.shape[0]:
        return
    total = float32(0)
    j = lane
    while j < x.shape[1]:
        total += x[row, j]
        j = uint32(j + 32)
    step = 16
    while step > 0:
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)
        step >>= 1
    if lane == 0:
        sums[row] = total


@cuda.jit
def histogram(values: Any, counts: Any) -> None:
    i = uint32(cuda.grid(1))
    if i < values.shape[0]:
        cuda.atomic.add(counts, uint32(values[i]), 1)
