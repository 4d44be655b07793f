"""Of pooling, of the normalised result, and of the scales of features."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..arrays import (
    DESCRIPTORS,
    Array,
    counting,
    lower,
    of_all_magnitudes,
    one_large,
    random,
    spread,
    whole,
)
from ..backends import Launch
from ..made import Made

f32, i32 = np.float32, np.int32


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


def outer(made: Made) -> list[Launch]:
    """CuPy's also with the sum for the norm and without the mirror image; of products that grow and
    that shrink by powers of two as well."""
    usual = [
        made(whole(2, 19, 109), counting(2, 19)),
        made(whole(2, 3, 131), None),
        made(whole(1, 45, 87), counting(1, 45)),
        made(whole(1, 8, 120), None),
    ]
    if made.b.name == "numba":
        return [*usual, made(whole(2, 3, 70), None)]
    kinds = (made.b.launches.LOWER_1, made.b.launches.LOWER_2)
    powers = (2.0 ** (np.arange(120) % 40 - 20)).astype(f32)
    uneven = np.stack([powers, powers[::-1]])[:, None]
    given = (whole(2, 19, 70, most=3), uneven, whole(2, 8, 131, most=2), np.zeros((2, 3, 35), f32))
    return [*usual, *(made(X, None, kind) for X in given for kind in kinds)]


def outer_parts(made: Made) -> list[Launch]:
    return [
        made(whole(2, 45, 109), counting(2, 45), P=2),
        made(whole(1, 131, 70), None, P=3),
        made(whole(1, 5, 87), counting(1, 5), P=2),
        made(whole(1, 8, 180), None, P=1),
    ]


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
