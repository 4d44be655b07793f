"""A launch of each kernel of numba:cuda on given arrays, as the library makes it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from demopool import ptx
from demopool.implementations.numba_cuda import kernels, launch
from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.grids import Shape

Array = Any
Launch = tuple[Callable[..., None], Shape, tuple[Any, ...]]

i32 = np.int32


def run(module: ptx.Module, made: Launch, **options: Any) -> list[Array]:
    """All arrays of a launch after it; those that were given stay as they are."""
    kernel, shape, given = made
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in given]
    module.launch(kernel.__name__, shape.blocks, shape.threads, args, shape.shared, **options)
    return [arg for arg in args if isinstance(arg, np.ndarray)]


def compiled(made: Launch, arch: str = "sm_80") -> ptx.Module:
    kernel, _, args = made
    return launch.compiled(kernel, launch.signature(args), arch)


def _zeros(like: Array, *shape: int) -> Array:
    return np.zeros(shape, like.dtype)


def _unwritten(like: Array, *shape: int) -> Array:
    """What no kernel may read: it has to write all of it."""
    return np.full(shape, np.nan, like.dtype)


# --- magnitudes ---


def fill(size: int, value: Any) -> Launch:
    return kernels.fill, grids.flat(size), (_unwritten(value, size), value)


def copied(array: Array) -> Launch:
    return kernels.copied, grids.flat(array.size), (array, _unwritten(array, array.size))


def largest(V: Array, chunks: int = 2) -> Launch:
    images = len(V)
    args = (V, _zeros(V, images), i32(chunks))
    return kernels.largest, Shape(chunks * images, (grids.BLOCK,)), args


def scaled(X: Array, magnitude: Array) -> Launch:
    blocks, shape = grids.per_image(*X.shape)
    out, exponents = _unwritten(X, *X.shape), np.full(len(X), -1, i32)
    return kernels.scaled, shape, (X, magnitude, out, exponents, i32(blocks))


# --- weights ---


def gram(X: Array, kind: int = kernels.SQUARE) -> Launch:
    images, n, _ = X.shape
    count = grids.triangle(n)
    args = (X, _unwritten(X, images, n, n), _zeros(X, images, n), i32(count), i32(kind))
    return kernels.gram, grids.products(images * count), args


def first_step(sums: Array, gamma: float = 0.5, tau: float = 0.5, iterations: int = 10) -> Launch:
    number = sums.dtype.type
    targets, a = _unwritten(sums, sums.size), _unwritten(sums, sums.size)
    numbers = (number(gamma), number(tau), i32(iterations))
    return kernels.first_step, grids.flat(sums.size), (sums, targets, a, *numbers)


def step(K: Array, targets: Array, a: Array, tau: float = 0.5) -> Launch:
    images, n, _ = K.shape
    blocks, shape = grids.rows(images, n)
    out = _unwritten(K, images, n)
    return kernels.step, shape, (K, targets, a, out, K.dtype.type(tau), i32(blocks))


def small_image(
    K: Array, targets: Array, a: Array, tau: float = 0.5, iterations: int = 4
) -> Launch:
    images, n, _ = K.shape
    shape = Shape(images, (grids.BLOCK,), grids.small_image_bytes(n, K.dtype.itemsize))
    return kernels.small_image, shape, (K, targets, a, K.dtype.type(tau), i32(iterations))


def row_forms(X: Array, M: Array) -> Launch:
    images, n, d = X.shape
    down, across = grids.tiles(n), grids.tiles(d)
    args = (X, M, _zeros(X, 2 * images, n), i32(down), i32(across))
    return kernels.row_forms, grids.products(images * down * across), args


def exact_rows(X: Array, v: Array, forms: Array, share: float) -> Launch:
    images, n, _ = X.shape
    args = (X, v, forms, X.dtype.type(share))
    return kernels.exact_rows, Shape(images * n, (grids.BLOCK,)), args


def update(forms: Array, targets: Array, a: Array, tau: float = 0.5) -> Launch:
    return kernels.update, grids.flat(a.size), (forms, targets, a, a.dtype.type(tau))


def restored(a: Array, exponents: Array, power: float) -> Launch:
    blocks, shape = grids.per_image(*a.shape)
    parts = (a.dtype.type(part) for part in scaling.in_two_parts(Fraction(power), a.dtype))
    return kernels.restored, shape, (a, exponents, *parts, i32(blocks))


# --- pooling ---


def outer(X: Array, a: Array) -> Launch:
    images, _, d = X.shape
    count = grids.triangle(d)
    args = (X, a, _unwritten(X, images, d, d), i32(count))
    return kernels.outer, grids.products(images * count), args


def weighted_sum(X: Array, a: Array) -> Launch:
    images, _, d = X.shape
    blocks, shape = grids.columns(images, d)
    return kernels.weighted_sum, shape, (X, a, _unwritten(X, images, d), i32(blocks))


def power_sums(V: Array, magnitude: Array, power: int = 1, chunks: int = 2) -> Launch:
    images = len(V)
    args = (V, magnitude, _zeros(V, images), i32(chunks), i32(power))
    return kernels.power_sums, Shape(chunks * images, (grids.BLOCK,)), args


def normalized(V: Array, magnitude: Array, sums: Array, power: int = 1) -> Launch:
    blocks, shape = grids.per_image(*V.shape)
    args = (V, magnitude, sums, _unwritten(V, *V.shape), i32(power), i32(blocks))
    return kernels.normalized, shape, args


def normalized_at_once(V: Array, power: int = 1) -> Launch:
    shape = grids.one_block_each(len(V), V[0].nbytes)
    return kernels.normalized_at_once, shape, (V, _unwritten(V, *V.shape), i32(power))


def scatter(M: Array, hashes: tuple[Array, ...], k: int) -> Launch:
    """``hashes`` are both bins and both signs."""
    images, d, _ = M.shape
    blocks, shape = grids.scatters(images, d, k, M.dtype.itemsize)
    return kernels.scatter, shape, (M, *hashes, _zeros(M, images, k), i32(blocks))


def scatter_far(M: Array, hashes: tuple[Array, ...], k: int) -> Launch:
    _, shape, args = scatter(M, hashes, k)
    return kernels.scatter_far, shape._replace(shared=0), args


# --- roots ---


def product(P: Array, Q: Array, D: Array, of: tuple[float, float, float]) -> Launch:
    images, d, _ = P.shape
    side = grids.tiles(d)
    numbers = tuple(P.dtype.type(value) for value in of)
    args = (P, Q, D, _unwritten(P, *P.shape), i32(side), numbers)
    return kernels.product, grids.products(images * side * side), args


def moments(S: Array, blocks: int = 4) -> Launch:
    images = len(S)
    args = (S, _zeros(S, images), _zeros(S, images), i32(blocks))
    return kernels.moments, Shape(blocks * images, (grids.BLOCK,)), args


def bounds(traces: Array, squares: Array, d: int) -> Launch:
    numbers = (traces.dtype.type(d), np.finfo(traces.dtype).eps)
    args = (traces, squares, *numbers, _unwritten(traces, traces.size))
    return kernels.bounds, grids.flat(traces.size), args


def start(A: Array, square: Array, bound: Array, of: tuple[float, float]) -> Launch:
    images, d, _ = A.shape
    blocks, shape = grids.per_image(images, d * d)
    numbers = tuple(A.dtype.type(value) for value in of)
    results = (_unwritten(A, *A.shape), _unwritten(A, *A.shape))
    return kernels.start, shape, (A, square, bound, *results, numbers, i32(blocks))


def finish(Y: Array, bound: Array, exponents: Array) -> Launch:
    images, d, _ = Y.shape
    blocks, shape = grids.per_image(images, d * d)
    root_of_two = Y.dtype.type(np.sqrt(2))
    args = (Y, bound, exponents, root_of_two, _unwritten(Y, *Y.shape), i32(blocks))
    return kernels.finish, shape, args
