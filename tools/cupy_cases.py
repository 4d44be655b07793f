"""Launches of the kernels of cupy:cuda that show mistakes: edges, all magnitudes, every option.

Features are small integers where a kernel adds up: their sums are exact in any order, so that
results can be compared bit for bit. Of images there are always several, with different numbers,
and of tiles and blocks of an image too. The kernels are compiled as CuPy does it, so that subnormal
numbers of float32 are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from demopool import hashes
from demopool.implementations.cupy_cuda import sketch
from demopool.implementations.cupy_cuda.launch import Launch
from tools import cupy_launches as made
from tools.kernel_arrays import (
    DESCRIPTORS,
    POWERS,
    STRANGE,
    counting,
    of_all_magnitudes,
    one_large,
    random,
    spread,
    whole,
)

Array = Any
f32, i32 = np.float32, np.int32


# --- magnitudes ---


def _largest() -> list[Launch]:
    V = one_large(70, 1100)
    V[5] = 0
    return [
        made.largest(one_large(40, 40) * f32(0.01), 1),
        made.largest(V),
        made.largest(one_large(9, 6000)[1:].copy(), 9),
    ]


def _scaled() -> list[Launch]:
    """All exponents of float32 are here, for values of all magnitudes and for their own."""
    odd = np.array([1, 0, 1e-44, 3e-39, 0.7, 5, 1e10, 3e38, np.inf, np.nan, 2.0**-126], f32)
    powers = (2.0 ** np.arange(-126, 128)).astype(f32)
    near = random(len(odd), 600) * np.minimum(odd, f32(1e37))[:, None]
    return [
        made.scaled(near[:, :1].copy(), odd),
        made.scaled(spread(len(odd), 600), odd),
        made.scaled(near, odd),
        made.scaled(spread(len(powers), 70) * f32(0.7), powers),
    ]


def _restored() -> list[Launch]:
    exponents = np.array([0, 1, -1, 5, -40, 149, -149, 300, -300], i32)
    a = counting(len(exponents), 600)
    return [made.restored(a, exponents, power) for power in (0.9, 2.0, -0.3)]


# --- weights ---


def _gram() -> list[Launch]:
    """The last row of tiles ends in each of its four parts, here and in the next ones."""
    return [
        made.gram(whole(2, 109, 19)),
        made.gram(whole(2, 131, 3), made.RECTIFY),
        made.gram(whole(1, 87, 16)),
        made.gram(whole(1, 120, 5)),
    ]


def _outer() -> list[Launch]:
    return [
        made.outer(whole(2, 19, 109), counting(2, 19)),
        made.outer(whole(2, 3, 131), None),
        made.outer(whole(1, 16, 87), counting(1, 16)),
        made.outer(whole(1, 5, 120), None),
    ]


def _from_triangle() -> list[Launch]:
    return [
        made.from_triangle(whole(109, 109)),
        made.from_triangle(whole(131, 131), made.RECTIFY),
        *(made.from_triangle(whole(n, n), made.KEEP) for n in (70, 87, 109, 120)),
        *(made.from_triangle(whole(n, n)) for n in (87, 120)),
    ]


def _first_step() -> list[Launch]:
    sums = spread(3000)
    sums[[3, 300, 400, 401]] = 0, -1, np.inf, np.nan
    numbers = [(0.5, 0.5, 10), (0.0, 1.0, 1), (1.0, 0.0, 1), (0.3, 0.7, 0), (1.7, 3.0, 2)]
    return [made.first_step(sums, *each) for each in numbers]


def _step() -> list[Launch]:
    K, targets, a = counting(2, 70, 70), spread(2, 70), counting(2, 70)
    K[1] *= f32(2**-20)
    a[:, 2:5] = 0
    targets[:, 7:14] = STRANGE
    return [
        *(made.step(K, targets, a, tau) for tau in POWERS),
        made.step(counting(1, 5, 5), counting(1, 5), counting(1, 5), 0.5),
        made.step(counting(2, 200, 200), counting(2, 200), counting(2, 200), 3.0),
    ]


def _small_image() -> list[Launch]:
    K, targets, a = counting(2, 37, 37), counting(2, 37), counting(2, 37)
    a[:, 2:5] = 0
    far, goals = K.copy(), spread(2, 37)
    far[1] *= f32(2**-20)
    goals[:, 7:14] = STRANGE
    return [
        *(made.small_image(far, goals, a, tau, 2) for tau in POWERS),
        made.small_image(K, targets, a, 0.5, 4),
        made.small_image(K, targets, a, 0.3, 1),
        made.small_image(counting(2, 5, 5), counting(2, 5), counting(2, 5), 0.5, 3),
        made.small_image(counting(1, 140, 140), counting(1, 140), counting(1, 140), 0.25, 3),
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


def _free_sums() -> list[Launch]:
    sizes = ((2, 37, 70), (1, 8, 5), (1, 21, 140))
    return [made.free_sums(*_free(*z), 0.5) for z in sizes]


def _free_step() -> list[Launch]:
    """Also a product whose square is zero, and more rows than all lanes of a warp take in turn."""
    targets, a = spread(2, 21), counting(2, 21)
    a[:, 2:5] = 0
    targets[:, 7:14] = STRANGE
    launches = [made.free_step(*_free(2, 21, 70), targets, a, tau, 0.5) for tau in POWERS]
    X, XM, diagonal = _free(1, 300, 5)
    XM[:, :] = X * diagonal[:, None, :]
    XM[:, :5] *= -1
    small = np.array([[[2.0**-80], [2.0**-3]]], f32)
    large = np.array([[2.0**120, 1]], f32)
    return [
        *launches,
        made.free_step(*_free(1, 8, 5), counting(1, 8), counting(1, 8), 0.5, 0.5),
        made.free_step(X, XM, diagonal, spread(1, 300), counting(1, 300), 3.0, 0.5),
        made.free_step(small, -small, np.ones((1, 1), f32), np.ones((1, 2), f32), large, 1.0, 0.5),
    ]


# --- the normalised result ---


def _power_sums() -> list[Launch]:
    V, magnitude = whole(4, 1100, most=8), np.array([8, 16, 0, 0.5], f32)
    return [
        *(made.power_sums(V, magnitude, power) for power in (1, 2)),
        made.power_sums(whole(2, 300), counting(2)),
    ]


def _normalized() -> list[Launch]:
    magnitude, sums = np.array([3, 1e-40, 0, 5e37, 3e-30], f32), counting(5, most=900)
    V = of_all_magnitudes()
    return [made.normalized(V, magnitude, sums, power) for power in (1, 2)]


def _normalized_at_once() -> list[Launch]:
    return [made.normalized_at_once(V, power) for V, power in DESCRIPTORS]


# --- sketches ---


def _hashes(d: int, k: int) -> sketch.PreparedHashes:
    return sketch.prepare(hashes(d, k), np.asarray)


def _count_sketch() -> list[Launch]:
    """Bins of many values, of none, more bins than a block has threads, and two groups of features,
    one of them not full."""
    X = whole(2, 5, 70)
    return [
        made.count_sketch(X, a, _hashes(70, k)[a is None])
        for a in (None, counting(2, 5))
        for k in (7, 20, 1, 600)
    ]


def _scatter() -> list[Launch]:
    return [
        made.scatter(whole(2, 21, 21), _hashes(21, 50)),
        made.scatter(whole(1, 270, 270), _hashes(270, 600)),
    ]


def _scatter_far() -> list[Launch]:
    return [
        made.scatter_far(whole(2, 21, 21), _hashes(21, 50)),
        made.scatter_far(whole(1, 270, 270), _hashes(270, 600)),
    ]


CASES: dict[str, Callable[[], list[Launch]]] = {
    "count_sketch": _count_sketch,
    "first_step": _first_step,
    "free_step": _free_step,
    "free_sums": _free_sums,
    "from_triangle": _from_triangle,
    "gram": _gram,
    "largest": _largest,
    "normalized": _normalized,
    "normalized_at_once": _normalized_at_once,
    "outer": _outer,
    "power_sums": _power_sums,
    "restored": _restored,
    "scaled": _scaled,
    "scatter": _scatter,
    "scatter_far": _scatter_far,
    "small_image": _small_image,
    "step": _step,
}


@cache
def cases(name: str) -> tuple[Launch, ...]:
    """Of a kernel; the arrays are shared, so ``cupy_launches.run`` copies them."""
    return tuple(CASES[name]())
