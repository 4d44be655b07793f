"""Gamma-democratic weights: iterations on K, or without it."""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, int32, uint32, uint64

from demopool.implementations.shared.grids import BLOCK, TILE, WARP, WARPS

from .tiles import (
    PADDED,
    place,
    position,
    product_of_rows,
    quotient,
    remainder,
    set_to_zero,
    sum_of_block,
    sum_of_half_warp,
    sum_of_warp,
)


def first_step(
    row_sums: Any, targets: Any, a: Any, gamma: Any, tau: Any, iterations: Any, blocks: Any
) -> None:
    """r = (K 1)^gamma, and the first iteration, which starts from a = 1; ``blocks`` share an image.

    The sums of rows come in parts, (images, parts, n), which are added up in order.
    """
    image, i = place(blocks)
    if i < uint32(a.shape[1]):
        total, part = a.dtype.type(0), uint32(0)
        while part < uint32(row_sums.shape[1]):
            total += row_sums[image, part, i]
            part = uint32(part + 1)
        target, weight = a.dtype.type(0), a.dtype.type(0)
        if not total <= 0:  # NaN too, which makes the weight NaN
            target = math.pow(total, gamma)
            weight = a.dtype.type(1)
            if iterations > 0:
                weight = math.pow(total / target, -tau)
        targets[image, i] = target
        a[image, i] = weight


def step(K: Any, targets: Any, a: Any, out: Any, tau: Any, blocks: Any) -> None:
    """One iteration: a warp for each row of K, which is read once; ``blocks`` share an image."""
    image = quotient(cuda.blockIdx.x, blocks)
    row = uint32(remainder(cuda.blockIdx.x, blocks) * WARPS + (uint32(cuda.threadIdx.x) >> 5))
    lane = uint32(cuda.threadIdx.x & 31)
    n = uint32(K.shape[1])
    if row >= n:
        return  # a whole warp
    total = K.dtype.type(0)
    j = lane
    while j < n:
        total += K[image, row, j] * a[image, j]
        j = uint32(j + WARP)
    # All lanes have the sum, and do the same: the others would only wait for the power.
    total = sum_of_warp(total)
    weight = a[image, row]
    if weight != 0:
        weight = weight * math.pow(weight * total / targets[image, row], -tau)
    if lane == 0:
        out[image, row] = weight


def small_image(K: Any, targets: Any, a: Any, tau: Any, iterations: Any) -> None:
    """All iterations of an image whose K fits into shared memory, by one block; from the second."""
    memory = cuda.shared.array(0, K.dtype)
    image, t = uint32(cuda.blockIdx.x), uint32(cuda.threadIdx.x)
    n = uint32(K.shape[1])
    whole = uint32(n * n)
    i = t
    while i < whole:
        memory[i] = K[image, quotient(i, n), remainder(i, n)]
        i = uint32(i + BLOCK)
    i = t
    goal = uint32(whole + 2 * n)
    while i < n:
        memory[uint32(whole + i)] = a[image, i]
        memory[uint32(goal + i)] = targets[image, i]
        i = uint32(i + BLOCK)
    cuda.syncthreads()
    now, following = whole, uint32(whole + n)
    lane = uint32(t & 31)
    for _ in range(iterations - 1):
        row = uint32(t >> 5)
        while row < n:
            total = K.dtype.type(0)
            j = lane
            while j < n:
                total += memory[uint32(row * n + j)] * memory[uint32(now + j)]
                j = uint32(j + WARP)
            total = sum_of_warp(total)
            weight = memory[uint32(now + row)]
            if weight != 0:
                target = memory[uint32(goal + row)]
                weight = weight * math.pow(weight * total / target, -tau)
            if lane == 0:
                memory[uint32(following + row)] = weight
            row = uint32(row + WARPS)
        cuda.syncthreads()
        now, following = following, now
    i = t
    while i < n:
        a[image, i] = memory[uint32(now + i)]
        i = uint32(i + BLOCK)


def row_forms(X: Any, M: Any, forms: Any, row_tiles: Any) -> None:
    """x_i^T M x_i for every row of every image, M symmetric, and the same of M's diagonal.

    A tile of X M, times the same tile of X, summed over its columns: ``forms`` is (2, images, n,
    tiles along d), for ``exact_rows`` to add up.
    """
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    across = uint32(forms.shape[3])
    image = quotient(cuda.blockIdx.x, row_tiles * across)
    number = remainder(cuda.blockIdx.x, row_tiles * across)
    part = remainder(number, across)
    first, second = uint32(quotient(number, across) * TILE), uint32(part * TILE)
    n, d = uint32(X.shape[1]), uint32(X.shape[2])
    zero = X.dtype.type(0)
    set_to_zero(sums)
    product_of_rows(X, M, (image, first, second), uint32(0), d, rows, columns, sums)
    # Of the diagonal each column's value is read once, and kept where the last tile of X was.
    t = uint32(ty * 16 + tx)
    if t < TILE and second + t < d:
        rows[t, 0] = M[image, uint32(second + t), uint32(second + t)]
    cuda.syncthreads()
    for i in range(4):
        row = uint32(first + ty + 16 * i)
        total, bound = zero, zero
        for j in range(4):
            column = uint32(second + tx + 16 * j)
            if row < n and column < d:
                value = X[image, row, column]
                total += sums[i, j] * value
                bound += value * value * rows[uint32(tx + 16 * j), 0]
        total, bound = sum_of_half_warp(total), sum_of_half_warp(bound)
        if tx == 0 and row < n:
            forms[0, image, row, part] = total
            forms[1, image, row, part] = bound


def exact_rows(X: Any, v: Any, forms: Any, sums: Any, share: Any) -> None:
    """(K v)_i: x_i^T M x_i, or from the entries of K where that is below ``share`` of its bound,
    too small a difference of large numbers (``shared/cancellation.py`` says why).

    A block for each row, most leave at once. ``v`` has no columns for ones.
    """
    parts = cuda.shared.array(WARPS, X.dtype)
    n, d = uint32(X.shape[1]), uint32(X.shape[2])
    image, row = quotient(cuda.blockIdx.x, n), remainder(cuda.blockIdx.x, n)
    warp, lane = uint32(cuda.threadIdx.x) >> 5, uint32(cuda.threadIdx.x) & 31
    total, bound = X.dtype.type(0), X.dtype.type(0)
    part = uint32(lane)
    while part < forms.shape[3]:
        total += forms[0, image, row, part]
        bound += forms[1, image, row, part]
        part = uint32(part + WARP)
    total, bound = sum_of_warp(total), sum_of_warp(bound)
    if total >= share * bound:
        if cuda.threadIdx.x == 0:
            sums[image, row] = total
        return  # a whole block
    weighted = v.shape[1] > 0
    total = X.dtype.type(0)
    other = uint32(warp)
    while other < n:
        product = X.dtype.type(0)
        j = uint32(lane)
        while j < d:
            product += X[image, row, j] * X[image, other, j]
            j = uint32(j + WARP)
        product = sum_of_warp(product)
        # Lanes take turns: rounding errors of few equal terms do not add up. The square of a small
        # product may be 0 where its weight would have made it a large term.
        if lane == (other >> 3) & 31:
            total += product * (product * (v[image, other] if weighted else X.dtype.type(1)))
        other = uint32(other + WARPS)
    total = sum_of_block(total, parts)
    if cuda.threadIdx.x == 0:
        sums[image, row] = total


def update(sums: Any, targets: Any, a: Any, tau: Any) -> None:
    """a <- a / (a (K a) / r)^tau, from ``sums`` = K a; all arrays are flat."""
    i = position()
    if i < uint64(a.shape[0]):
        weight = a[i]
        if weight != 0:
            a[i] = weight * math.pow(weight * sums[i] / targets[i], -tau)


def restored(a: Any, exponents: Any, power: Any, rest: Any, blocks: Any) -> None:
    """The weights of features that were scaled by 2^-exponent: times 2^(-exponent power).

    ``power`` comes in two parts, and exponent times the first is exact: rounded, it would be off by
    many units in the last place of the result. Zero stays zero, whatever the factor.
    """
    image, i = place(blocks)
    if i < uint32(a.shape[1]):
        weight = a[image, i]
        if weight != 0:
            exponent = a.dtype.type(-exponents[image])
            whole = math.floor(exponent * power)
            part = exponent * power - a.dtype.type(whole)
            factor = math.exp2(part + exponent * rest)
            a[image, i] = math.ldexp(weight * factor, int32(whole))
