"""Square roots by matrix products."""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, uint32

from demopool.implementations.shared.grids import BLOCK, TILE, WARPS

from .tiles import (
    PADDED,
    STEP,
    multiply_tiles,
    place,
    quotient,
    remainder,
    set_to_zero,
    sum_of_block,
)


def product(P: Any, Q: Any, D: Any, C: Any, tiles: Any, of: tuple[Any, Any, Any]) -> None:
    """C = alpha P Q + beta D + delta I, ``tiles`` along a side.

    All are polynomials of one symmetric matrix, but to compute half of C, or P Q^T, would make the
    iteration unstable for singular matrices: it relies on the errors that break the symmetry.
    """
    rows = cuda.shared.array((TILE, PADDED), P.dtype)
    columns = cuda.shared.array((TILE, PADDED), P.dtype)
    sums = cuda.local.array((4, 4), P.dtype)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    side = uint32(tiles)
    image = quotient(cuda.blockIdx.x, side * side)
    number = remainder(cuda.blockIdx.x, side * side)
    first, second = uint32(quotient(number, side) * TILE), uint32(remainder(number, side) * TILE)
    d, last = uint32(P.shape[1]), uint32(P.shape[1] - 1)
    zero = P.dtype.type(0)
    set_to_zero(sums)
    start = uint32(0)
    while start < d:
        # Beyond the last row or column the last one is read again, as in ``product_of_rows``.
        k, row = uint32(start + tx), uint32(start + ty)
        for i in range(4):
            r, c = uint32(ty + 16 * i), uint32(tx + 16 * i)
            x = P[image, min(uint32(first + r), last), min(k, last)]
            y = Q[image, min(row, last), min(uint32(second + c), last)]
            rows[r, tx] = x if k < d else zero
            columns[c, ty] = y if row < d else zero
        cuda.syncthreads()
        multiply_tiles(rows, columns, sums, tx, ty)
        cuda.syncthreads()
        start = uint32(start + STEP)
    alpha, beta, delta = of
    for i in range(4):
        for j in range(4):
            p, q = uint32(first + ty + 16 * i), uint32(second + tx + 16 * j)
            if p < d and q < d:
                value = alpha * sums[i, j]
                if beta != zero:
                    value += beta * D[image, p, q]
                C[image, p, q] = value + delta if i == j and p == q else value


def moments(S: Any, traces: Any, squares: Any) -> None:
    """Trace and squared Frobenius norm of every matrix, in parts, (images, parts): one of each for
    every block."""
    parts = cuda.shared.array(WARPS, S.dtype)
    others = cuda.shared.array(WARPS, S.dtype)
    blocks = uint32(traces.shape[1])
    image, part = quotient(cuda.blockIdx.x, blocks), remainder(cuda.blockIdx.x, blocks)
    d = uint32(S.shape[1])
    trace, square = S.dtype.type(0), S.dtype.type(0)
    row = uint32(part)
    while row < d:
        j = uint32(cuda.threadIdx.x)
        while j < d:
            value = S[image, row, j]
            square += value * value
            if j == row:
                trace += value
            j = uint32(j + BLOCK)
        row = uint32(row + blocks)
    trace, square = sum_of_block(trace, parts), sum_of_block(square, others)
    if cuda.threadIdx.x == 0:
        traces[image, part] = trace
        squares[image, part] = square


def bounds(traces: Any, squares: Any, d: Any, eps: Any, out: Any) -> None:
    """An upper bound of the spectrum of A from the moments of A^2 (see shared/roots.py), the parts
    of which are added up in order."""
    image = uint32(cuda.blockIdx.x * BLOCK + cuda.threadIdx.x)
    if image < out.shape[0]:
        one = out.dtype.type(1)
        trace, square, part = out.dtype.type(0), out.dtype.type(0), uint32(0)
        while part < uint32(traces.shape[1]):
            trace += traces[image, part]
            square += squares[image, part]
            part = uint32(part + 1)
        mean, mean_square = trace / d, square / d
        variance = abs(mean_square - mean * mean) + out.dtype.type(32) * eps * mean_square
        bound = mean + math.sqrt((d - one) * variance)
        out[image] = math.sqrt(bound) if bound > 0 else one


def start(
    A: Any, square: Any, bound: Any, Y: Any, Z: Any, of: tuple[Any, Any], blocks: Any
) -> None:
    """Z = a I + (b / bound) A, Y = (a / bound) A + (b / bound^2) A^2; ``blocks`` share a matrix."""
    image, i = place(blocks)
    d = uint32(A.shape[1])
    a, b = of
    if i < uint32(d * d):
        p, q = quotient(i, d), remainder(i, d)
        value, limit = A[image, p, q], bound[image]
        Y[image, p, q] = (a * value + b / limit * square[image, p, q]) / limit
        other = b / limit * value
        Z[image, p, q] = other + a if p == q else other


def finish(Y: Any, bound: Any, exponents: Any, root_of_two: Any, out: Any, blocks: Any) -> None:
    """Times sqrt(bound 2^exponent), and symmetric again; ``blocks`` share a matrix."""
    image, i = place(blocks)
    d = uint32(Y.shape[1])
    if i < uint32(d * d):
        exponent = exponents[image]
        factor = math.ldexp(math.sqrt(bound[image]), exponent >> 1) * Y.dtype.type(0.5)
        if exponent & 1:
            factor *= root_of_two
        p, q = quotient(i, d), remainder(i, d)
        out[image, p, q] = (Y[image, p, q] + Y[image, q, p]) * factor
