"""Gamma-democratic weights on a GPU; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable

from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.cancellation import ALIGNED

from . import arrays, launches, pool
from .launcher import Array, Launcher


def dense(
    on: Launcher,
    X: Array,
    *,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
    ordinary: bool = False,
) -> Array:
    """K in memory, made once with its row sums; then a pass over it for each iteration but the
    first, or all of them in shared memory where K fits."""
    images, n, _ = X.shape
    X, exponents = (X, None) if ordinary else arrays.in_range(on, X)
    K, sums = _gram(on, X, launches.SQUARE if order == 2 else launches.RECTIFY)
    a, targets = on.empty((images, n), X.dtype), on.empty((images, n), X.dtype)
    on.run(launches.first_step(sums, targets, a, gamma, tau, iterations))
    if iterations > 1 and grids.small_image_bytes(n, X.dtype.itemsize) <= grids.SHARED_BYTES:
        on.run(launches.small_image(K, targets, a, tau, iterations))
    else:
        other = on.empty((images, n), X.dtype)
        for _ in range(iterations - 1):
            on.run(launches.step(K, targets, a, other, tau))
            a, other = other, a
    if exponents is not None:
        power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
        on.run(launches.restored(a, exponents, power))
    return a


def matrix_free(
    on: Launcher,
    X: Array,
    *,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
    ordinary: bool = False,
) -> Array:
    """K is never built: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, and entry by entry for the rows
    where that is a difference of large numbers, other ones in every iteration
    (``shared/cancellation.py`` says which)."""
    images, n, _ = X.shape
    X, exponents = (X, None) if ordinary else arrays.in_range(on, X)
    multiply, ones = _without_kernel(on, X), on.empty((images, 0), X.dtype)
    a, targets, sums = (on.empty((images, n), X.dtype) for _ in range(3))
    multiply(ones, sums)
    on.run(launches.first_step(sums, targets, a, gamma, tau, iterations))
    for _ in range(iterations - 1):
        multiply(a, sums)
        on.run(launches.update(sums, targets, a, tau))
    if exponents is not None:
        power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
        on.run(launches.restored(a, exponents, power))
    return a


def _gram(on: Launcher, X: Array, kind: int) -> tuple[Array, Array]:
    """K, and the sums of its rows over every column of tiles."""
    images, n, d = X.shape
    K = on.empty((images, n, n), X.dtype)
    sums = on.empty((images, grids.tiles(n), n), X.dtype)
    parts = pool.tile_parts(on, X, size=n, columns=d)
    if parts is None:
        on.run(launches.gram(X, K, sums, kind))
    else:
        on.run(launches.gram_parts(X, parts))
        on.run(launches.from_parts(parts, K, sums, kind))
    return K, sums


def _without_kernel(on: Launcher, X: Array) -> Callable[[Array, Array], None]:
    """Writes K v of every image, for v and where it goes; v without columns stands for ones. What
    it needs on the way is made once for all iterations."""
    images, n, d = X.shape
    M = on.empty((images, d, d), X.dtype)
    forms = on.empty((2, images, n, grids.tiles(d)), X.dtype)
    parts = pool.tile_parts(on, X, size=d, columns=n)

    def multiply(v: Array, sums: Array) -> None:
        pool.second_moment(on, X, v, M, parts)
        on.run(launches.row_forms(X, M, forms))
        on.run(launches.exact_rows(X, v, forms, sums, ALIGNED))

    return multiply
