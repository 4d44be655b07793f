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
from demopool.implementations.cupy_cuda import sketch
from demopool.implementations.cupy_cuda.launch import Launch

from demopool import hashes
from tools import cupy_launches as made

Array = Any
f32, i32 = np.float32, np.int32


def _whole(*shape: int, most: int = 4) -> Array:
    """Integers of both signs, and zeros among them."""
    return np.random.default_rng(sum(shape)).integers(-most, most + 1, shape).astype(f32)


def _counts(*shape: int, most: int = 4) -> Array:
    """Integers from 1."""
    return np.random.default_rng(sum(shape)).integers(1, most + 1, shape).astype(f32)


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(f32)


def _spread(*shape: int) -> Array:
    """Positive: all magnitudes with the subnormal ones, near 1, halves, and powers of two."""
    size = int(np.prod(shape))
    rng = np.random.default_rng(size)
    kinds = (
        10 ** rng.uniform(-44.5, 38.4, size),
        rng.uniform(0.5, 2, size),
        rng.integers(1, 5, size) / 2,
        2.0 ** rng.integers(-149, 128, size),
        1 + 2.0**-23 * rng.integers(-40, 40, size),
    )
    return np.choose(np.arange(size) % 5, kinds).astype(f32).reshape(shape)


# --- magnitudes ---


def _one_large(images: int, values: int) -> Array:
    """The largest one is in another lane of another warp of another block in every image."""
    V = _random(images, values)
    for image in range(images):
        V[image, 677 * image % values] = (-1) ** image * (10 + image)
    return V


def _largest() -> list[Launch]:
    V = _one_large(70, 1100)
    V[5] = 0
    return [
        made.largest(_one_large(40, 40) * f32(0.01), 1),
        made.largest(V),
        made.largest(_one_large(9, 6000)[1:].copy(), 9),
    ]


def _scaled() -> list[Launch]:
    """All exponents of float32 are here, for values of all magnitudes and for their own."""
    odd = np.array([1, 0, 1e-44, 3e-39, 0.7, 5, 1e10, 3e38, np.inf, np.nan, 2.0**-126], f32)
    powers = (2.0 ** np.arange(-126, 128)).astype(f32)
    near = _random(len(odd), 600) * np.minimum(odd, f32(1e37))[:, None]
    return [
        made.scaled(near[:, :1].copy(), odd),
        made.scaled(_spread(len(odd), 600), odd),
        made.scaled(near, odd),
        made.scaled(_spread(len(powers), 70) * f32(0.7), powers),
    ]


def _restored() -> list[Launch]:
    exponents = np.array([0, 1, -1, 5, -40, 149, -149, 300, -300], i32)
    a = _counts(len(exponents), 600)
    return [made.restored(a, exponents, power) for power in (0.9, 2.0, -0.3)]


# --- weights ---


def _gram() -> list[Launch]:
    """The last row of tiles ends in each of its four parts, here and in the next ones."""
    return [
        made.gram(_whole(2, 109, 19)),
        made.gram(_whole(2, 131, 3), made.RECTIFY),
        made.gram(_whole(1, 87, 16)),
        made.gram(_whole(1, 120, 5)),
    ]


def _from_triangle() -> list[Launch]:
    return [
        made.from_triangle(_whole(109, 109)),
        made.from_triangle(_whole(131, 131), made.RECTIFY),
        *(made.from_triangle(_whole(n, n), made.KEEP) for n in (70, 87, 109, 120)),
        *(made.from_triangle(_whole(n, n)) for n in (87, 120)),
    ]


def _first_step() -> list[Launch]:
    sums = _spread(3000)
    sums[[3, 300, 400, 401]] = 0, -1, np.inf, np.nan
    numbers = [(0.5, 0.5, 10), (0.0, 1.0, 1), (1.0, 0.0, 1), (0.3, 0.7, 0), (1.7, 3.0, 2)]
    return [made.first_step(sums, *each) for each in numbers]


# Infinite, undefined or negative sums are mistakes of others; what a power makes of them is known.
_STRANGE = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1, -2.5], f32)
_POWERS = (0.5, 0.0, 1.0, 2.0, 1.7)


def _step() -> list[Launch]:
    K, targets, a = _counts(2, 70, 70), _spread(2, 70), _counts(2, 70)
    K[1] *= f32(2**-20)
    a[:, 2:5] = 0
    targets[:, 7:14] = _STRANGE
    return [
        *(made.step(K, targets, a, tau) for tau in _POWERS),
        made.step(_counts(1, 5, 5), _counts(1, 5), _counts(1, 5), 0.5),
        made.step(_counts(2, 200, 200), _counts(2, 200), _counts(2, 200), 3.0),
    ]


def _small_image() -> list[Launch]:
    K, targets, a = _counts(2, 37, 37), _counts(2, 37), _counts(2, 37)
    a[:, 2:5] = 0
    far, spread = K.copy(), _spread(2, 37)
    far[1] *= f32(2**-20)
    spread[:, 7:14] = _STRANGE
    return [
        *(made.small_image(far, spread, a, tau, 2) for tau in _POWERS),
        made.small_image(K, targets, a, 0.5, 4),
        made.small_image(K, targets, a, 0.3, 1),
        made.small_image(_counts(2, 5, 5), _counts(2, 5), _counts(2, 5), 0.5, 3),
        made.small_image(_counts(1, 140, 140), _counts(1, 140), _counts(1, 140), 0.25, 3),
    ]


def _free_sums() -> list[Launch]:
    """Also rows that are aligned exactly as much as they must be, or hardly less, and of zeros."""
    launches = []
    for images, n, d in ((2, 37, 70), (1, 8, 5), (1, 21, 140)):
        X = _whole(images, n, d, most=2)
        X[:, 3::7] = 0
        X[:, 1::2, 0] = 1
        XM = X * _counts(images, n, 1, most=2)
        XM[:, 1::4, 0] -= 1
        launches.append(made.free_sums(X, XM, _counts(images), 0.5))
    return launches


def _free_step() -> list[Launch]:
    X, XM = _whole(2, 21, 70, most=2), _whole(2, 21, 70)
    doubtful = (np.arange(2 * 21).reshape(2, 21) % 5 < 2).astype(i32)
    targets, a = _spread(2, 21), _counts(2, 21)
    a[:, 2:5] = 0
    targets[:, 7:14] = _STRANGE
    launches = [made.free_step(X, XM, doubtful, targets, a, tau) for tau in _POWERS]
    short = (_whole(1, 8, 5), _whole(1, 8, 5), doubtful[:1, :8].copy())
    many = (_whole(1, 300, 5, most=9), _whole(1, 300, 5, most=9), np.zeros((1, 300), i32))
    return [
        *launches,
        made.free_step(*short, _counts(1, 8), _counts(1, 8)),
        made.free_step(*many, _spread(1, 300), _counts(1, 300), 3.0),
    ]


# --- the normalised result ---


def _power_sums() -> list[Launch]:
    V, magnitude = _whole(4, 1100, most=8), np.array([8, 16, 0, 0.5], f32)
    return [
        *(made.power_sums(V, magnitude, power) for power in (1, 2)),
        made.power_sums(_whole(2, 300), _counts(2)),
    ]


def _of_all_magnitudes() -> Array:
    """Of both signs, with zeros of both; one image of subnormal numbers, one of zeros."""
    V = _random(5, 600)
    V *= np.array([1, 1e-40, 0, 1e37, 1e-30], f32)[:, None]
    V[:, ::5] = 0
    V[:, 1::5] = -0.0
    return V


def _normalized() -> list[Launch]:
    magnitude, sums = np.array([3, 1e-40, 0, 5e37, 3e-30], f32), _counts(5, most=900)
    V = _of_all_magnitudes()
    return [made.normalized(V, magnitude, sums, power) for power in (1, 2)]


def _normalized_at_once() -> list[Launch]:
    """Of integers the largest one is 8, so that sums are exact; the others show every magnitude."""
    V = _whole(3, 1100, most=7)
    V[np.arange(3), [5, 700, 1099]] = 8, -8, 8
    largest = np.diag(np.arange(1, 9) * f32(4))[:, np.arange(8).repeat(32)] * (
        np.arange(256) % 32 == 7
    )
    return [
        *(made.normalized_at_once(V, power) for power in (1, 2)),
        *(made.normalized_at_once(_of_all_magnitudes(), power) for power in (1, 2)),
        made.normalized_at_once(largest.astype(f32) + _counts(8, 256, most=2)),
        made.normalized_at_once(_counts(2, 21) * f32(0.125), 2),
    ]


# --- sketches ---


def _hashes(d: int, k: int) -> sketch.PreparedHashes:
    return sketch.prepare(hashes(d, k), np.asarray)


def _count_sketch() -> list[Launch]:
    """Bins of many values, of none, and more bins than a block has threads."""
    X = _whole(2, 3, 70)
    return [
        *(made.count_sketch(X, _counts(2, 3), _hashes(70, k).first) for k in (7, 20, 1)),
        made.count_sketch(X, None, _hashes(70, 600).second),
        made.count_sketch(X, _counts(2, 3), _hashes(70, 600).first),
    ]


def _scatter() -> list[Launch]:
    return [
        made.scatter(_whole(2, 21, 21), _hashes(21, 50)),
        made.scatter(_whole(1, 270, 270), _hashes(270, 600)),
    ]


def _scatter_far() -> list[Launch]:
    return [
        made.scatter_far(_whole(2, 21, 21), _hashes(21, 50)),
        made.scatter_far(_whole(1, 270, 270), _hashes(270, 600)),
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
