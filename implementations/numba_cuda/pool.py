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
    on.run((launches.weighted_sum if order == 1 else launches.outer)(X, weights, out))
    return out


def normalize(on: Launcher, V: Array, *, kind: str, overwrite: bool = False) -> Array:
    """Signed square root and l2 norm, or l2 alone, of every row of a matrix."""
    if kind == "none":
        return arrays.copied(on, V)
    count, values = V.shape
    power = 1 if kind == "signed-sqrt-l2" else 2
    out = V if overwrite else on.empty(V.shape, V.dtype)
    if (values + grids.WARPS) * V.dtype.itemsize <= grids.SHARED_BYTES:
        on.run(launches.normalized_at_once(V, out, power))
        return out
    magnitude, sums = arrays.largest(on, V), arrays.zeros(on, (count,), V.dtype)
    on.run(launches.power_sums(V, magnitude, sums, power))
    on.run(launches.normalized(V, magnitude, sums, out, power))
    return out
