"""One launch of each kernel: how many blocks and threads, and its arguments, from arrays.

The routes hand them to a ``Launcher``; the tests execute, count and mutate the same ones. All
arrays of a launch are given, those it writes too; the kernels say which must start at zero.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

from demopool.implementations.shared import grids, scaling

from .launcher import Array, Launch, i32, itemsize, number, u32, u64
from .prepared import CountSketch, PreparedHashes

SQUARE, RECTIFY, KEEP = 0, 1, 2
"""What becomes of a product, as the source has it."""


# --- magnitudes ---


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


def gram(X: Array, K: Array, sums: Array, kind: int) -> Launch:
    images, n, d = X.shape
    count = grids.triangle(n)
    args = (X, K, sums, u32(n), u32(d), u32(count), i32(kind))
    return "gram", grids.products(images * count), args


def from_triangle(K: Array, sums: Array, kind: int) -> Launch:
    """Of one image."""
    n = K.shape[-1]
    return "from_triangle", grids.products(grids.triangle(n)), (K, sums, u32(n), i32(kind))


def first_step(
    sums: Array, targets: Array, a: Array, gamma: float, tau: float, iterations: int
) -> Launch:
    count, T = prod(sums.shape), number(sums)
    args = (sums, targets, a, u64(count), T(gamma), T(tau), i32(iterations))
    return "first_step", grids.flat(count), args


def step(K: Array, targets: Array, a: Array, out: Array, tau: float) -> Launch:
    images, n, _ = K.shape
    blocks, shape = grids.rows(images, n)
    return "step", shape, (K, targets, a, out, u32(n), u32(blocks), number(K)(tau))


def small_image(K: Array, targets: Array, a: Array, tau: float, iterations: int) -> Launch:
    images, n, _ = K.shape
    shape = grids.one_block_each(images, grids.small_image_bytes(n, itemsize(K)))
    return "small_image", shape, (K, targets, a, u32(n), number(K)(tau), i32(iterations))


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


def outer(X: Array, a: Array | None, A: Array) -> Launch:
    images, n, d = X.shape
    count = grids.triangle(d)
    sizes = (u32(n), u32(d), u32(count), i32(a is not None))
    return "outer", grids.products(images * count), (X, X if a is None else a, A, *sizes)


def power_sums(V: Array, magnitude: Array, sums: Array, power: int) -> Launch:
    images, values = V.shape
    chunks, shape = grids.chunks(images, values)
    return "power_sums", shape, (V, magnitude, sums, u32(values), u32(chunks), i32(power))


def normalized(V: Array, magnitude: Array, sums: Array, out: Array, power: int) -> Launch:
    images, values = V.shape
    blocks, shape = grids.per_image(images, values)
    args = (V, magnitude, sums, out, u32(values), u32(blocks), i32(power))
    return "normalized", shape, args


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
    """In the shared memory of blocks, if that is large enough."""
    images, d, _ = M.shape
    k = out.shape[-1]
    blocks, shape = grids.scatters(images, d, k, itemsize(M), max_shared)
    arrays = (by.first.bins, by.second.bins, by.first.signs, by.second.signs, out)
    kernel = "scatter" if shape.shared else "scatter_far"
    return kernel, shape, (M, *arrays, u32(d), u32(k), u32(blocks))
