"""Weighted pooling and the final normalisation."""

from __future__ import annotations

from demopool.implementations.shared import grids

from . import launches
from .launcher import ON_CORES, USUAL, WIDE, Array, Launcher, Tiles, ended, itemsize

_POWERS = {"none": 0, "signed-sqrt-l2": 1, "l2": 2}
"""Of what the squared norm is the sum: the squares of roots are the magnitudes."""


def direct(on: Launcher, X: Array, a: Array | None, *, order: int, norm: str = "none") -> Array:
    """``X^T diag(a) X``, or ``sum_i a_i x_i`` for order 1."""
    if order == 2:
        return second_moment(on, X, a, norm)
    if a is None:
        return on.xp.sum(X, axis=-2)
    return on.xp.matmul(a[:, None, :], X)[:, 0, :]


def cublas(on: Launcher, X: Array, a: Array | None, *, order: int, norm: str = "none") -> Array:
    """The full product of every image. Nobody promises that its two halves are the same bits, so
    the mean of both is taken, or for a ``norm`` the lower one."""
    weighted = X if a is None else X * a[:, :, None]
    A = on.xp.matmul(on.xp.matrix_transpose(X), weighted)
    if norm == "none":
        return A * 0.5 + on.xp.matrix_transpose(A) * 0.5
    return _normalized_triangles(on, on.contiguous(A), _POWERS[norm])


def tf32(on: Launcher, X: Array, a: Array | None, *, order: int, norm: str = "none") -> Array:
    """Half of the product on tensor cores."""
    on.demand_tf32()
    return second_moment(on, X, a, norm, ON_CORES)


def wide(on: Launcher, X: Array, a: Array | None, *, order: int, norm: str = "none") -> Array:
    """Half of the product, in tiles of 128."""
    return second_moment(on, X, a, norm, WIDE)


def syrk(on: Launcher, X: Array, a: Array | None, *, order: int, norm: str = "none") -> Array:
    """Half of the product of every image by cuBLAS, which has no SYRK for a batch."""
    images, _, d = X.shape
    out = on.empty((images, d, d), X)
    weighted = X if a is None else X * on.xp.sqrt(a)[:, :, None]
    for image in range(images):
        on.lower_product(weighted[image, ...], out[image, ...], transposed=True)
    if norm != "none":
        return _normalized_triangles(on, out, _POWERS[norm])
    on.run(launches.from_triangle(out, out, launches.KEEP))
    return out


def second_moment(
    on: Launcher, X: Array, a: Array | None, norm: str = "none", by: Tiles = USUAL
) -> Array:
    """Half of the product by our kernels, and its mirror image. With a norm they write one
    triangle, and every tile its part of the sum."""
    images, n, d = X.shape
    power = _POWERS[norm]
    kind = launches.KEEP + power
    out = sums = on.empty((images, d, d), X)
    if power:
        sums = on.empty((images, 2, grids.triangle(d, by.side)), X)
    parts = tile_parts(on, X, size=d, columns=n, side=by.side)
    if parts is None:
        on.run(ended(launches.outer(X, a, out, sums, kind, by.side), by.ending))
    else:
        on.run(ended(launches.outer_parts(X, a, parts, by.side), by.ending))
        on.run(ended(launches.from_parts(parts, out, sums, kind, by.side), by.sums_parts))
    if power:
        on.run(launches.normalized_triangle(out, sums, out, power))
    return out


def _normalized_triangles(on: Launcher, S: Array, power: int) -> Array:
    """In place, of symmetric matrices from a library, which gives no sum."""
    images, d, _ = S.shape
    sums = on.empty((images, 2, grids.chunks(images, d * d)[0]), S)
    on.run(launches.triangle_sums(S, sums, power))
    on.run(launches.normalized_triangle(S, sums, S, power))
    return S


def tile_parts(on: Launcher, X: Array, *, size: int, columns: int, side: int) -> Array | None:
    """Room for the parts of symmetric products of ``size``, if several blocks should share a tile:
    one block for each would leave most of a GPU without work."""
    tiles = X.shape[0] * grids.triangle(size, side)
    count = grids.parts(tiles, columns, on.processors, itemsize(X), side)
    return None if count == 1 else on.empty((tiles, count, side**2), X)


def largest(on: Launcher, V: Array) -> Array:
    """max |v| of every row of a matrix."""
    found = on.zeros((V.shape[0],), V)
    on.run(launches.largest(V, found))
    return found


def normalize(on: Launcher, V: Array, *, kind: str, overwrite: bool = False) -> Array:
    """Signed square root and l2 norm, or l2 alone, of every row of a matrix."""
    power = _POWERS[kind]
    if not power:
        return on.xp.asarray(V, copy=True)
    rows, values = V.shape
    out = V if overwrite else on.empty(V.shape, V)
    if (values + 2 * grids.WARPS) * itemsize(V) <= grids.SHARED_BYTES:
        on.run(launches.normalized_at_once(V, out, power))
        return out
    sums = on.empty((rows, 2, grids.chunks(rows, values)[0]), V)
    on.run(launches.power_sums(V, sums, power))
    on.run(launches.normalized(V, sums, out, power))
    return out
