"""Gamma-democratic weights on a GPU; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

import numpy as np

from demopool.implementations.numba_cuda import arrays, kernels
from demopool.implementations.numba_cuda.arrays import Array
from demopool.implementations.numba_cuda.launch import Launcher
from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.cancellation import ALIGNED


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
    a, targets = _start(on, sums, (images, n), gamma, tau, iterations)
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
    where that is a difference of large numbers, other ones in every iteration
    (``shared/cancellation.py`` says which)."""
    images, n, d = X.shape
    dtype = X.dtype
    X, exponents = arrays.in_range(on, X)
    M, ones = on.empty((images, d, d), dtype), on.empty((images, 0), dtype)
    a, targets = _start(on, _without_kernel(on, X, ones, M), (images, n), gamma, tau, iterations)
    for _ in range(iterations - 1):
        forms = _without_kernel(on, X, a, M)
        flat = (arrays.flat(forms), arrays.flat(targets), arrays.flat(a))
        on.run(kernels.update, grids.flat(images * n), *flat, dtype.type(tau))
    return _restored(on, a, exponents, gamma, tau, iterations, order)


def _without_kernel(on: Launcher, X: Array, v: Array, M: Array) -> Array:
    """K v of every image, and as many numbers after it; v without columns stands for ones. ``M`` is
    written to."""
    images, n, d = X.shape
    count = grids.triangle(d)
    on.run(kernels.outer, grids.products(images * count), X, v, M, np.int32(count))
    forms = on.full((2 * images, n), X.dtype)
    down, across = grids.tiles(n), grids.tiles(d)
    shape = grids.products(images * down * across)
    on.run(kernels.row_forms, shape, X, M, forms, np.int32(down), np.int32(across))
    share = X.dtype.type(ALIGNED)
    on.run(kernels.exact_rows, grids.Shape(images * n, (grids.BLOCK,)), X, v, forms, share)
    return forms


def _start(
    on: Launcher,
    sums: Array,
    shape: tuple[int, int],
    gamma: float,
    tau: float,
    iterations: int,
) -> tuple[Array, Array]:
    """The weights after the first iteration, and the targets."""
    a, targets = on.empty(shape, sums.dtype), on.empty(shape, sums.dtype)
    number = sums.dtype.type
    flat = (arrays.flat(sums), arrays.flat(targets), arrays.flat(a))
    launch = grids.flat(shape[0] * shape[1])
    on.run(kernels.first_step, launch, *flat, number(gamma), number(tau), np.int32(iterations))
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
