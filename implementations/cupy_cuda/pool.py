"""Weighted pooling and the final normalisation."""

from __future__ import annotations

from demopool.implementations.cupy_cuda.launch import Array, Launcher, i32, u32
from demopool.implementations.shared import grids

_KEEP = i32(2)


def direct(on: Launcher, X: Array, a: Array | None, *, order: int) -> Array:
    """``X^T diag(a) X``, or ``sum_i a_i x_i`` for order 1."""
    if order == 2:
        return second_moment(on, X, a)
    if a is None:
        return on.xp.sum(X, axis=-2)
    return on.xp.matmul(a[:, None, :], X)[:, 0, :]


def second_moment(on: Launcher, X: Array, a: Array | None) -> Array:
    """Half of the product, and its mirror image: by cuBLAS for one image. For a batch it has no
    half, and CuPy would copy X to transpose it, so that is a kernel of our own."""
    images, n, d = X.shape
    out, count = on.empty((images, d, d), X), grids.triangle(d)
    if images == 1:
        weighted = X if a is None else X * on.xp.sqrt(a)[:, :, None]
        on.lower_product(weighted[0, ...], out[0, ...], transposed=True)
        on.run("from_triangle", grids.products(count), out, out, u32(d), _KEEP)
    else:
        weights, sizes = X if a is None else a, (u32(n), u32(d), u32(count))
        shape = grids.products(images * count)
        on.run("outer", shape, X, weights, out, *sizes, i32(a is not None))
    return out


def largest(on: Launcher, V: Array) -> Array:
    """max |v| of every row of a matrix."""
    rows, values = V.shape
    found = on.zeros((rows,), V)
    chunks, shape = grids.chunks(rows, values)
    on.run("largest", shape, V, found, u32(values), u32(chunks))
    return found


def normalize(on: Launcher, V: Array, *, kind: str) -> Array:
    """Signed square root and l2 norm, or l2 alone, of every row of a matrix."""
    if kind == "none":
        return on.xp.asarray(V, copy=True)
    rows, values = V.shape
    power = i32(1 if kind == "signed-sqrt-l2" else 2)
    out = on.empty(V.shape, V)
    shared = values * on.itemsize(V)
    if shared + grids.WARPS * on.itemsize(V) <= grids.SHARED_BYTES:
        shape = grids.one_block_each(rows, shared)
        on.run("normalized_at_once", shape, V, out, u32(values), power)
        return out
    magnitude, sums = largest(on, V), on.zeros((rows,), V)
    chunks, shape = grids.chunks(rows, values)
    on.run("power_sums", shape, V, magnitude, sums, u32(values), u32(chunks), power)
    blocks, shape = grids.per_image(rows, values)
    on.run("normalized", shape, V, magnitude, sums, out, u32(values), u32(blocks), power)
    return out
