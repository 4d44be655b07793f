"""Launches that show mistakes in a kernel: edges, all magnitudes, every option.

Features are small integers where a kernel adds up: their sums are exact in any order, so that
results can be compared bit for bit. Of images there are always several, with different numbers,
and of tiles and blocks of an image too. CuPy's kernels flush subnormal numbers of float32 to zero.

Every function has the cases of the kernel of its name; those of both libraries have the same.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

import demopool as dp
from demopool.implementations.shared import grids

from .arrays import (
    DESCRIPTORS,
    POWERS,
    STRANGE,
    Array,
    counting,
    lower,
    of_all_magnitudes,
    one_large,
    random,
    spread,
    whole,
)
from .backends import Backend, Launch
from .made import Made

f32, i32 = np.float32, np.int32


def launches(b: Backend, kernel: str) -> list[Launch]:
    found: list[Launch] = globals()[kernel](Made(b, kernel))
    return found


# --- magnitudes ---


def unordinary(made: Made) -> list[Launch]:
    """One row at an end of the range, or just beyond it, in another block, warp and lane each time;
    rows of zeros, where they may be and where not, and of numbers that are none."""
    low, high = f32(0.125), f32(8)
    near = np.nextafter(low, f32(0)), np.nextafter(high, f32(9))
    ends = [low, near[0], f32(1e-44), 0, high, -high, near[1], -near[1], np.inf, -np.inf, np.nan]
    X, found = whole(2, 21, 70, most=7), []
    X[:, :, 69] = 1
    for i, value in enumerate(ends):
        row, column = divmod(677 * (i + 1), 70)
        other = X.copy().reshape(42, 70)
        other[row % 42] *= not abs(value) < 1
        other[row % 42, column] = value
        found += [made(other.reshape(X.shape), low, high, zeros) for zeros in (False, True)]
    last = X[:1, :20, :33].copy()
    last[0, 19] = 0
    return [*found, made(last, low, high, False), made(last[:, :19].copy(), low, high, False)]


def largest(made: Made) -> list[Launch]:
    V = one_large(70, 1100)
    V[5] = 0
    return [
        made(one_large(40, 40) * f32(0.01), chunks=1),
        made(V),
        made(one_large(9, 6000)[1:].copy(), chunks=9),
    ]


def scaled(made: Made) -> list[Launch]:
    """All exponents of float32 are here, for values of all magnitudes and for their own."""
    odd = np.array([1, 0, 1e-44, 3e-39, 0.7, 5, 1e10, 3e38, np.inf, np.nan, 2.0**-126], f32)
    powers = (2.0 ** np.arange(-126, 128)).astype(f32)
    near = random(len(odd), 600) * np.minimum(odd, f32(1e37))[:, None]
    return [
        made(near[:, :1].copy(), odd),
        made(spread(len(odd), 600), odd),
        made(near, odd),
        made(spread(len(powers), 70) * f32(0.7), powers),
    ]


def restored(made: Made) -> list[Launch]:
    exponents = np.array([0, 1, -1, 5, -40, 149, -149, 300, -300], i32)
    a = counting(len(exponents), 600)
    return [made(a, exponents, Fraction(power)) for power in (0.9, 2.0, -0.3)]


def fill(made: Made) -> list[Launch]:
    return [made(np.full(size, np.nan, f32), value) for size, value in ((600, 3), (512, -0.0))]


def copied(made: Made) -> list[Launch]:
    return [made(random(3, 30, 21)), made(random(2, 128, 2))]


# --- weights ---


def gram(made: Made) -> list[Launch]:
    """The last row of tiles ends in each of its four parts, here and in the next ones; features are
    some slabs long, one, or less, and more than are added up on their own."""
    return [
        made(whole(2, 109, 19)),
        made(whole(2, 131, 3) * f32(0.5), made.b.launches.RECTIFY),
        made(whole(1, 87, 45)),
        made(whole(1, 120, 8)),
    ]


def outer(made: Made) -> list[Launch]:
    """CuPy's also without the mirror image."""
    lower = (made.b.launches.LOWER,) if made.b.name == "cupy" else ()
    return [
        made(whole(2, 19, 109), counting(2, 19)),
        made(whole(2, 3, 131), None),
        made(whole(1, 45, 87), counting(1, 45), *lower),
        made(whole(1, 8, 120), None),
        made(whole(2, 3, 70), None, *lower),
    ]


def gram_parts(made: Made) -> list[Launch]:
    """Parts of which the last is shorter, and ends within a slab, or is empty."""
    sizes = [(2, 109, 45, 2), (1, 70, 131, 3), (1, 87, 5, 2), (1, 180, 8, 1)]
    return [made(whole(images, n, d), P=parts) for images, n, d, parts in sizes]


def outer_parts(made: Made) -> list[Launch]:
    return [
        made(whole(2, 45, 109), counting(2, 45), P=2),
        made(whole(1, 131, 70), None, P=3),
        made(whole(1, 5, 87), counting(1, 5), P=2),
        made(whole(1, 8, 180), None, P=1),
    ]


def from_parts(made: Made) -> list[Launch]:
    """Parts of K with its row sums, and of A. Rows are written four at a time, in both halves of a
    tile: the last one is each of them."""
    there = made.b.launches
    kinds = [there.SQUARE, there.RECTIFY, there.KEEP]
    if made.b.name == "cupy":
        kinds.append(there.LOWER)
    sizes = [(2, 109, 2), (1, 131, 3), (1, 70, 1), (2, 87, 1), (1, 120, 2)]
    sizes += [(1, n, 1) for n in (4, 5, 34, 35)]
    return [
        there.from_parts(
            whole(images * grids.triangle(n), count, grids.TILE**2) * f32(0.5),
            np.full((images, n, n), np.nan, f32),
            np.full((images, grids.tiles(n), n), np.nan, f32),
            kinds[i % len(kinds)],
        )
        for i, (images, n, count) in enumerate(sizes)
    ]


def from_triangle(made: Made) -> list[Launch]:
    return [
        made(lower(whole(109, 109))),
        made(lower(whole(131, 131)) * f32(0.5), made.b.launches.RECTIFY),
        *(made(lower(whole(n, n)), made.b.launches.KEEP) for n in (70, 87, 109, 120)),
        *(made(lower(whole(n, n))) for n in (87, 120)),
    ]


_MANY = 20_000
"""Results of a power, for its last bits."""


def first_step(made: Made) -> list[Launch]:
    sums = spread(_MANY)
    sums[[3, 300, 400, 401]] = 0, -1, np.inf, np.nan
    numbers = [(0.5, 0.5, 10), (0.0, 1.0, 1), (1.0, 0.0, 1), (0.3, 0.7, 0), (1.7, 3.0, 2)]
    found = [made(sums, *each) for each in numbers]
    for parts in (3, 4, 9):  # as `gram` leaves them
        few, (a, targets) = counting(2, parts, 70), np.full((2, 2, 70), np.nan, f32)
        found.append(made.b.launches.first_step(few, targets, a, 0.5, 0.5, 10))
    return found


def step(made: Made) -> list[Launch]:
    K, targets, a = counting(2, 70, 70), spread(2, 70), counting(2, 70)
    K[1] *= f32(2**-20)
    a[:, 2:5] = 0
    targets[:, 7:14] = STRANGE
    return [
        *(made(K, targets, a, tau) for tau in POWERS),
        made(counting(1, 5, 5), counting(1, 5), counting(1, 5), 0.5),
        made(counting(2, 200, 200), counting(2, 200), counting(2, 200), 3.0),
    ]


def small_image(made: Made) -> list[Launch]:
    """As large as one may be, too: Numba never asks for more shared memory."""
    K, targets, a = counting(2, 37, 37), counting(2, 37), counting(2, 37)
    a[:, 2:5] = 0
    far, goals = K.copy(), spread(2, 37)
    far[1] *= f32(2**-20)
    goals[:, 7:14] = STRANGE
    n = 140 if made.b.max_shared else 70
    return [
        *(made(far, goals, a, tau, 2) for tau in POWERS),
        *(made(K, targets, a, *each) for each in ((0.5, 4), (0.3, 1), (0.3, 0))),
        made(counting(2, 5, 5), counting(2, 5), counting(2, 5), 0.5, 3),
        made(counting(1, n, n), counting(1, n), counting(1, n), 0.25, 3),
    ]


def _free(images: int, n: int, d: int) -> tuple[Array, Array, Array]:
    """X, X M and the diagonal of M: of rows that are aligned exactly as much as they must be for a
    share of 1/2, or hardly less; of rows of zeros and with NaN."""
    X, diagonal = whole(images, n, d, most=2), counting(images, d, most=2)
    X[:, 3::7] = 0
    X[:, 1::2, 0] = 1
    XM = f32(0.5) * X * diagonal[:, None, :] * counting(images, n, 1, most=2)
    XM[:, 1::4, 0] -= f32(0.5)
    XM[:, 6, -1] = np.nan
    return X, XM, diagonal


def free_sums(made: Made) -> list[Launch]:
    sizes = ((2, 37, 70), (1, 8, 5), (1, 21, 140))
    return [made(*_free(*z), 0.5) for z in sizes]


# A product whose square is zero, where its weight makes it a large term.
_SMALL = np.array([[[2.0**-80], [2.0**-3]]], f32)
_LARGE = np.array([[2.0**120, 1]], f32)


def free_step(made: Made) -> list[Launch]:
    """Also more rows than all warps of a block take at once, in words and in vectors."""
    targets, a = spread(2, 21), counting(2, 21)
    a[:, 2:5] = 0
    targets[:, 7:14] = STRANGE
    X, XM, diagonal = _free(1, 300, 5)
    XM[:, :] = X * diagonal[:, None, :]
    XM[:, :5] *= -1
    many = (X, XM, diagonal, spread(1, 300), counting(1, 300))
    ones = np.ones((1, 1), f32), np.ones((1, 2), f32)
    return [
        *(made(*_free(2, 21, 70), targets, a, tau, 0.5) for tau in POWERS),
        made(*_free(1, 8, 5), counting(1, 8), counting(1, 8), 0.5, 0.5),
        made(*_free(1, 45, 12), counting(1, 45), counting(1, 45), 0.5, 0.5),
        made(*many, 3.0, 0.5),
        made(_SMALL, -_SMALL, *ones, _LARGE, 1.0, 0.5),
    ]


def _symmetric(images: int, d: int) -> Array:
    M = whole(images, d, d)
    return np.tril(M) + np.tril(M, -1).swapaxes(1, 2)


def row_forms(made: Made) -> list[Launch]:
    sizes = [(2, 109, 100), (1, 70, 18), (1, 20, 50)]
    return [made(whole(i, n, d), _symmetric(i, d)) for i, n, d in sizes]


def exact_rows(made: Made) -> list[Launch]:
    """Also rows that are aligned exactly as much as they must be, or hardly less, of zeros and NaN,
    and more rows than all lanes of a block take in turn."""
    bounds = counting(2, 21)
    forms = np.stack([f32(0.5) * bounds + whole(2, 21, most=1), bounds])
    forms[[0, 0, 1], [0, 1, 0], 4], forms[:, 0, 5] = np.nan, 0
    short, many = forms[:, :, :8], np.array([[-1.0] * 5 + [1.0] * 295, [1.0] * 300], f32)
    none, a = np.array([[0, 0], [1, 1]], f32), counting(1, 300)
    return [
        made(whole(2, 21, 200, most=2), counting(2, 21), _in_parts(forms, 4), 0.5),
        made(whole(2, 8, 5), None, _in_parts(short, 1), 0.5),
        *(made(whole(1, 300, 3), v, _in_parts(many[:, None], 40), 0.25) for v in (a, None)),
        made(_SMALL, _LARGE, _in_parts(none[:, None], 1), 0.5),
    ]


def _in_parts(sums: Array, count: int) -> Array:
    """Along a last axis, that add up to them exactly."""
    parts = np.resize(np.array([3, -1, 2, 5], f32), (*sums.shape, count))
    parts[..., 0] = sums - parts[..., 1:].sum(axis=-1)
    return parts


def update(made: Made) -> list[Launch]:
    forms, targets, a = spread(_MANY), counting(_MANY), counting(_MANY)
    a[3:6] = 0
    forms[400:407] = STRANGE
    return [made(forms, targets, a, tau) for tau in POWERS]


# --- pooling and the normalised result ---


def weighted_sum(made: Made) -> list[Launch]:
    return [
        made(whole(2, 21, 70), counting(2, 21)),
        made(whole(2, 29, 33), None),
    ]


def _of_chunks(images: int, chunks: int) -> Array:
    """Sums and the exponents of their scales: of small, of large and of very different ones."""
    tops = np.array([2, -126, -126, 126, -97], f32)[:images, None] - counting(images, chunks) + 1
    tops[0, ::3] -= 40
    tops[:, 1::3] = -126
    return np.stack([counting(images, chunks, most=90), np.clip(tops, -126, 126)], axis=1)


def _steep(images: int, values: int, apart: int) -> Array:
    """Each value of a thread is so much larger than the one before that the sum is scaled again,
    and not so much that the one before no longer counts; threads and images differ too."""
    turns, threads = np.divmod(np.arange(values), apart)
    exponents = 10 * turns - threads % 7 - 3 * (threads // 32) - 50
    scales = 2.0 ** (exponents - np.arange(images)[:, None] % 3)
    return counting(images, values, most=2) * scales.astype(f32)


def power_sums(made: Made) -> list[Launch]:
    """CuPy's also of values of all magnitudes: the largest comes first, last, and in between."""
    if made.b.name == "numba":
        V, magnitude = whole(4, 1100, most=8), np.array([8, 16, 0, 0.5], f32)
        numbers = [(V, magnitude, power) for power in (1, 2)]
        return [made(*each) for each in (*numbers, (whole(2, 300), counting(2)))]
    rising = np.sort(np.abs(of_all_magnitudes()), axis=1)
    rising[0] = 2.0 ** np.linspace(-120, 120, 600).round()
    rising[2, 7::40] = 2.0**127
    return [
        *(made(V, power) for V in (whole(4, 1100, most=8), rising) for power in (1, 2)),
        *(made(rising[:, ::-1].copy(), power, chunks=1) for power in (1, 2)),
        *(made(_steep(2, z, 256), power, chunks=1) for z in (1500, 2000) for power in (1, 2)),
        made(one_large(40, 700), 2),
        made(whole(2, 300)),
        made(whole(1, 5000), chunks=1),
    ]


def triangle_sums(made: Made) -> list[Launch]:
    """Rows that grow and that shrink by powers of two; NaN above the diagonal."""
    powers = (2.0 ** np.arange(-60, 61)).astype(f32)
    uneven = np.stack([lower(np.outer(row, np.ones(121, f32))) for row in (powers, powers[::-1])])
    return [
        *(made(np.stack([lower(whole(70, 70)), lower(whole(70, 70, most=9))]), p) for p in (1, 2)),
        *(made(uneven, power) for power in (1, 2)),
        *(made(lower(_steep(d, d, 32))[None], p) for d in (136, 180, 210, 250) for p in (1, 2)),
        made(lower(whole(300, 300))[None], 2, chunks=3),
        made(lower(whole(5, 5))[None]),
        made(np.zeros((2, 33, 33), f32)),
    ]


def normalized(made: Made) -> list[Launch]:
    """With fewer chunks than a warp adds up at once, and more."""
    V = of_all_magnitudes()
    magnitude = np.array([3, 1e-40, 0, 5e37, 3e-30], f32)
    if made.b.name == "cupy":
        given: list[tuple[Array, ...]] = [(_of_chunks(5, chunks),) for chunks in (3, 40)]
        given[0][0][2, 0] = 0
    else:
        given = [(magnitude, counting(5, chunks, most=90)) for chunks in (3, 40)]
    return [
        made(values, *each, power)
        for each in given
        for values in (V, np.tile(V, 8))
        for power in (1, 2)
    ]


def normalized_triangle(made: Made) -> list[Launch]:
    """The last row of tiles ends in each of its parts; of zeros, and in place too."""
    sizes = ((2, 109), (1, 131), (1, 70), (1, 35), (2, 5))
    found = [
        made(np.stack([lower(whole(d, d))] * images), _of_chunks(images, 3), 1 + d % 2)
        for images, d in sizes
    ]
    S, sums = lower(whole(87, 87))[None], _of_chunks(1, 40)
    found.append(made.b.launches.normalized_triangle(S, sums, S, 1))
    return [*found, made(lower(np.zeros((20, 20), f32))[None], np.zeros((1, 2, 3), f32), 1)]


def normalized_at_once(made: Made) -> list[Launch]:
    steep = [(_steep(2, 2000, 256), power) for power in (1, 2)] if made.b.name == "cupy" else []
    return [made(V, power) for V, power in [*DESCRIPTORS, *steep]]


# --- sketches ---


def count_sketch(made: Made) -> list[Launch]:
    """Bins of many values, of none, more bins than a block has threads, and two groups of features,
    one of them not full."""
    X = whole(2, 5, 70)
    return [
        made(X, a, made.b.prepared(dp.hashes(70, k))[a is None], k=k)
        for a in (None, counting(2, 5))
        for k in (7, 20, 1, 600)
    ]


def scatter(made: Made) -> list[Launch]:
    """Bins of several values, of none, more of them than threads, and several blocks of rows."""
    sizes = ((2, 21, 50), (1, 270, 600), (2, 40, 7))
    return [made(whole(i, d, d), made.b.prepared(dp.hashes(d, k)), k=k) for i, d, k in sizes]


scatter_far = scatter


def added(made: Made) -> list[Launch]:
    """The compiler adds four at a time, and what is left."""
    return [made(whole(*shape)) for shape in ((2, 4, 600), (2, 3, 300), (2, 9, 40), (3, 1, 5))]


# --- roots ---


def product(made: Made) -> list[Launch]:
    """With and without D; with a last row of tiles that ends in each of its four parts."""
    sizes = [(2, 70, 0.25), (1, 109, 0.0), (1, 45, 0.25)]
    sizes += [(1, d, beta) for d in (18, 63) for beta in (0.25, 0.0)]
    return [
        made(*(whole(images, d, d, most=m) for m in (4, 6, 9)), (0.5, beta, 2.0))
        for images, d, beta in sizes
    ]


def moments(made: Made) -> list[Launch]:
    return [made(whole(2, 270, 270), chunks=4), made(whole(3, 5, 5))]


def bounds(made: Made) -> list[Launch]:
    """Of the moments of matrices: of zeros, of large and of equal eigenvalues. The compiler adds
    four parts at a time, and what is left."""
    spectra = random(600, 11) ** 2
    spectra[[0, 300]] = 0
    spectra[::7] = 3
    spectra[::5] *= f32(1e15)
    return [made(part, part * part, 11) for part in (spectra, spectra[:, :1])]


def start(made: Made) -> list[Launch]:
    return [made(_symmetric(3, 21), whole(3, 21, 21), counting(3), (3.5, -2.5))]


def finish(made: Made) -> list[Launch]:
    exponents = np.arange(-620, 620, 31).astype(i32)
    bound = np.resize(np.array([1, 3e38, 1e-44, 7], f32), len(exponents))
    return [
        made(whole(len(exponents), 5, 5), bound, exponents),
        made(whole(3, 21, 21), counting(3), np.array([0, 1, -1], i32)),
    ]
