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

SQUARE, RECTIFY = kernels.SQUARE, kernels.RECTIFY
i32 = np.int32


# --- magnitudes ---


def fill(out: Array, value: float) -> Launch:
    return kernels.fill, grids.flat(prod(out.shape)), (flat(out), out.dtype.type(value))


def copied(array: Array, out: Array) -> Launch:
    return kernels.copied, grids.flat(prod(array.shape)), (array, flat(out))


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
    images, n, _ = X.shape
    count = grids.triangle(n)
    return kernels.gram, grids.products(images * count), (X, K, sums, i32(count), i32(kind))


def first_step(
    sums: Array, targets: Array, a: Array, gamma: float, tau: float, iterations: int
) -> Launch:
    T = sums.dtype.type
    args = (flat(sums), flat(targets), flat(a), T(gamma), T(tau), i32(iterations))
    return kernels.first_step, grids.flat(prod(a.shape)), args


def step(K: Array, targets: Array, a: Array, out: Array, tau: float) -> Launch:
    images, n, _ = K.shape
    blocks, shape = grids.rows(images, n)
    return kernels.step, shape, (K, targets, a, out, K.dtype.type(tau), i32(blocks))


def small_image(K: Array, targets: Array, a: Array, tau: float, iterations: int) -> Launch:
    images, n, _ = K.shape
    shape = grids.one_block_each(images, grids.small_image_bytes(n, K.dtype.itemsize))
    return kernels.small_image, shape, (K, targets, a, K.dtype.type(tau), i32(iterations))


def row_forms(X: Array, M: Array, forms: Array) -> Launch:
    images, n, d = X.shape
    down, across = grids.tiles(n), grids.tiles(d)
    shape = grids.products(images * down * across)
    return kernels.row_forms, shape, (X, M, forms, i32(down), i32(across))


def exact_rows(X: Array, v: Array, forms: Array, share: float) -> Launch:
    images, n, _ = X.shape
    return kernels.exact_rows, Shape(images * n, (grids.BLOCK,)), (X, v, forms, X.dtype.type(share))


def update(forms: Array, targets: Array, a: Array, tau: float) -> Launch:
    args = (flat(forms), flat(targets), flat(a), a.dtype.type(tau))
    return kernels.update, grids.flat(prod(a.shape)), args


# --- pooling; ``a`` has no columns for weights of 1 ---


def outer(X: Array, a: Array, A: Array) -> Launch:
    images, _, d = X.shape
    count = grids.triangle(d)
    return kernels.outer, grids.products(images * count), (X, a, A, i32(count))


def weighted_sum(X: Array, a: Array, out: Array) -> Launch:
    images, _, d = X.shape
    blocks, shape = grids.columns(images, d)
    return kernels.weighted_sum, shape, (X, a, out, i32(blocks))


def power_sums(V: Array, magnitude: Array, sums: Array, power: int) -> Launch:
    chunks, shape = grids.chunks(*V.shape)
    return kernels.power_sums, shape, (V, magnitude, sums, i32(chunks), i32(power))


def normalized(V: Array, magnitude: Array, sums: Array, out: Array, power: int) -> Launch:
    blocks, shape = grids.per_image(*V.shape)
    return kernels.normalized, shape, (V, magnitude, sums, out, i32(power), i32(blocks))


def normalized_at_once(V: Array, out: Array, power: int) -> Launch:
    images, values = V.shape
    shape = grids.one_block_each(images, values * V.dtype.itemsize)
    return kernels.normalized_at_once, shape, (V, out, i32(power))


def scatter(
    M: Array, by: PreparedHashes, out: Array, max_shared: int = grids.SHARED_BYTES
) -> Launch:
    """In the shared memory of blocks, if that is large enough."""
    images, d, _ = M.shape
    blocks, shape = grids.scatters(images, d, out.shape[1], M.dtype.itemsize, max_shared)
    kernel = kernels.scatter if shape.shared else kernels.scatter_far
    return kernel, shape, (M, by.h1, by.h2, by.s1, by.s2, out, i32(blocks))


# --- roots ---


def product(P: Array, Q: Array, D: Array, C: Array, of: tuple[float, float, float]) -> Launch:
    """``C = of[0] P Q + of[1] D + of[2] I``."""
    images, d, _ = P.shape
    side = grids.tiles(d)
    numbers = tuple(P.dtype.type(value) for value in of)
    return kernels.product, grids.products(images * side * side), (P, Q, D, C, i32(side), numbers)


def moments(S: Array, traces: Array, squares: Array) -> Launch:
    images, d, _ = S.shape
    blocks, shape = grids.chunks(images, d * d)
    return kernels.moments, shape, (S, traces, squares, i32(blocks))


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
