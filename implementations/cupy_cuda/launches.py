"""One launch of each kernel: how many blocks and threads, and its arguments, from arrays.

The routes hand them to a ``Launcher``; the tests execute, count and mutate the same ones. All
arrays of a launch are given, those it writes too; the kernels say which must start at zero.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.prepared import CountSketch, PreparedHashes

from .launcher import Array, Launch, i32, itemsize, number, u32, u64

SQUARE, RECTIFY, KEEP, LOWER_1, LOWER_2 = range(5)
"""What becomes of a product, as the source has it."""


# --- magnitudes ---


def unordinary(X: Array, found: Array, low: float, high: float, zero_rows: bool) -> Launch:
    """``found`` is one number, for all rows of all images."""
    rows, d, T = prod(X.shape[:-1]), X.shape[-1], number(X)
    _, shape = grids.rows(1, rows)
    return "unordinary", shape, (X, found, u64(rows), u32(d), T(low), T(high), i32(zero_rows))


def largest(V: Array, out: Array) -> Launch:
    images, values = V.shape
    chunks, shape = grids.chunks(images, values)
    return "largest", shape, (V, out, u32(values), u32(chunks))


def scaled(X: Array, magnitude: Array, out: Array, exponents: Array) -> Launch:
    images, values = X.shape[0], prod(X.shape[1:])
    blocks, shape = grids.per_image(images, values)
    return "scaled", shape, (X, magnitude, out, exponents, u32(values), u32(blocks))


def restored(a: Array, exponents: Array, out: Array, power: Fraction) -> Launch:
    images, n = a.shape
    blocks, shape = grids.per_image(images, n)
    parts = (number(a)(part) for part in scaling.in_two_parts(power, number(a)))
    return "restored", shape, (a, exponents, out, *parts, u32(n), u32(blocks))


# --- weights ---


def gram(X: Array, K: Array, sums: Array, kind: int, tile: int = grids.TILE) -> Launch:
    """``sums`` has those of the rows of every column of tiles, (images, tiles, n)."""
    images, n, d = X.shape
    count = grids.triangle(n, tile)
    args = (X, K, sums, u32(n), u32(d), u32(count), i32(kind))
    return "gram", grids.vector_products(images * count, itemsize(X), tile), args


def gram_parts(X: Array, parts: Array, tile: int = grids.TILE) -> Launch:
    """``parts`` is (images x tiles of a triangle, blocks that share a tile, values of a tile)."""
    _, n, d = X.shape
    tiles, count, _ = parts.shape
    sizes = (n, d, grids.triangle(n, tile), count, grids.part_length(d, count))
    shape = grids.vector_products(tiles * count, itemsize(X), tile)
    return "gram_parts", shape, (X, parts, *map(u32, sizes))


def from_parts(parts: Array, C: Array, sums: Array, kind: int, tile: int = grids.TILE) -> Launch:
    """Of Gram matrices, with the ``sums`` of ``gram``, or of outer products, with those of
    ``outer``."""
    tiles, count, _ = parts.shape
    n = C.shape[-1]
    shape = grids.vector_products(tiles, itemsize(C), tile)
    sizes = (u32(n), u32(grids.triangle(n, tile)), u32(count), i32(kind))
    return "from_parts", shape, (parts, C, sums, *sizes)


def from_triangle(K: Array, sums: Array, kind: int) -> Launch:
    images, n, _ = K.shape
    tiles = grids.triangle(n)
    shape = grids.vector_products(images * tiles, itemsize(K))
    return "from_triangle", shape, (K, sums, u32(n), u32(tiles), i32(kind))


def first_step(
    sums: Array, targets: Array, a: Array, gamma: float, tau: float, iterations: int
) -> Launch:
    """``sums`` of the rows of an image may come in parts, (images, parts, n)."""
    count, n, T = prod(a.shape), a.shape[-1], number(sums)
    parts = prod(sums.shape) // max(count, 1)
    numbers = (u64(count), u32(n), u32(parts), T(gamma), T(tau), i32(iterations))
    return "first_step", grids.flat(count), (sums, targets, a, *numbers)


def step(K: Array, targets: Array, a: Array, out: Array, tau: float) -> Launch:
    images, n, _ = K.shape
    blocks, shape = grids.rows_of_k(images, n)
    return "step", shape, (K, targets, a, out, u32(n), u32(blocks), number(K)(tau))


def small_image(K: Array, targets: Array, a: Array, tau: float, iterations: int) -> Launch:
    images, n, _ = K.shape
    shape = grids.padded_images(images, n, itemsize(K))
    sizes = (u32(n), u32(grids.across(n, itemsize(K))))
    return "small_image", shape, (K, targets, a, *sizes, number(K)(tau), i32(iterations))


def resident(
    K: Array,
    targets: Array,
    a: Array,
    other: Array,
    arrived: Array,
    by: grids.Slices,
    tau: float,
    iterations: int,
) -> Launch:
    """The last weights are in ``a`` after an odd number of iterations, and else in ``other``;
    ``arrived`` is a zero for every group of blocks."""
    images, n, _ = K.shape
    sizes = (images, n, grids.across(n, itemsize(K)), by.rows, by.blocks)
    arrays = (K, targets, a, other, arrived)
    numbers = (*map(u32, sizes), number(K)(tau), i32(iterations))
    return "resident", grids.resident(n, by, itemsize(K)), (*arrays, *numbers)


def free_sums(X: Array, XM: Array, diagonal: Array, sums: Array, share: float) -> Launch:
    images, n, d = X.shape
    blocks, shape = grids.rows(images, n)
    args = (X, XM, diagonal, sums, u32(n), u32(d), u32(blocks), number(X)(share))
    return "free_sums", shape, args


def free_step(
    X: Array,
    XM: Array,
    diagonal: Array,
    targets: Array,
    a: Array,
    out: Array,
    tau: float,
    share: float,
) -> Launch:
    images, n, d = X.shape
    blocks, shape = grids.rows(images, n)
    numbers = (u32(n), u32(d), u32(blocks), number(X)(tau), number(X)(share))
    return "free_step", shape, (X, XM, diagonal, targets, a, out, *numbers)


# --- pooling ---


def outer(
    X: Array, a: Array | None, A: Array, sums: Array, kind: int = KEEP, tile: int = grids.TILE
) -> Launch:
    """KEEP writes all of A. LOWER_1 and LOWER_2 write its lower triangle, and to ``sums`` two
    numbers for each tile of it; for any other kind that is not looked at."""
    images, n, d = X.shape
    count = grids.triangle(d, tile)
    sizes = (u32(n), u32(d), u32(count), i32(a is not None), i32(kind))
    shape = grids.vector_products(images * count, itemsize(X), tile)
    return "outer", shape, (X, X if a is None else a, A, sums, *sizes)


def outer_parts(X: Array, a: Array | None, parts: Array, tile: int = grids.TILE) -> Launch:
    """As ``gram_parts``."""
    _, n, d = X.shape
    tiles, count, _ = parts.shape
    sizes = (n, d, grids.triangle(d, tile), count, grids.part_length(n, count))
    shape = grids.vector_products(tiles * count, itemsize(X), tile)
    arrays = (X, X if a is None else a, parts)
    return "outer_parts", shape, (*arrays, *map(u32, sizes), i32(a is not None))


def power_sums(V: Array, sums: Array, power: int) -> Launch:
    """``sums`` has two numbers for each of the chunks of an image."""
    images, values = V.shape
    chunks, shape = grids.chunks(images, values)
    return "power_sums", shape, (V, sums, u32(values), u32(chunks), i32(power))


def triangle_sums(S: Array, sums: Array, power: int) -> Launch:
    """The same of symmetric matrices."""
    images, d, _ = S.shape
    chunks, shape = grids.chunks(images, d * d)
    return "triangle_sums", shape, (S, sums, u32(d), u32(chunks), i32(power))


def normalized(V: Array, sums: Array, out: Array, power: int) -> Launch:
    images, values = V.shape
    blocks, shape = grids.pieces(images, values)
    sizes = (u32(values), u32(sums.shape[2]), u32(blocks))
    return "normalized", shape, (V, sums, out, *sizes, i32(power))


def normalized_triangle(S: Array, sums: Array, out: Array, power: int) -> Launch:
    images, d, _ = S.shape
    tiles = grids.triangle(d)
    shape = grids.vector_products(images * tiles, itemsize(S))
    sizes = (u32(d), u32(tiles), u32(sums.shape[2]))
    return "normalized_triangle", shape, (S, sums, out, *sizes, i32(power))


def normalized_at_once(V: Array, out: Array, power: int) -> Launch:
    images, values = V.shape
    shape = grids.one_block_each(images, values * itemsize(V))
    return "normalized_at_once", shape, (V, out, u32(values), i32(power))


# --- sketches ---


def count_sketch(X: Array, a: Array | None, by: CountSketch, out: Array) -> Launch:
    images, n, d = X.shape
    k = out.shape[-1]
    blocks, shape = grids.sketches(images * n, k)
    arrays = (X, X if a is None else a, by.starts, by.order, by.signs, out)
    sizes = (u64(images * n), u32(d), u32(k), u32(blocks), i32(a is not None))
    return "count_sketch", shape, (*arrays, *sizes)


def scatter(
    M: Array, by: PreparedHashes, out: Array, max_shared: int = grids.SHARED_BYTES
) -> Launch:
    """In the shared memory of blocks, if that is large enough; ``out`` has a sketch for each of the
    blocks that share an image."""
    images, d, _ = M.shape
    _, blocks, k = out.shape
    first, second = by.first, by.second
    _, shape = grids.sorted_scatters(images, d, k, itemsize(M), max_shared)
    sorting = second.places if shape.shared else second.order
    arrays = (first.bins, first.signs, second.signs, sorting, second.filled, second.runs, out)
    kernel = "scatter" if shape.shared else "scatter_far"
    return kernel, shape, (M, *arrays, *map(u32, (d, k, second.filled.shape[0], blocks)))


def added(parts: Array, out: Array) -> Launch:
    """Sums over the second axis."""
    images, count, values = parts.shape
    blocks, shape = grids.per_image(images, values)
    return "added", shape, (parts, out, u32(values), u32(count), u32(blocks))
