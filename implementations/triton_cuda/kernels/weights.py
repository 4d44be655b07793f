"""Gamma-democratic weights: the scale of features, K with its row sums, and iterations on it."""

import triton
import triton.language as tl

from .arithmetic import ADD, MAXIMUM, power_of, times_power_of_two, two_to_the
from .parts import largest_part, own_chunk, row_of_triangle, store_twice


@triton.jit
def magnitudes(V, parts, values, chunks, CHUNK: tl.constexpr):
    """max |v| of each chunk of an image; ``V`` is (images, values), ``parts`` (images, chunks)."""
    _, start, count = own_chunk(values, chunks, CHUNK)
    i = tl.arange(0, CHUNK)
    v = tl.load(V + start + i, mask=i < count, other=0.0).to(tl.float32)
    tl.store(parts + tl.program_id(0), tl.reduce(tl.abs(v), 0, MAXIMUM))


@triton.jit
def in_range(X, parts, out, exponents, values, chunks, CHUNK: tl.constexpr, CHUNKS: tl.constexpr):
    """Every image times the power of two, 2^-exponent, that brings its largest value to about 1, in
    float32.

    The exponent is kept from -120 to 120, so that the power is a number; the largest values of
    float32 are then 256, and their products still in range.
    """
    image, start, count = own_chunk(values, chunks, CHUNK)
    bits = largest_part(parts, image, chunks, CHUNKS).to(tl.int32, bitcast=True)
    exponent = tl.minimum(tl.maximum((bits >> 23) - 126, -120), 120)
    i = tl.arange(0, CHUNK)
    x = tl.load(X + start + i, mask=i < count, other=0.0)
    tl.store(out + start + i, x.to(tl.float32) * two_to_the(-exponent), mask=i < count)
    tl.store(exponents + image, exponent, mask=start == image * values)


@triton.jit
def gram(
    X, K, sums, n, d, tiles, ORDER: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """K = (X X^T)^2, or max(X X^T, 0) for order 1, by one triangle of tiles.

    ``sums`` is (images, tiles, n): the sum of each row over the columns of each tile.
    """
    pairs = tiles * (tiles + 1) // 2
    image = tl.program_id(0) // pairs
    number = tl.program_id(0) - image * pairs
    row = row_of_triangle(number)
    column = number - row * (row + 1) // 2
    image = image.to(tl.int64)
    i, j = row * TILE + tl.arange(0, TILE), column * TILE + tl.arange(0, TILE)
    depth = tl.arange(0, DEPTH)
    at = tl.arange(0, TILE)[:, None] * d + depth[None, :]
    of_rows, of_columns = X + (image * n + row * TILE) * d, X + (image * n + column * TILE) * d
    total = tl.full((TILE, TILE), 0.0, tl.float32)
    for start in range(0, d, DEPTH):
        inside = (start + depth < d)[None, :]
        left = tl.load(of_rows + start + at, mask=(i < n)[:, None] & inside, other=0.0)
        right = tl.load(of_columns + start + at, mask=(j < n)[:, None] & inside, other=0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision=PRECISION)
    value = total * total if ORDER == 2 else tl.maximum(total, 0.0, tl.PropagateNan.ALL)
    sums += image * tiles * n
    tl.store(sums + column * n + i, tl.reduce(value, 1, ADD), mask=i < n)
    above = (j < n) & (row != column)
    tl.store(sums + row * n + j, tl.reduce(value, 0, ADD), mask=above)
    store_twice(K + image * n * n, value, row * TILE, column * TILE, n, TILE)


@triton.jit
def _stepped(a, Ka, target, tau, tau_rest):
    """a <- a (a (K a) / r)^-tau; a weight of 0 stays 0."""
    change = power_of(tl.where(a == 0.0, 1.0, tl.div_rn(a * Ka, target)), -tau, -tau_rest)
    return tl.where(a == 0.0, 0.0, a * change)


@triton.jit
def _started(row_sums, gamma, gamma_rest, tau, tau_rest, iterations):
    """r = (K 1)^gamma, and the weights after the first iteration, which starts from 1; for a row of
    zeros 1 and 0."""
    is_present = (row_sums > 0.0) | (row_sums != row_sums)  # NaN makes the weight NaN
    some = tl.where(is_present, row_sums, 1.0)
    target = power_of(some, gamma, gamma_rest)
    stepped = _stepped(tl.full(some.shape, 1.0, tl.float32), some, target, tau, tau_rest)
    a = tl.where(iterations > 0, stepped, 1.0)
    return target, tl.where(is_present, a, 0.0)


@triton.jit
def _with_scale(a, exponent, power, power_rest):
    """Weights of features that were scaled by 2^-exponent: times 2^(-exponent power); zero stays
    zero, whatever the factor."""
    e = -exponent.to(tl.float32)
    whole = tl.floor(e * power)
    factor = tl.exp2(e * power - whole + e * power_rest)
    return tl.where(a == 0.0, 0.0, times_power_of_two(a * factor, whole.to(tl.int32)))


@triton.jit
def small_image(
    K, a, exponents, n, iterations, gamma, gamma_rest, tau, tau_rest, power, power_rest,
    SIDE: tl.constexpr,
):  # fmt: skip
    """All iterations of an image whose K one program can hold, and the scale put back.

    K is summed down its columns, which are its rows: a thread has few of them, and so few powers
    to take, where it would have many rows.
    """
    image = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, SIDE), tl.arange(0, SIDE)
    inside = (i < n)[:, None] & (j < n)[None, :]
    own = tl.load(K + image * n * n + i[:, None] * n + j[None, :], mask=inside, other=0.0)
    sums = tl.reduce(own, 0, ADD)
    target, weights = _started(sums, gamma, gamma_rest, tau, tau_rest, iterations)
    for _ in range(1, iterations):
        Ka = tl.reduce(own * weights[:, None], 0, ADD)
        weights = _stepped(weights, Ka, target, tau, tau_rest)
    exponent = tl.load(exponents + image)
    tl.store(a + image * n + j, _with_scale(weights, exponent, power, power_rest), mask=j < n)


@triton.jit
def first_step(
    sums, targets, a, n, tiles, blocks, iterations, gamma, gamma_rest, tau, tau_rest,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Targets and weights after the first iteration, from what ``gram`` has summed."""
    image, start, count = own_chunk(n, blocks, ROWS)
    i = tl.arange(0, ROWS)
    total = tl.full((ROWS,), 0.0, tl.float32)
    for tile in range(tiles):
        before = (image * (tiles - 1) + tile) * n  # in sums, where a has none
        total += tl.load(sums + start + before + i, mask=i < count, other=0.0)
    target, weights = _started(total, gamma, gamma_rest, tau, tau_rest, iterations)
    tl.store(targets + start + i, target, mask=i < count)
    tl.store(a + start + i, weights, mask=i < count)


@triton.jit
def step(
    K, targets, a, out, n, blocks, tau, tau_rest, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """One iteration; every program owns some rows of K, which is read once."""
    image, first, count = own_chunk(n, blocks, ROWS)
    i, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    own = K + first * n
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for start in range(0, n, COLUMNS):
        inside = start + columns < n
        weights = tl.load(a + image * n + start + columns, mask=inside, other=0.0)
        at = i[:, None] * n + columns[None, :]
        part = tl.load(own + start + at, mask=(i < count)[:, None] & inside[None, :], other=0.0)
        total += part * weights[None, :]
    Ka = tl.reduce(total, 1, ADD)
    before = tl.load(a + first + i, mask=i < count, other=0.0)
    target = tl.load(targets + first + i, mask=i < count, other=1.0)
    tl.store(out + first + i, _stepped(before, Ka, target, tau, tau_rest), mask=i < count)


@triton.jit
def restored(a, exponents, n, blocks, power, power_rest, ROWS: tl.constexpr):
    """The scale of the features put back into their weights, in place."""
    image, start, count = own_chunk(n, blocks, ROWS)
    i = tl.arange(0, ROWS)
    weights = tl.load(a + start + i, mask=i < count, other=0.0)
    exponent = tl.load(exponents + image)
    tl.store(a + start + i, _with_scale(weights, exponent, power, power_rest), mask=i < count)
