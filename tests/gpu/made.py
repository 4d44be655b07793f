"""The library's launches on given arrays, with arrays for their results.

What a kernel adds to starts at zero. What it must write is NaN: nobody may read it before.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import Array
from .backends import Backend, Launch, in_chunks

i32 = np.int32


def zeros(like: Array, *shape: int) -> Array:
    return np.zeros(shape, like.dtype)


def unwritten(like: Array, *shape: int) -> Array:
    return np.full(shape, np.nan, like.dtype)


# --- magnitudes ---


def largest(b: Backend, V: Array, chunks: int = 2) -> Launch:
    images, values = V.shape
    return in_chunks(chunks, values, b.launches.largest, V, zeros(V, images))


def scaled(b: Backend, X: Array, magnitude: Array) -> Launch:
    results = (unwritten(X, *X.shape), np.full(len(X), -1, i32))
    return b.launches.scaled(X, magnitude, *results)


def restored(b: Backend, a: Array, exponents: Array, power: float) -> Launch:
    """Numba's kernel works in place."""
    out = () if b.name == "numba" else (unwritten(a, *a.shape),)
    return b.launches.restored(a, exponents, *out, Fraction(power))


def fill(b: Backend, size: int, value: Any) -> Launch:
    return b.launches.fill(unwritten(value, size), value)


def copied(b: Backend, array: Array) -> Launch:
    return b.launches.copied(array, unwritten(array, array.size))


# --- weights ---


def gram(b: Backend, X: Array, kind: int | None = None) -> Launch:
    """Squares, unless told otherwise."""
    images, n, _ = X.shape
    results = (unwritten(X, images, n, n), zeros(X, images, n))
    return b.launches.gram(X, *results, b.launches.SQUARE if kind is None else kind)


def from_triangle(b: Backend, K: Array, kind: int | None = None) -> Launch:
    """Above the diagonal there is junk. Row sums start at 0, those that nobody wants too."""
    K = np.where(np.tri(len(K), dtype=bool), K, K.dtype.type(np.nan))
    sums = zeros(K, len(K))
    return b.launches.from_triangle(K, sums, b.launches.SQUARE if kind is None else kind)


def first_step(
    b: Backend, sums: Array, gamma: float = 0.5, tau: float = 0.5, iterations: int = 10
) -> Launch:
    results = (unwritten(sums, sums.size), unwritten(sums, sums.size))
    return b.launches.first_step(sums, *results, gamma, tau, iterations)


def step(b: Backend, K: Array, targets: Array, a: Array, tau: float = 0.5) -> Launch:
    return b.launches.step(K, targets, a, unwritten(K, *a.shape), tau)


def small_image(
    b: Backend, K: Array, targets: Array, a: Array, tau: float = 0.5, iterations: int = 4
) -> Launch:
    return b.launches.small_image(K, targets, a, tau, iterations)


def free_sums(b: Backend, X: Array, XM: Array, diagonal: Array, share: float) -> Launch:
    return b.launches.free_sums(X, XM, diagonal, unwritten(X, *X.shape[:2]), share)


def free_step(
    b: Backend,
    X: Array,
    XM: Array,
    diagonal: Array,
    targets: Array,
    a: Array,
    tau: float = 0.5,
    share: float = 0.25,
) -> Launch:
    out = unwritten(X, *a.shape)
    return b.launches.free_step(X, XM, diagonal, targets, a, out, tau, share)


def row_forms(b: Backend, X: Array, M: Array) -> Launch:
    images, n, _ = X.shape
    return b.launches.row_forms(X, M, zeros(X, 2 * images, n))


def exact_rows(b: Backend, X: Array, v: Array | None, forms: Array, share: float) -> Launch:
    return b.launches.exact_rows(X, _or_absent(b, X, v), forms, share)


def update(b: Backend, forms: Array, targets: Array, a: Array, tau: float = 0.5) -> Launch:
    return b.launches.update(forms, targets, a, tau)


# --- pooling ---


def _or_absent(b: Backend, X: Array, a: Array | None) -> Array | None:
    """To Numba's kernels weights of 1 are an array without columns."""
    return zeros(X, len(X), 0) if a is None and b.name == "numba" else a


def outer(b: Backend, X: Array, a: Array | None) -> Launch:
    images, _, d = X.shape
    return b.launches.outer(X, _or_absent(b, X, a), unwritten(X, images, d, d))


def weighted_sum(b: Backend, X: Array, a: Array | None) -> Launch:
    images, _, d = X.shape
    return b.launches.weighted_sum(X, _or_absent(b, X, a), unwritten(X, images, d))


def power_sums(b: Backend, V: Array, magnitude: Array, power: int = 1, chunks: int = 2) -> Launch:
    images, values = V.shape
    args = (V, magnitude, zeros(V, images), power)
    return in_chunks(chunks, values, b.launches.power_sums, *args)


def normalized(b: Backend, V: Array, magnitude: Array, sums: Array, power: int = 1) -> Launch:
    return b.launches.normalized(V, magnitude, sums, unwritten(V, *V.shape), power)


def normalized_at_once(b: Backend, V: Array, power: int = 1) -> Launch:
    return b.launches.normalized_at_once(V, unwritten(V, *V.shape), power)


# --- sketches ---


def count_sketch(b: Backend, X: Array, a: Array | None, by: Any) -> Launch:
    out = unwritten(X, *X.shape[:2], len(by.starts) - 1)
    return b.launches.count_sketch(X, a, by, out)


def scatter(b: Backend, M: Array, by: Any) -> Launch:
    return b.launches.scatter(M, by, zeros(M, len(M), by.hashes.k))


def scatter_far(b: Backend, M: Array, by: Any) -> Launch:
    """As of a sketch for which there is not enough shared memory."""
    return b.launches.scatter(M, by, zeros(M, len(M), by.hashes.k), 0)


# --- roots ---


def product(b: Backend, P: Array, Q: Array, D: Array, of: tuple[float, float, float]) -> Launch:
    return b.launches.product(P, Q, D, unwritten(P, *P.shape), of)


def moments(b: Backend, S: Array, chunks: int = 4) -> Launch:
    results = (zeros(S, len(S)), zeros(S, len(S)))
    return in_chunks(chunks, S[0].size, b.launches.moments, S, *results)


def bounds(b: Backend, traces: Array, squares: Array, d: int) -> Launch:
    return b.launches.bounds(traces, squares, d, unwritten(traces, traces.size))


def start(b: Backend, A: Array, square: Array, bound: Array, of: tuple[float, float]) -> Launch:
    results = (unwritten(A, *A.shape), unwritten(A, *A.shape))
    return b.launches.start(A, square, bound, *results, of)


def finish(b: Backend, Y: Array, bound: Array, exponents: Array) -> Launch:
    return b.launches.finish(Y, bound, exponents, unwritten(Y, *Y.shape))
