"""A launch of each kernel of cupy:cuda on given arrays, as the library makes it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from demopool import ptx
from demopool.implementations.cupy_cuda import emulated, signatures, sketch
from demopool.implementations.cupy_cuda.launch import Launch, i32, u32, u64
from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.grids import Shape

Array = Any

ARCH = "sm_80"
SQUARE, RECTIFY, KEEP = range(3)
"""What becomes of a product, as the source has it."""


def run(module: ptx.Module, made: Launch, **options: Any) -> list[Array]:
    """All arrays of a launch after it; those that were given stay as they are."""
    kernel, shape, given = made
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in given]
    started(module, (kernel, shape, tuple(args)), **options)
    return [arg for arg in args if isinstance(arg, np.ndarray)]


def started(module: ptx.Module, made: Launch, **options: Any) -> ptx.Counts:
    """A launch on the arrays themselves, and what it did."""
    kernel, shape, args = made
    options.setdefault("most_shared", ptx.LIMITS[ARCH].shared_per_block)
    name = signatures.instance(kernel, args)
    return module.launch(name, shape.blocks, shape.threads, args, shape.shared, **options)


def compiled(made: Launch) -> ptx.Module:
    """The kernel alone, once for each T."""
    kernel, _, args = made
    return emulated.compiled(signatures.instance(kernel, args), ARCH)


def _made(kernel: str, shape: Shape, *args: Any) -> Launch:
    """What the library refuses is no launch here either."""
    signatures.check(kernel, shape, args, ptx.LIMITS[ARCH].shared_per_block)
    return kernel, shape, args


def _zeros(like: Array, *shape: int) -> Array:
    return np.zeros(shape, like.dtype)


def _unwritten(like: Array, *shape: int) -> Array:
    """What no kernel may read: it has to write all of it."""
    return np.full(shape, np.nan, like.dtype)


# --- magnitudes ---


def largest(V: Array, chunks: int = 2) -> Launch:
    images, values = V.shape
    shape = Shape(images * chunks, (grids.BLOCK,))
    return _made("largest", shape, V, _zeros(V, images), u32(values), u32(chunks))


def scaled(X: Array, magnitude: Array) -> Launch:
    images, values = X.shape
    blocks, shape = grids.per_image(images, values)
    results = (_unwritten(X, *X.shape), np.full(images, -1, i32))
    return _made("scaled", shape, X, magnitude, *results, u32(values), u32(blocks))


def restored(a: Array, exponents: Array, power: float) -> Launch:
    images, n = a.shape
    blocks, shape = grids.per_image(images, n)
    out = _unwritten(a, images, n)
    parts = (a.dtype.type(part) for part in scaling.in_two_parts(Fraction(power), a.dtype))
    return _made("restored", shape, a, exponents, out, *parts, u32(n), u32(blocks))


# --- weights ---


def gram(X: Array, kind: int = SQUARE) -> Launch:
    images, n, d = X.shape
    count = grids.triangle(n)
    results = (_unwritten(X, images, n, n), _zeros(X, images, n))
    sizes = (u32(n), u32(d), u32(count))
    return _made("gram", grids.products(images * count), X, *results, *sizes, i32(kind))


def outer(X: Array, a: Array | None) -> Launch:
    images, n, d = X.shape
    count = grids.triangle(d)
    arrays = (X, X if a is None else a, _unwritten(X, images, d, d))
    sizes = (u32(n), u32(d), u32(count), i32(a is not None))
    return _made("outer", grids.products(images * count), *arrays, *sizes)


def from_triangle(K: Array, kind: int = SQUARE) -> Launch:
    """Above the diagonal there is junk. Row sums start at 0, those that nobody wants too."""
    n = len(K)
    K = np.where(np.tri(n, dtype=bool), K, K.dtype.type(np.nan))
    shape = grids.products(grids.triangle(n))
    return _made("from_triangle", shape, K, _zeros(K, n), u32(n), i32(kind))


def first_step(sums: Array, gamma: float = 0.5, tau: float = 0.5, iterations: int = 10) -> Launch:
    number = sums.dtype.type
    results = (_unwritten(sums, sums.size), _unwritten(sums, sums.size))
    numbers = (u64(sums.size), number(gamma), number(tau), i32(iterations))
    return _made("first_step", grids.flat(sums.size), sums, *results, *numbers)


def step(K: Array, targets: Array, a: Array, tau: float = 0.5) -> Launch:
    images, n, _ = K.shape
    blocks, shape = grids.rows(images, n)
    out = _unwritten(K, images, n)
    return _made("step", shape, K, targets, a, out, u32(n), u32(blocks), K.dtype.type(tau))


def small_image(
    K: Array, targets: Array, a: Array, tau: float = 0.5, iterations: int = 4
) -> Launch:
    images, n, _ = K.shape
    shape = grids.one_block_each(images, grids.small_image_bytes(n, K.dtype.itemsize))
    numbers = (u32(n), K.dtype.type(tau), i32(iterations))
    return _made("small_image", shape, K, targets, a, *numbers)


def free_sums(X: Array, XM: Array, diagonal: Array, share: float) -> Launch:
    images, n, d = X.shape
    blocks, shape = grids.rows(images, n)
    sizes = (u32(n), u32(d), u32(blocks))
    sums = _unwritten(X, images, n)
    return _made("free_sums", shape, X, XM, diagonal, sums, *sizes, X.dtype.type(share))


def free_step(
    X: Array,
    XM: Array,
    diagonal: Array,
    targets: Array,
    a: Array,
    tau: float = 0.5,
    share: float = 0.25,
) -> Launch:
    images, n, d = X.shape
    blocks, shape = grids.rows(images, n)
    arrays = (X, XM, diagonal, targets, a, _unwritten(X, images, n))
    numbers = (u32(n), u32(d), u32(blocks), X.dtype.type(tau), X.dtype.type(share))
    return _made("free_step", shape, *arrays, *numbers)


# --- the normalised result ---


def power_sums(V: Array, magnitude: Array, power: int = 1, chunks: int = 2) -> Launch:
    images, values = V.shape
    shape = Shape(images * chunks, (grids.BLOCK,))
    sums = _zeros(V, images)
    return _made("power_sums", shape, V, magnitude, sums, u32(values), u32(chunks), i32(power))


def normalized(V: Array, magnitude: Array, sums: Array, power: int = 1) -> Launch:
    images, values = V.shape
    blocks, shape = grids.per_image(images, values)
    arrays = (V, magnitude, sums, _unwritten(V, *V.shape))
    return _made("normalized", shape, *arrays, u32(values), u32(blocks), i32(power))


def normalized_at_once(V: Array, power: int = 1) -> Launch:
    images, values = V.shape
    shape = grids.one_block_each(images, values * V.dtype.itemsize)
    out = _unwritten(V, *V.shape)
    return _made("normalized_at_once", shape, V, out, u32(values), i32(power))


# --- sketches ---


def count_sketch(X: Array, a: Array | None, by: sketch.CountSketch) -> Launch:
    images, n, d = X.shape
    k = len(by.starts) - 1
    blocks, shape = grids.sketches(images * n, k)
    weights = X if a is None else a
    arrays = (X, weights, by.starts, by.order, by.signs, _unwritten(X, images, n, k))
    sizes = (u64(images * n), u32(d), u32(k), u32(blocks), i32(a is not None))
    return _made("count_sketch", shape, *arrays, *sizes)


def scatter(M: Array, by: sketch.PreparedHashes) -> Launch:
    images, d, _ = M.shape
    first, second, hashes = by
    blocks, shape = grids.scatters(images, d, hashes.k, M.dtype.itemsize)
    arrays = (first.bins, second.bins, first.signs, second.signs, _zeros(M, images, hashes.k))
    return _made("scatter", shape, M, *arrays, u32(d), u32(hashes.k), u32(blocks))


def scatter_far(M: Array, by: sketch.PreparedHashes) -> Launch:
    _, shape, args = scatter(M, by)
    return _made("scatter_far", shape._replace(shared=0), *args)
