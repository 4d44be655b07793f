"""Gamma-democratic weights; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from demopool.implementations.cupy_cuda import pool
from demopool.implementations.cupy_cuda.launch import Array, Launch, Launcher, i32, u32, u64
from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.cancellation import ALIGNED

SQUARE, RECTIFY = 0, 1


def dense(
    on: Launcher, X: Array, *, gamma: float, tau: float, iterations: int, order: int
) -> Array:
    """K in memory, made with its row sums; then a pass over it for each iteration but the first,
    or all of them in shared memory where K fits."""
    images, n, d = X.shape
    X, exponents = _in_range(on, X)
    K = on.empty((images, n, n), X)
    sums, targets, a, other = _vectors(on, X)
    kind, count = i32(SQUARE if order == 2 else RECTIFY), grids.triangle(n)
    if images == 1:
        # cuBLAS makes a triangle for one image, not for a batch of them.
        on.lower_product(X[0, ...], K[0, ...], transposed=False)
        on.run("from_triangle", grids.products(count), K, sums, u32(n), kind)
    else:
        sizes = (u32(n), u32(d), u32(count))
        on.run("gram", grids.products(images * count), X, K, sums, *sizes, kind)
    _first_step(on, sums, targets, a, gamma, tau, iterations)
    number = on.number(X)
    small = grids.small_image_bytes(n, on.itemsize(X))
    if iterations > 1 and small <= on.most_shared:
        shape = grids.one_block_each(images, small)
        on.run("small_image", shape, K, targets, a, u32(n), number(tau), i32(iterations))
    else:
        blocks, shape = grids.rows(images, n)
        launches: list[Launch] = []
        for _ in range(iterations - 1):
            args = (K, targets, a, other, u32(n), u32(blocks), number(tau))
            launches.append(("step", shape, args))
            a, other = other, a
        on.run_all(launches)
    return _restored(on, a, exponents, gamma, tau, iterations, order)


def matrix_free(
    on: Launcher, X: Array, *, gamma: float, tau: float, iterations: int, order: int
) -> Array:
    """K is never built: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, two products and one kernel for
    each iteration. Rows for which that is a difference of large numbers are summed entry by entry,
    other ones in every iteration (``shared/cancellation.py`` says which)."""
    images, n, d = X.shape
    X, exponents = _in_range(on, X)
    sums, targets, a, other = _vectors(on, X)
    number = on.number(X)
    blocks, shape = grids.rows(images, n)
    sizes, share = (u32(n), u32(d), u32(blocks)), number(ALIGNED)
    on.run("free_sums", shape, X, *_through_moment(on, X, None), sums, *sizes, share)
    _first_step(on, sums, targets, a, gamma, tau, iterations)
    for _ in range(iterations - 1):
        args = (X, *_through_moment(on, X, a), targets, a, other, *sizes, number(tau), share)
        on.run("free_step", shape, *args)
        a, other = other, a
    return _restored(on, a, exponents, gamma, tau, iterations, order)


def _through_moment(on: Launcher, X: Array, a: Array | None) -> tuple[Array, Array]:
    """X M and the diagonal of M, the second moment."""
    M = pool.second_moment(on, X, a)
    return on.xp.matmul(X, M), on.contiguous(on.xp.linalg.diagonal(M))


def _vectors(on: Launcher, X: Array) -> tuple[Array, Array, Array, Array]:
    """Row sums, targets, weights and the weights after them, zero. In one piece of memory: so they
    are likely to have the same addresses in the next call, and a graph of launches fits again."""
    images, n, _ = X.shape
    space = on.zeros((4, images, n), X)
    return space[0, ...], space[1, ...], space[2, ...], space[3, ...]


def _in_range(on: Launcher, X: Array) -> tuple[Array, Array]:
    """A copy whose largest value in every image is near 1, and the exponents of the scale."""
    images, n, d = X.shape
    out, exponents = on.empty(X.shape, X), on.empty((images,), X, on.xp.int32)
    magnitude = pool.largest(on, on.reshape(X, (images, n * d)))
    blocks, shape = grids.per_image(images, n * d)
    on.run("scaled", shape, X, magnitude, out, exponents, u32(n * d), u32(blocks))
    return out, exponents


def _first_step(
    on: Launcher,
    sums: Array,
    targets: Array,
    a: Array,
    gamma: float,
    tau: float,
    iterations: int,
) -> None:
    """The targets, and the weights after the first iteration."""
    count, number = sums.shape[0] * sums.shape[1], on.number(sums)
    settings = (u64(count), number(gamma), number(tau), i32(iterations))
    on.run("first_step", grids.flat(count), sums, targets, a, *settings)


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
    images, n = a.shape
    power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    number = on.number(a)
    parts = (number(part) for part in scaling.in_two_parts(power, number))
    out = on.empty(a.shape, a)
    blocks, shape = grids.per_image(images, n)
    on.run("restored", shape, a, exponents, out, *parts, u32(n), u32(blocks))
    return out
