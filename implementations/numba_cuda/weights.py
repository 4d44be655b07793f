"""Gamma-democratic weights on a GPU; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

import numpy as np
from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.democratic import ALIGNED

from . import arrays, kernels
from .arrays import Array
from .launch import Launcher


def dense(
    on: Launcher, X: Array, *, gamma: float, tau: float, iterations: int, order: int
) -> Array:
    """K in memory, made once with its row sums; then a pass over it for each iteration but the
    first, or all of them in shared memory where K fits."""
    images, n, _ = X.shape
    dtype = X.dtype
    X, exponents = arrays.in_range(on, X)
    K = on.empty((images, n, n), dtype)
    sums = on.full((images, n), dtype)
    count = grids.triangle(n)
    kind = np.int32(kernels.SQUARE if order == 2 else kernels.RECTIFY)
    on.run(kernels.gram, grids.products(images * count), X, K, sums, np.int32(count), kind)
    a, targets = _start(on, sums, gamma, tau, iterations)
    size = dtype.itemsize
    if iterations > 1 and grids.small_image_bytes(n, size) <= grids.SHARED_BYTES:
        shape = grids.Shape(images, (grids.BLOCK,), grids.small_image_bytes(n, size))
        on.run(kernels.small_image, shape, K, targets, a, dtype.type(tau), np.int32(iterations))
    else:
        other = on.empty((images, n), dtype)
        blocks, shape = grids.rows(images, n)
        for _ in range(iterations - 1):
            on.run(kernels.step, shape, K, targets, a, other, dtype.type(tau), np.int32(blocks))
            a, other = other, a
    return _restored(on, a, exponents, gamma, tau, iterations, order)


def matrix_free(
    on: Launcher, X: Array, *, gamma: float, tau: float, iterations: int, order: int
) -> Array:
    """K is never built: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, and entry by entry for the rows
    where that is a difference of large numbers (``shared/democratic.py`` says which)."""
    images, n, d = X.shape
    dtype = X.dtype
    X, exponents = arrays.in_range(on, X)
    M, ones = on.empty((images, d, d), dtype), on.empty((images, 0), dtype)
    sums = _by_moment(on, X, ones, M)
    doubtful = _doubtful(on, X, sums)
    _mend(on, X, doubtful, ones, sums)
    a, targets = _start(on, sums, gamma, tau, iterations)
    for _ in range(iterations - 1):
        forms = _by_moment(on, X, a, M)
        _mend(on, X, doubtful, a, forms)
        flat = (arrays.flat(forms), arrays.flat(targets), arrays.flat(a))
        on.run(kernels.update, grids.flat(images * n), *flat, dtype.type(tau))
    return _restored(on, a, exponents, gamma, tau, iterations, order)


def _by_moment(on: Launcher, X: Array, v: Array, M: Array) -> Array:
    """K v; v without columns stands for ones. ``M`` is written to."""
    images, n, d = X.shape
    count = grids.triangle(d)
    on.run(kernels.outer, grids.products(images * count), X, v, M, np.int32(count))
    forms = on.full((images, n), X.dtype)
    down, across = grids.tiles(n), grids.tiles(d)
    shape = grids.products(images * down * across)
    on.run(kernels.row_forms, shape, X, M, forms, np.int32(down), np.int32(across))
    return forms


def _doubtful(on: Launcher, X: Array, sums: Array) -> Array:
    """Which rows of K are not to be had through the moment, from its row sums."""
    images, n, d = X.shape
    norms, totals = on.empty((images, n), X.dtype), on.full((images,), X.dtype)
    blocks, shape = grids.rows(images, n)
    on.run(kernels.squared_norms, shape, X, norms, totals, np.int32(blocks))
    doubtful = on.empty((images, n), np.dtype(np.int32))
    share = X.dtype.type(ALIGNED / d)
    blocks, shape = grids.per_image(images, n)
    on.run(kernels.doubtful_rows, shape, sums, norms, totals, share, doubtful, np.int32(blocks))
    return doubtful


def _mend(on: Launcher, X: Array, doubtful: Array, v: Array, forms: Array) -> None:
    images, n, _ = X.shape
    on.run(kernels.exact_rows, grids.Shape(images * n, (grids.BLOCK,)), X, doubtful, v, forms)


def _start(
    on: Launcher, sums: Array, gamma: float, tau: float, iterations: int
) -> tuple[Array, Array]:
    """The weights after the first iteration, and the targets."""
    a, targets = on.empty(sums.shape, sums.dtype), on.empty(sums.shape, sums.dtype)
    number = sums.dtype.type
    flat = (arrays.flat(sums), arrays.flat(targets), arrays.flat(a))
    shape = grids.flat(sums.shape[0] * sums.shape[1])
    on.run(kernels.first_step, shape, *flat, number(gamma), number(tau), np.int32(iterations))
    return a, targets


def _restored(
    on: Launcher,
    a: Array,
    exponents: Array,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
) -> Array:
    """With the scale of the features put back (``shared/scaling.py`` has the law)."""
    power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    parts = (a.dtype.type(part) for part in scaling.in_two_parts(power, a.dtype))
    blocks, shape = grids.per_image(*a.shape)
    on.run(kernels.restored, shape, a, exponents, *parts, np.int32(blocks))
    return a
