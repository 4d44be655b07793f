"""The kernels, for Numba's CUDA target: float32 or float64 by the arrays they are given.

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

THREADS = 16
TILE = 64
HALF = 32
STEP = 16
PADDED = STEP + 1
WIDE = TILE + 1
BLOCK = 256
WARP = 32
ALL_LANES = 0xFFFFFFFF

SQUARE, RECTIFY = 0, 1


# --- what kernels share ---


@cuda.jit(device=True, inline="always")
def _position() -> Any:
    """Of a thread in a flat array, which may have more than 2^32 elements."""
    return uint64(cuda.blockIdx.x) * uint64(BLOCK) + uint64(cuda.threadIdx.x)


@cuda.jit(device=True, inline="always")
def _quotient(a: Any, b: Any) -> Any:
    """In 32 unsigned bits: of two integers Numba would make a signed division of 64."""
    return uint32(uint32(a) // uint32(b))


@cuda.jit(device=True, inline="always")
def _remainder(a: Any, b: Any) -> Any:
    return uint32(uint32(a) % uint32(b))


@cuda.jit(device=True, inline="always")
def _place(blocks: Any) -> Any:
    """The image of a block, and the position in it of a thread, if ``blocks`` share an image."""
    j = uint32(_remainder(cuda.blockIdx.x, blocks) * BLOCK + cuda.threadIdx.x)
    return _quotient(cuda.blockIdx.x, blocks), j


@cuda.jit(device=True, inline="always")
def _sum_of_half_warp(value: Any) -> Any:
    """Over the 16 threads of a tile's row."""
    for step in (8, 4, 2, 1):
        value += cuda.shfl_xor_sync(ALL_LANES, value, step)
    return value


@cuda.jit(device=True, inline="always")
def _sum_of_warp(value: Any) -> Any:
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(ALL_LANES, value, step)
    return value


@cuda.jit(device=True, inline="always")
def _triangle_row(tile: Any) -> Any:
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
def _multiply_tiles(rows: Any, columns: Any, sums: Any, tx: Any, ty: Any) -> None:
    for k in range(STEP):
        for i in range(4):
            x = rows[uint32(ty + 16 * i), uint32(k)]
            for j in range(4):
                sums[i, j] += x * columns[uint32(tx + 16 * j), uint32(k)]


@cuda.jit(device=True, inline="always")
def _product_of_rows(
    P: Any, Q: Any, image: Any, first: Any, second: Any, rows: Any, columns: Any, sums: Any
) -> None:
    """A tile of P Q^T: rows of P from ``first`` on with rows of Q from ``second`` on."""
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    n, m, d = uint32(P.shape[1]), uint32(Q.shape[1]), uint32(P.shape[2])
    zero = P.dtype.type(0)
    start = uint32(0)
    while start < d:
        k = uint32(start + tx)
        for i in range(4):
            r = uint32(ty + 16 * i)
            row, column = uint32(first + r), uint32(second + r)
            rows[r, tx] = P[image, row, k] if row < n and k < d else zero
            columns[r, tx] = Q[image, column, k] if column < m and k < d else zero
        cuda.syncthreads()
        _multiply_tiles(rows, columns, sums, tx, ty)
        cuda.syncthreads()
        start = uint32(start + STEP)


@cuda.jit(device=True, inline="always")
def _store_twice(
    C: Any, image: Any, first: Any, second: Any, sums: Any, tile: Any, row_sums: Any
) -> None:
    """A tile of a symmetric C, and its mirror image through shared memory; sums of rows if asked.

    Of a tile on the diagonal the part above it is the mirror image of the part below, like any
    other: rounding must not make C less symmetric than it is.

    ``row_sums`` is (images, n), or has no element if nobody wants them.
    """
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    n = uint32(C.shape[1])
    zero = C.dtype.type(0)
    wanted = row_sums.shape[1] > 0
    for i in range(4):
        row = uint32(first + ty + 16 * i)
        total = zero
        for j in range(4):
            column = uint32(second + tx + 16 * j)
            if row < n and column <= row:
                C[image, row, column] = sums[i, j]
                total += sums[i, j]
        if wanted:
            total = _sum_of_half_warp(total)
            if tx == 0 and row < n:
                cuda.atomic.add(row_sums, (image, row), total)
    # The mirror image in two halves: 64 rows of float64 would be too much shared memory.
    for half in range(2):
        for i in range(2):
            for j in range(4):
                tile[uint32(ty + 16 * i), uint32(tx + 16 * j)] = sums[2 * half + i, j]
        cuda.syncthreads()
        for i in range(4):
            row = uint32(second + ty + 16 * i)
            total = zero
            for j in range(2):
                column = uint32(first + 32 * half + tx + 16 * j)
                value = tile[uint32(tx + 16 * j), uint32(ty + 16 * i)]
                if row < column and column < n:
                    C[image, row, column] = value
                    total += value
            if wanted:
                total = _sum_of_half_warp(total)
                if tx == 0 and row < n:
                    cuda.atomic.add(row_sums, (image, row), total)
        cuda.syncthreads()


# --- magnitudes ---


def fill(out: Any, value: Any) -> None:
    """``out`` is flat."""
    i = _position()
    if i < uint64(out.shape[0]):
        out[i] = value


def copied(array: Any, out: Any) -> None:
    """Any array of up to three axes, in order, into a flat one."""
    i = _position()
    if i < uint64(out.shape[0]):
        out[i] = array.flat[i]


def largest(V: Any, out: Any, chunks: Any) -> None:
    """max |v| of every image; ``out`` starts at 0, ``chunks`` blocks share an image."""
    image = _quotient(cuda.blockIdx.x, chunks)
    j = uint32(_remainder(cuda.blockIdx.x, chunks) * BLOCK + cuda.threadIdx.x)
    found = V.dtype.type(0)
    while j < V.shape[1]:
        found = max(found, abs(V[image, j]))
        j = uint32(j + chunks * BLOCK)
    for step in (16, 8, 4, 2, 1):
        found = max(found, cuda.shfl_xor_sync(ALL_LANES, found, step))
    if uint32(cuda.threadIdx.x) & 31 == 0:
        cuda.atomic.max(out, image, found)


def scaled(X: Any, magnitude: Any, out: Any, exponents: Any, blocks: Any) -> None:
    """Every image times the power of two that brings its largest value to between 1/2 and 1.

    ``X`` and ``out`` are (images, values), ``blocks`` share an image; the power is 2^-exponent.
    """
    image, j = _place(blocks)
    if j < uint32(X.shape[1]):
        exponent = 0
        if magnitude[image] > 0:
            exponent = math.frexp(magnitude[image])[1]
        out[image, j] = math.ldexp(X[image, j], -exponent)
        if j == 0:
            exponents[image] = exponent


# --- weights ---


def gram(X: Any, K: Any, row_sums: Any, tiles: Any, kernel: Any) -> None:
    """K = (X X^T)^2, or max(X X^T, 0), and its row sums, which start at 0."""
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    tile = cuda.shared.array((HALF, WIDE), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    image = _quotient(cuda.blockIdx.x, tiles)
    number = _remainder(cuda.blockIdx.x, tiles)
    row = _triangle_row(number)
    first = uint32(row * TILE)
    second = uint32((number - row * (row + 1) // 2) * TILE)
    zero = X.dtype.type(0)
    for i in range(4):
        for j in range(4):
            sums[i, j] = zero
    _product_of_rows(X, X, image, first, second, rows, columns, sums)
    for i in range(4):
        for j in range(4):
            value = sums[i, j]
            sums[i, j] = value * value if kernel == SQUARE else max(value, zero)
    _store_twice(K, image, first, second, sums, tile, row_sums)


def first_step(row_sums: Any, targets: Any, a: Any, gamma: Any, tau: Any, iterations: Any) -> None:
    """r = (K 1)^gamma, and the first iteration, which starts from a = 1; all arrays are flat."""
    i = _position()
    if i < uint64(a.shape[0]):
        total = row_sums[i]
        target, weight = a.dtype.type(0), a.dtype.type(0)
        if total > 0:
            target = math.pow(total, gamma)
            weight = a.dtype.type(1)
            if iterations > 0:
                weight = math.pow(total / target, -tau)
        targets[i] = target
        a[i] = weight


def step(K: Any, targets: Any, a: Any, out: Any, tau: Any, blocks: Any) -> None:
    """One iteration: a warp for each row of K, which is read once; ``blocks`` share an image."""
    image = _quotient(cuda.blockIdx.x, blocks)
    row = uint32(
        _remainder(cuda.blockIdx.x, blocks) * (BLOCK // WARP) + (uint32(cuda.threadIdx.x) >> 5)
    )
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
    total = _sum_of_warp(total)
    weight = a[image, row]
    if weight > 0:
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
        memory[i] = K[image, _quotient(i, n), _remainder(i, n)]
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
            total = _sum_of_warp(total)
            weight = memory[uint32(now + row)]
            if weight > 0:
                target = memory[uint32(goal + row)]
                weight = weight * math.pow(weight * total / target, -tau)
            if lane == 0:
                memory[uint32(following + row)] = weight
            row = uint32(row + BLOCK // WARP)
        cuda.syncthreads()
        now, following = following, now
    i = t
    while i < n:
        a[image, i] = memory[uint32(now + i)]
        i = uint32(i + BLOCK)


def row_forms(X: Any, M: Any, forms: Any, row_tiles: Any, column_tiles: Any) -> None:
    """x_i^T M x_i for every row, M symmetric; ``forms`` starts at 0.

    A tile of X M, times the same tile of X, summed over the columns.
    """
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    tiles = uint32(row_tiles * column_tiles)
    image = _quotient(cuda.blockIdx.x, tiles)
    number = _remainder(cuda.blockIdx.x, tiles)
    first = uint32(_quotient(number, column_tiles) * TILE)
    second = uint32(_remainder(number, column_tiles) * TILE)
    n, d = uint32(X.shape[1]), uint32(X.shape[2])
    zero = X.dtype.type(0)
    for i in range(4):
        for j in range(4):
            sums[i, j] = zero
    _product_of_rows(X, M, image, first, second, rows, columns, sums)
    for i in range(4):
        row = uint32(first + ty + 16 * i)
        total = zero
        for j in range(4):
            column = uint32(second + tx + 16 * j)
            if row < n and column < d:
                total += sums[i, j] * X[image, row, column]
        total = _sum_of_half_warp(total)
        if tx == 0 and row < n:
            cuda.atomic.add(forms, (image, row), total)


def update(forms: Any, targets: Any, a: Any, tau: Any) -> None:
    """a <- a / (a (K a) / r)^tau with K a from ``row_forms``; all arrays are flat."""
    i = _position()
    if i < uint64(a.shape[0]):
        weight = a[i]
        if weight > 0:
            a[i] = weight * math.pow(weight * forms[i] / targets[i], -tau)


def restored(a: Any, exponents: Any, power: Any, blocks: Any) -> None:
    """The weights of features that were scaled by 2^-exponent: times 2^(-exponent power)."""
    image, i = _place(blocks)
    if i < uint32(a.shape[1]):
        a[image, i] *= math.exp2(-a.dtype.type(exponents[image]) * power)


# --- pooling ---


def outer(X: Any, a: Any, A: Any, tiles: Any) -> None:
    """A = X^T diag(a) X; ``a`` has no columns for weights of 1."""
    rows = cuda.shared.array((TILE, PADDED), X.dtype)
    columns = cuda.shared.array((TILE, PADDED), X.dtype)
    tile = cuda.shared.array((HALF, WIDE), X.dtype)
    sums = cuda.local.array((4, 4), X.dtype)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    image = _quotient(cuda.blockIdx.x, tiles)
    number = _remainder(cuda.blockIdx.x, tiles)
    row = _triangle_row(number)
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
        _multiply_tiles(rows, columns, sums, tx, ty)
        cuda.syncthreads()
        start = uint32(start + STEP)
    _store_twice(A, image, first, second, sums, tile, a[:, :0])


def weighted_sum(X: Any, a: Any, out: Any, chunks: Any) -> None:
    """sum_i a_i x_i: a block for 32 columns, 8 threads for each of them."""
    parts = cuda.shared.array((8, 33), X.dtype)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    image = _quotient(cuda.blockIdx.x, chunks)
    column = uint32(_remainder(cuda.blockIdx.x, chunks) * WARP + tx)
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
    image = _quotient(cuda.blockIdx.x, chunks)
    j = uint32(_remainder(cuda.blockIdx.x, chunks) * BLOCK + cuda.threadIdx.x)
    total = V.dtype.type(0)
    scale = magnitude[image]
    if scale > 0:
        while j < V.shape[1]:
            share = abs(V[image, j]) / scale
            total += share if power == 1 else share * share
            j = uint32(j + chunks * BLOCK)
    total = _sum_of_warp(total)
    if uint32(cuda.threadIdx.x) & 31 == 0:
        cuda.atomic.add(sums, image, total)


def normalized(V: Any, magnitude: Any, sums: Any, out: Any, power: Any, blocks: Any) -> None:
    """sign(v) sqrt(|v|), or v, over its norm; zeros stay zeros. ``blocks`` share an image."""
    image, j = _place(blocks)
    if j < uint32(V.shape[1]):
        value, scale = V[image, j], magnitude[image]
        found = V.dtype.type(0)
        if scale > 0:
            share = abs(value) / scale
            root = math.sqrt(share / sums[image]) if power == 1 else share / math.sqrt(sums[image])
            found = math.copysign(root, value)
        out[image, j] = found


# --- sketches ---


def scatter(M: Any, h1: Any, h2: Any, s1: Any, s2: Any, out: Any, blocks: Any) -> None:
    """out[(h1[i] + h2[j]) mod k] += s1[i] s2[j] M[i, j]: in shared memory, then added to ``out``.

    ``blocks`` share an image, each has rows of M; ``out`` starts at 0.
    """
    histogram = cuda.shared.array(0, M.dtype)
    t = uint32(cuda.threadIdx.x)
    image = _quotient(cuda.blockIdx.x, blocks)
    d, k = uint32(M.shape[1]), uint32(out.shape[1])
    i = t
    while i < k:
        histogram[i] = M.dtype.type(0)
        i = uint32(i + BLOCK)
    cuda.syncthreads()
    row = _remainder(cuda.blockIdx.x, blocks)
    while row < d:
        start, sign = uint32(h1[row]), s1[row]
        j = t
        while j < d:
            place = _remainder(start + uint32(h2[j]), k)
            cuda.atomic.add(histogram, place, M[image, row, j] * (sign * s2[j]))
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
    image = _quotient(cuda.blockIdx.x, blocks)
    d, k = uint32(M.shape[1]), uint32(out.shape[1])
    row = _remainder(cuda.blockIdx.x, blocks)
    while row < d:
        start, sign = uint32(h1[row]), s1[row]
        j = uint32(cuda.threadIdx.x)
        while j < d:
            place = _remainder(start + uint32(h2[j]), k)
            cuda.atomic.add(out, (image, place), M[image, row, j] * (sign * s2[j]))
            j = uint32(j + BLOCK)
        row = uint32(row + blocks)


# --- square roots by products ---


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
    image = _quotient(cuda.blockIdx.x, side * side)
    number = _remainder(cuda.blockIdx.x, side * side)
    first, second = uint32(_quotient(number, side) * TILE), uint32(_remainder(number, side) * TILE)
    d = uint32(P.shape[1])
    zero = P.dtype.type(0)
    for i in range(4):
        for j in range(4):
            sums[i, j] = zero
    start = uint32(0)
    while start < d:
        k, row = uint32(start + tx), uint32(start + ty)
        for i in range(4):
            r, c = uint32(ty + 16 * i), uint32(tx + 16 * i)
            p, q = uint32(first + r), uint32(second + c)
            rows[r, tx] = P[image, p, k] if p < d and k < d else zero
            columns[c, ty] = Q[image, row, q] if row < d and q < d else zero
        cuda.syncthreads()
        _multiply_tiles(rows, columns, sums, tx, ty)
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
                C[image, p, q] = value + delta if p == q else value


def moments(S: Any, traces: Any, squares: Any, blocks: Any) -> None:
    """Trace and squared Frobenius norm of every matrix; both start at 0."""
    image = _quotient(cuda.blockIdx.x, blocks)
    d = uint32(S.shape[1])
    trace, square = S.dtype.type(0), S.dtype.type(0)
    row = _remainder(cuda.blockIdx.x, blocks)
    while row < d:
        j = uint32(cuda.threadIdx.x)
        while j < d:
            value = S[image, row, j]
            square += value * value
            if j == row:
                trace += value
            j = uint32(j + BLOCK)
        row = uint32(row + blocks)
    trace, square = _sum_of_warp(trace), _sum_of_warp(square)
    if uint32(cuda.threadIdx.x) & 31 == 0:
        cuda.atomic.add(traces, image, trace)
        cuda.atomic.add(squares, image, square)


def bounds(traces: Any, squares: Any, d: Any, eps: Any, out: Any) -> None:
    """An upper bound of the spectrum of A from the moments of A^2 (see shared/roots.py)."""
    image = uint32(cuda.blockIdx.x * BLOCK + cuda.threadIdx.x)
    if image < out.shape[0]:
        one = out.dtype.type(1)
        mean, mean_square = traces[image] / d, squares[image] / d
        variance = abs(mean_square - mean * mean) + 32 * eps * mean_square
        bound = mean + math.sqrt((d - one) * variance)
        out[image] = math.sqrt(bound) if bound > 0 else one


def start(
    A: Any, square: Any, bound: Any, Y: Any, Z: Any, of: tuple[Any, Any], blocks: Any
) -> None:
    """Z = a I + (b / bound) A, Y = (a / bound) A + (b / bound^2) A^2; ``blocks`` share a matrix."""
    image, i = _place(blocks)
    d = uint32(A.shape[1])
    a, b = of
    if i < uint32(d * d):
        p, q = _quotient(i, d), _remainder(i, d)
        value, limit = A[image, p, q], bound[image]
        Y[image, p, q] = (a * value + b / limit * square[image, p, q]) / limit
        other = b / limit * value
        Z[image, p, q] = other + a if p == q else other


def finish(Y: Any, bound: Any, exponents: Any, root_of_two: Any, out: Any, blocks: Any) -> None:
    """Times sqrt(bound 2^exponent), and symmetric again; ``blocks`` share a matrix."""
    image, i = _place(blocks)
    d = uint32(Y.shape[1])
    if i < uint32(d * d):
        exponent = exponents[image]
        factor = math.ldexp(math.sqrt(bound[image]), exponent >> 1) * Y.dtype.type(0.5)
        if exponent & 1:
            factor *= root_of_two
        p, q = _quotient(i, d), _remainder(i, d)
        out[image, p, q] = (Y[image, p, q] + Y[image, q, p]) * factor
