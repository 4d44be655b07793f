"""Gamma-democratic weights on a GPU; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.cancellation import ALIGNED

from . import arrays, launches
from .launcher import Array, Launcher


def dense(
    on: Launcher, X: Array, *, gamma: float, tau: float, iterations: int, order: int
) -> Array:
    """K in memory, made once with its row sums; then a pass over it for each iteration but the
    first, or all of them in shared memory where K fits."""
    images, n, _ = X.shape
    X, exponents = arrays.in_range(on, X)
    K, sums = on.empty((images, n, n), X.dtype), arrays.zeros(on, (images, n), X.dtype)
    on.run(launches.gram(X, K, sums, launches.SQUARE if order == 2 else launches.RECTIFY))
    a, targets = on.empty((images, n), X.dtype), on.empty((images, n), X.dtype)
    on.run(launches.first_step(sums, targets, a, gamma, tau, iterations))
    if iterations > 1 and grids.small_image_bytes(n, X.dtype.itemsize) <= grids.SHARED_BYTES:
        on.run(launches.small_image(K, targets, a, tau, iterations))
    else:
        other = on.empty((images, n), X.dtype)
        for _ in range(iterations - 1):
            on.run(launches.step(K, targets, a, other, tau))
            a, other = other, a
    power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    on.run(launches.restored(a, exponents, power))
    return a


def matrix_free(
    on: Launcher, X: Array, *, gamma: float, tau: float, iterations: int, order: int
) -> Array:
    """K is never built: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, and entry by entry for the rows
    where that is a difference of large numbers, other ones in every iteration
    (``shared/cancellation.py`` says which)."""
    images, n, d = X.shape
    X, exponents = arrays.in_range(on, X)
    M, ones = on.empty((images, d, d), X.dtype), on.empty((images, 0), X.dtype)
    sums = _without_kernel(on, X, ones, M)
    a, targets = on.empty((images, n), X.dtype), on.empty((images, n), X.dtype)
    on.run(launches.first_step(sums, targets, a, gamma, tau, iterations))
    for _ in range(iterations - 1):
        on.run(launches.update(_without_kernel(on, X, a, M), targets, a, tau))
    power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    on.run(launches.restored(a, exponents, power))
    return a


def _without_kernel(on: Launcher, X: Array, v: Array, M: Array) -> Array:
    """K v of every image, and as many numbers after it; v without columns stands for ones. ``M`` is
    written to."""
    images, n, _ = X.shape
    on.run(launches.outer(X, v, M))
    forms = arrays.zeros(on, (2 * images, n), X.dtype)
    on.run(launches.row_forms(X, M, forms))
    on.run(launches.exact_rows(X, v, forms, ALIGNED))
    return forms
