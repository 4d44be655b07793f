"""Pooling and the final normalisation on a GPU."""

from __future__ import annotations

from demopool.implementations.shared import grids

from . import arrays, launches
from .launcher import Array, Launcher


def direct(on: Launcher, X: Array, a: Array | None, *, order: int) -> Array:
    """``X^T diag(a) X``, or ``sum_i a_i x_i`` for order 1."""
    images, _, d = X.shape
    weights = on.empty((images, 0), X.dtype) if a is None else a
    out = on.empty((images, d) if order == 1 else (images, d, d), X.dtype)
    if order == 1:
        on.run(launches.weighted_sum(X, weights, out))
    else:
        second_moment(on, X, weights, out, tile_parts(on, X, size=d, columns=X.shape[1]))
    return out


def second_moment(on: Launcher, X: Array, a: Array, out: Array, parts: Array | None) -> None:
    """``X^T diag(a) X``; ``a`` has no columns for weights of 1."""
    if parts is None:
        on.run(launches.outer(X, a, out))
    else:
        on.run(launches.outer_parts(X, a, parts))
        on.run(launches.from_parts(parts, out, out, launches.KEEP))


def tile_parts(on: Launcher, X: Array, *, size: int, columns: int) -> Array | None:
    """Room for the parts of symmetric products of ``size``, if several blocks should share a tile:
    one block for each would leave most of a GPU without work."""
    tiles = X.shape[0] * grids.triangle(size)
    count = grids.parts(tiles, columns, on.processors, X.dtype.itemsize)
    return None if count == 1 else on.empty((tiles, count, grids.TILE**2), X.dtype)


def normalize(on: Launcher, V: Array, *, kind: str, overwrite: bool = False) -> Array:
    """Signed square root and l2 norm, or l2 alone, of every row of a matrix."""
    if kind == "none":
        return arrays.copied(on, V)
    power = 1 if kind == "signed-sqrt-l2" else 2
    out = V if overwrite else on.empty(V.shape, V.dtype)
    rows, values = V.shape
    if (values + grids.WARPS) * V.dtype.itemsize <= grids.SHARED_BYTES:
        on.run(launches.normalized_at_once(V, out, power))
        return out
    magnitude = arrays.largest(on, V)
    sums = on.empty((rows, grids.chunks(rows, values)[0]), V.dtype)
    on.run(launches.power_sums(V, magnitude, sums, power))
    on.run(launches.normalized(V, magnitude, sums, out, power))
    return out
