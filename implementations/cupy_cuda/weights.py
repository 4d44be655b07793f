"""Gamma-democratic weights; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from demopool.implementations.shared import grids, scaling
from demopool.implementations.shared.cancellation import ALIGNED

from . import launches, pool
from .launcher import ON_CORES, USUAL, WIDE, Array, Launcher, Tiles, ended, itemsize

Gram = Callable[[Launcher, Array, int], tuple[Array, Array]]
"""K of features, and the sums of its rows, which may come in parts: (images, parts, n)."""

Iterate = Callable[[Launcher, Array, Array, Array, Array, float, int], Array]
"""The last weights, from K, targets, the first weights, room for others, tau and iterations."""


def gram(on: Launcher, X: Array, kind: int, by: Tiles = USUAL) -> tuple[Array, Array]:
    """By our kernels, with sums over every column of tiles."""
    _, n, d = X.shape
    K, sums = _room(on, X, by.side)
    parts = pool.tile_parts(on, X, size=n, columns=d, side=by.side)
    if parts is None:
        on.run(ended(launches.gram(X, K, sums, kind, by.side), by.ending))
    else:
        on.run(ended(launches.gram_parts(X, parts, by.side), by.ending))
        on.run(ended(launches.from_parts(parts, K, sums, kind, by.side), by.sums_parts))
    return K, sums


def gram_tf32(on: Launcher, X: Array, kind: int) -> tuple[Array, Array]:
    """On tensor cores."""
    on.demand_tf32()
    return gram(on, X, kind, ON_CORES)


def gram_wide(on: Launcher, X: Array, kind: int) -> tuple[Array, Array]:
    """In tiles of 128."""
    return gram(on, X, kind, WIDE)


def gram_syrk(on: Launcher, X: Array, kind: int) -> tuple[Array, Array]:
    """One triangle of every image by cuBLAS, which has no SYRK for a batch."""
    K, sums = _room(on, X)
    for image in range(X.shape[0]):
        on.lower_product(X[image, ...], K[image, ...], transposed=False)
    on.run(launches.from_triangle(K, sums, kind))
    return K, sums


def _room(on: Launcher, X: Array, side: int = grids.TILE) -> tuple[Array, Array]:
    images, n, _ = X.shape
    return on.empty((images, n, n), X), on.empty((images, grids.tiles(n, side), n), X)


def gram_cublas(on: Launcher, X: Array, kind: int) -> tuple[Array, Array]:
    """Of second order, by the full product of every image."""
    K = on.xp.matmul(X, on.xp.matrix_transpose(X))
    K *= K
    return K, on.xp.sum(K, axis=-1)


def by_passes(
    on: Launcher, K: Array, targets: Array, a: Array, other: Array, tau: float, iterations: int
) -> Array:
    """A pass over K for each iteration, or all of them by one block for each image where K fits
    into its shared memory."""
    if grids.padded_image_bytes(K.shape[1], itemsize(K)) <= on.max_shared:
        on.run(launches.small_image(K, targets, a, tau, iterations))
        return a
    steps = []
    for _ in range(iterations - 1):
        steps.append(launches.step(K, targets, a, other, tau))
        a, other = other, a
    on.run_all(steps)
    return a


def resident(
    on: Launcher, K: Array, targets: Array, a: Array, other: Array, tau: float, iterations: int
) -> Array:
    """All iterations in one launch, with K in the shared memory of several blocks that wait for
    each other; as ``by_passes`` where the shared memory of the GPU does not hold an image."""
    images, n, _ = K.shape
    by = grids.slices(images, n, itemsize(K), on.processors, on.max_shared) if images else None
    if by is None:
        return by_passes(on, K, targets, a, other, tau, iterations)
    arrived = on.zeros((by.groups,), K, on.xp.uint32)
    on.run(launches.resident(K, targets, a, other, arrived, by, tau, iterations))
    return a if iterations % 2 else other


def dense(
    on: Launcher,
    X: Array,
    *,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
    ordinary: bool = False,
    gram: Gram = gram,
    iterate: Iterate = by_passes,
) -> Array:
    """K in memory, made with its row sums, and then all iterations but the first."""
    X, exponents = (X, None) if ordinary else _in_range(on, X)
    K, sums = gram(on, X, launches.SQUARE if order == 2 else launches.RECTIFY)
    targets, a, other = _vectors(on, X)
    on.run(launches.first_step(sums, targets, a, gamma, tau, iterations))
    if iterations > 1:
        a = iterate(on, K, targets, a, other, tau, iterations)
    power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    return _restored(on, a, exponents, power)


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
    """K is never built: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, two products and one kernel for
    each iteration. Rows for which that is a difference of large numbers are summed entry by entry,
    other ones in every iteration (``shared/cancellation.py`` says which)."""
    X, exponents = (X, None) if ordinary else _in_range(on, X)
    sums = on.empty(X.shape[:-1], X)
    targets, a, other = _vectors(on, X)
    on.run(launches.free_sums(X, *_through_moment(on, X, None), sums, ALIGNED))
    on.run(launches.first_step(sums, targets, a, gamma, tau, iterations))
    for _ in range(iterations - 1):
        through = _through_moment(on, X, a)
        on.run(launches.free_step(X, *through, targets, a, other, tau, ALIGNED))
        a, other = other, a
    power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    return _restored(on, a, exponents, power)


def _through_moment(on: Launcher, X: Array, a: Array | None) -> tuple[Array, Array]:
    """X M and the diagonal of M, the second moment."""
    M = pool.second_moment(on, X, a)
    return on.xp.matmul(X, M), on.contiguous(on.xp.linalg.diagonal(M))


def _vectors(on: Launcher, X: Array) -> tuple[Array, Array, Array]:
    """Targets, weights and the weights after them. In one piece of memory: so they are likely to
    have the same addresses in the next call, and a graph of launches fits again."""
    images, n, _ = X.shape
    space = on.empty((3, images, n), X)
    return space[0, ...], space[1, ...], space[2, ...]


def are_ordinary(on: Launcher, X: Array, low: float, high: float, zero_rows: bool) -> bool:
    """As ``Implementation.looks_ordinary``: X is read once, and one number by the host."""
    found = on.zeros((1,), X, on.xp.int32)
    on.run(launches.unordinary(X, found, low, high, zero_rows))
    return not on.read(found)[0]


def _in_range(on: Launcher, X: Array) -> tuple[Array, Array]:
    """A copy whose largest value in every image is near 1, and the exponents of the scale."""
    images, n, d = X.shape
    out, exponents = on.empty(X.shape, X), on.empty((images,), X, on.xp.int32)
    magnitude = pool.largest(on, on.reshape(X, (images, n * d)))
    on.run(launches.scaled(X, magnitude, out, exponents))
    return out, exponents


def _restored(on: Launcher, a: Array, exponents: Array | None, power: Fraction) -> Array:
    """With the scale of the features put back (``shared/scaling.py`` has the law), in memory of
    their own."""
    if exponents is None:
        return on.xp.asarray(a, copy=True)
    out = on.empty(a.shape, a)
    on.run(launches.restored(a, exponents, out, power))
    return out
