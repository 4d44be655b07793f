"""One launch of each kernel: how many blocks and threads, and its arguments, from arrays.

The routes hand them to a ``Launcher``; the tests execute, count and mutate the same ones. All
arrays of a launch are given, those it writes too; the kernels say which must start at zero.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np

from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.grids import Shape
from demopool.implementations.shared.prepared import PreparedHashes

from . import kernels
from .launcher import Array, Launch, flat

SQUARE, RECTIFY, KEEP = kernels.SQUARE, kernels.RECTIFY, kernels.KEEP
i32 = np.int32


# --- magnitudes ---


def fill(out: Array, value: float) -> Launch:
    return kernels.fill, grids.flat(prod(out.shape)), (flat(out), out.dtype.type(value))


def copied(array: Array, out: Array) -> Launch:
    return kernels.copied, grids.flat(prod(array.shape)), (array, flat(out))


def unordinary(X: Array, found: Array, low: float, high: float, zero_rows: bool) -> Launch:
    """``found`` is one number, for all rows of all images."""
    rows, d = prod(X.shape[:-1]), X.shape[-1]
    kind = np.dtype(f"i{X.dtype.itemsize}")
    limits = np.array([low, high], X.dtype).view(kind)
    args = (X.reshape((rows, d)).view(kind), found, np.iinfo(kind).max, *limits, i32(zero_rows))
    return kernels.unordinary, grids.rows(1, rows)[1], args


def largest(V: Array, out: Array) -> Launch:
    chunks, shape = grids.chunks(*V.shape)
    return kernels.largest, shape, (V, out, i32(chunks))


def scaled(X: Array, magnitude: Array, out: Array, exponents: Array) -> Launch:
    two = (X.shape[0], prod(X.shape[1:]))
    blocks, shape = grids.per_image(*two)
    args = (X.reshape(two), magnitude, out.reshape(two), exponents, i32(blocks))
    return kernels.scaled, shape, args


def restored(a: Array, exponents: Array, power: Fraction) -> Launch:
    """In place."""
    blocks, shape = grids.per_image(*a.shape)
    parts = (a.dtype.type(part) for part in scaling.in_two_parts(power, a.dtype))
    return kernels.restored, shape, (a, exponents, *parts, i32(blocks))


# --- weights ---


def gram(X: Array, K: Array, sums: Array, kind: int) -> Launch:
    """``sums`` has those of the rows of every column of tiles, (images, tiles, n)."""
    images, n, _ = X.shape
    count = grids.triangle(n)
    return kernels.gram, grids.products(images * count), (X, K, sums, i32(count), i32(kind))


def gram_parts(X: Array, parts: Array) -> Launch:
    """``parts`` is (images x tiles of a triangle, blocks that share a tile, values of a tile)."""
    _, n, d = X.shape
    tiles, count, _ = parts.shape
    sizes = (grids.triangle(n), grids.part_length(d, count))
    return kernels.gram_parts, grids.products(tiles * count), (X, parts, *map(i32, sizes))


def from_parts(parts: Array, C: Array, sums: Array, kind: int) -> Launch:
    """Of Gram matrices, or with KEEP of outer products, which have no ``sums``."""
    sizes = (i32(grids.triangle(C.shape[-1])), i32(kind))
    return kernels.from_parts, grids.products(parts.shape[0]), (parts, C, sums, *sizes)


def first_step(
    sums: Array, targets: Array, a: Array, gamma: float, tau: float, iterations: int
) -> Launch:
    """``sums`` of the rows of an image may come in parts, (images, parts, n)."""
    T, count, n = sums.dtype.type, prod(a.shape), a.shape[-1]
    images, parts = count // n, prod(sums.shape) // max(count, 1)
    blocks, shape = grids.per_image(images, n)
    vectors = (array.reshape((images, n)) for array in (targets, a))
    arrays = (sums.reshape((images, parts, n)), *vectors)
    numbers = (T(gamma), T(tau), i32(iterations), i32(blocks))
    return kernels.first_step, shape, (*arrays, *numbers)


def step(K: Array, targets: Array, a: Array, out: Array, tau: float) -> Launch:
    images, n, _ = K.shape
    blocks, shape = grids.rows(images, n)
    return kernels.step, shape, (K, targets, a, out, K.dtype.type(tau), i32(blocks))


def small_image(K: Array, targets: Array, a: Array, tau: float, iterations: int) -> Launch:
    images, n, _ = K.shape
    shape = grids.one_block_each(images, grids.small_image_bytes(n, K.dtype.itemsize))
    return kernels.small_image, shape, (K, targets, a, K.dtype.type(tau), i32(iterations))


def row_forms(X: Array, M: Array, forms: Array) -> Launch:
    """``forms`` is (2, images, n, tiles along d)."""
    images, n, d = X.shape
    down = grids.tiles(n)
    shape = grids.products(images * down * grids.tiles(d))
    return kernels.row_forms, shape, (X, M, forms, i32(down))


def exact_rows(X: Array, v: Array, forms: Array, sums: Array, share: float) -> Launch:
    images, n, _ = X.shape
    shape = Shape(images * n, (grids.BLOCK,))
    return kernels.exact_rows, shape, (X, v, forms, sums, X.dtype.type(share))


def update(sums: Array, targets: Array, a: Array, tau: float) -> Launch:
    args = (flat(sums), flat(targets), flat(a), a.dtype.type(tau))
    return kernels.update, grids.flat(prod(a.shape)), args


# --- pooling; ``a`` has no columns for weights of 1 ---


def outer(X: Array, a: Array, A: Array) -> Launch:
    images, _, d = X.shape
    count = grids.triangle(d)
    return kernels.outer, grids.products(images * count), (X, a, A, i32(count))


def outer_parts(X: Array, a: Array, parts: Array) -> Launch:
    """As ``gram_parts``."""
    _, n, d = X.shape
    tiles, count, _ = parts.shape
    sizes = (grids.triangle(d), grids.part_length(n, count))
    return kernels.outer_parts, grids.products(tiles * count), (X, a, parts, *map(i32, sizes))


def weighted_sum(X: Array, a: Array, out: Array) -> Launch:
    images, _, d = X.shape
    blocks, shape = grids.columns(images, d)
    return kernels.weighted_sum, shape, (X, a, out, i32(blocks))


def power_sums(V: Array, magnitude: Array, sums: Array, power: int) -> Launch:
    """``sums`` has a number for each of the chunks of an image."""
    _, shape = grids.chunks(*V.shape)
    return kernels.power_sums, shape, (V, magnitude, sums, i32(power))


def normalized(V: Array, magnitude: Array, sums: Array, out: Array, power: int) -> Launch:
    blocks, shape = grids.pieces(*V.shape)
    return kernels.normalized, shape, (V, magnitude, sums, out, i32(power), i32(blocks))


def normalized_at_once(V: Array, out: Array, power: int) -> Launch:
    images, values = V.shape
    shape = grids.one_block_each(images, values * V.dtype.itemsize)
    return kernels.normalized_at_once, shape, (V, out, i32(power))


def scatter(
    M: Array, by: PreparedHashes, out: Array, max_shared: int = grids.SHARED_BYTES
) -> Launch:
    """In the shared memory of blocks, if that is large enough; ``out`` has a sketch for each of the
    blocks that share an image."""
    images, d, _ = M.shape
    first, second = by.first, by.second
    _, shape = grids.sorted_scatters(images, d, out.shape[2], M.dtype.itemsize, max_shared)
    sorting = second.places if shape.shared else second.order
    hashes = (first.bins, first.signs, second.signs, sorting, second.filled, second.runs)
    return kernels.scatter if shape.shared else kernels.scatter_far, shape, (M, *hashes, out)


def added(parts: Array, out: Array) -> Launch:
    """Sums over the second axis."""
    blocks, shape = grids.per_image(*out.shape)
    return kernels.added, shape, (parts, out, i32(blocks))


# --- roots ---


def product(P: Array, Q: Array, D: Array, C: Array, of: tuple[float, float, float]) -> Launch:
    """``C = of[0] P Q + of[1] D + of[2] I``."""
    images, d, _ = P.shape
    side = grids.tiles(d)
    numbers = tuple(P.dtype.type(value) for value in of)
    return kernels.product, grids.products(images * side * side), (P, Q, D, C, i32(side), numbers)


def moments(S: Array, traces: Array, squares: Array) -> Launch:
    """Both have a number for each of the blocks that share a matrix."""
    images, d, _ = S.shape
    _, shape = grids.chunks(images, d * d)
    return kernels.moments, shape, (S, traces, squares)


def bounds(traces: Array, squares: Array, d: int, out: Array) -> Launch:
    """Of matrices of d x d."""
    T = traces.dtype.type
    args = (traces, squares, T(d), T(np.finfo(T).eps), out)
    return kernels.bounds, grids.flat(traces.shape[0]), args


def start(
    A: Array, square: Array, bound: Array, Y: Array, Z: Array, of: tuple[float, float]
) -> Launch:
    images, d, _ = A.shape
    blocks, shape = grids.per_image(images, d * d)
    numbers = tuple(A.dtype.type(value) for value in of)
    return kernels.start, shape, (A, square, bound, Y, Z, numbers, i32(blocks))


def finish(Y: Array, bound: Array, exponents: Array, out: Array) -> Launch:
    images, d, _ = Y.shape
    blocks, shape = grids.per_image(images, d * d)
    root_of_two = Y.dtype.type(np.sqrt(2))
    return kernels.finish, shape, (Y, bound, exponents, root_of_two, out, i32(blocks))
