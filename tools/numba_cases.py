"""Launches of the kernels of numba:cuda that show mistakes: edges, all magnitudes, every option.

Features are small integers where a kernel adds up: their sums are exact in any order, so that
results can be compared bit for bit. Of images there are always several, with different numbers,
and of tiles and blocks of an image too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from demopool.implementations.numba_cuda import kernels
from tools import numba_launches as made
from tools.kernel_arrays import (
    DESCRIPTORS,
    POWERS,
    STRANGE,
    counting,
    one_large,
    random,
    spread,
    whole,
)
from tools.numba_launches import Launch

Array = Any
f32, i32 = np.float32, np.int32

_ABSENT = np.zeros((2, 0), f32)
"""Weights of 1."""


def _symmetric(images: int, d: int) -> Array:
    M = whole(images, d, d)
    return np.tril(M) + np.tril(M, -1).swapaxes(1, 2)


def _gram() -> list[Launch]:
    return [
        made.gram(whole(2, 109, 19)),
        made.gram(whole(2, 131, 3), kernels.RECTIFY),
        made.gram(whole(1, 120, 5)),
    ]


def _first_step() -> list[Launch]:
    sums = spread(20_000)
    sums[[3, 300, 400, 401]] = 0, -1, np.inf, np.nan
    numbers = [(0.5, 0.5, 10), (0.0, 1.0, 1), (1.0, 0.0, 1), (0.3, 0.7, 0), (1.7, 3.0, 2)]
    return [made.first_step(sums, *each) for each in numbers]


def _step() -> list[Launch]:
    K, targets, a = counting(2, 70, 70), spread(2, 70), counting(2, 70)
    K[1] *= f32(2**-20)
    a[:, 2:5] = 0
    targets[:, 7:14] = STRANGE
    more = made.step(counting(2, 200, 200), counting(2, 200), counting(2, 200), 3.0)
    return [*(made.step(K, targets, a, tau) for tau in POWERS), more]


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
        made.small_image(K, targets, a, 0.3, 0),
        made.small_image(counting(1, 70, 70), counting(1, 70), counting(1, 70), 0.25, 3),
    ]


def _row_forms() -> list[Launch]:
    sizes = [(2, 109, 100), (1, 70, 18), (1, 20, 50)]
    return [made.row_forms(whole(*z), _symmetric(z[0], z[2])) for z in sizes]


def _exact_rows() -> list[Launch]:
    """Also rows that are aligned exactly as much as they must be, or hardly less, of zeros and NaN;
    more rows than all lanes of a block take in turn; and a product whose square is zero."""
    bounds = counting(2, 21)
    forms = np.concatenate([f32(0.5) * bounds + whole(2, 21, most=1), bounds])
    forms[[0, 1, 2], 4], forms[[0, 2], 5] = np.nan, 0
    short, many = forms[:, :8].copy(), np.array([[-1.0] * 5 + [1.0] * 295, [1.0] * 300], f32)
    small = np.array([[[2.0**-80], [2.0**-3]]], f32)
    large = np.array([[2.0**120, 1]], f32)
    return [
        made.exact_rows(whole(2, 21, 200, most=2), counting(2, 21), forms, 0.5),
        made.exact_rows(whole(2, 8, 5), _ABSENT, short, 0.5),
        made.exact_rows(whole(1, 300, 3), counting(1, 300), many, 0.25),
        made.exact_rows(small, large, np.array([[0, 0], [1, 1]], f32), 0.5),
    ]


def _update() -> list[Launch]:
    size = 20_000  # the last bits of a power
    forms, targets, a = spread(size), counting(size), counting(size)
    a[3:6] = 0
    forms[400:407] = STRANGE
    return [made.update(forms, targets, a, tau) for tau in POWERS]


def _restored() -> list[Launch]:
    exponents = np.array([0, 1, -1, 5, -40, 149, -149, 300, -300], i32)
    a = counting(len(exponents), 600)
    return [made.restored(a, exponents, power) for power in (0.9, 2.0, -0.3)]


def _outer() -> list[Launch]:
    return [
        made.outer(random(2, 21, 109), random(2, 21)),
        made.outer(random(2, 16, 131), _ABSENT),
    ]


def _weighted_sum() -> list[Launch]:
    return [
        made.weighted_sum(whole(2, 21, 70), counting(2, 21)),
        made.weighted_sum(whole(2, 29, 33), _ABSENT),
    ]


def _largest() -> list[Launch]:
    V = one_large(70, 1100)
    V[5] = 0
    return [
        made.largest(V),
        made.largest(one_large(40, 40), 1),
        made.largest(one_large(9, 6000)[1:].copy(), 9),
    ]


def _power_sums() -> list[Launch]:
    V, magnitude = whole(4, 1100, most=8), np.array([8, 16, 0, 4], f32)
    return [made.power_sums(V, magnitude, power) for power in (1, 2)]


def _normalized() -> list[Launch]:
    V, magnitude, sums = random(4, 600), np.array([3, 1e-40, 0, 5e37], f32), counting(4, most=900)
    V[1] *= f32(1e-40)
    V[3] *= f32(1e37)
    V[:, ::5] = 0
    V[:, 1::5] = -0.0
    return [made.normalized(V, magnitude, sums, power) for power in (1, 2)]


def _normalized_at_once() -> list[Launch]:
    return [made.normalized_at_once(V, power) for V, power in DESCRIPTORS]


def _scaled() -> list[Launch]:
    magnitude = np.array([1, 0, 1e-44, 3e-39, 0.7, 5, 1e10, 3e38, np.inf, np.nan, 2.0**-126], f32)
    near = random(len(magnitude), 600) * np.minimum(magnitude, f32(1e37))[:, None]
    return [
        made.scaled(spread(len(magnitude), 600), magnitude),
        made.scaled(near, magnitude),
        made.scaled(near[:, :1].copy(), magnitude),
    ]


def _hashes(d: int, k: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    bins = [rng.integers(0, k, d).astype(i32) for _ in range(2)]
    return (*bins, *(rng.choice([-1.0, 1.0], d).astype(f32) for _ in range(2)))


def _scatter() -> list[Launch]:
    return [
        made.scatter(whole(2, 21, 21), _hashes(21, 50), 50),
        made.scatter(whole(1, 270, 270), _hashes(270, 600), 600),
    ]


def _scatter_far() -> list[Launch]:
    return [
        made.scatter_far(whole(2, 21, 21), _hashes(21, 50), 50),
        made.scatter_far(whole(1, 270, 270), _hashes(270, 600), 600),
    ]


def _product() -> list[Launch]:
    """With and without D; with a last row of tiles that ends in each of its four parts."""
    sizes = [
        (2, 70, 0.25),
        (1, 109, 0.0),
        (1, 45, 0.25),
        *((1, d, beta) for d in (18, 63) for beta in (0.25, 0.0)),
    ]
    found = []
    for images, d, beta in sizes:
        P, Q, D = (whole(images, d, d, most=most) for most in (4, 6, 9))
        found.append(made.product(P, Q, D, (0.5, beta, 2.0)))
    return found


def _moments() -> list[Launch]:
    return [made.moments(whole(2, 270, 270)), made.moments(whole(3, 5, 5), 2)]


def _bounds() -> list[Launch]:
    """Of the moments of matrices: of zeros, of large and of equal eigenvalues."""
    spectra = random(600, 5) ** 2
    spectra[[0, 300]] = 0
    spectra[::7] = 3
    spectra[::5] *= f32(1e15)
    return [made.bounds(spectra.sum(1), (spectra**2).sum(1), 5)]


def _start() -> list[Launch]:
    return [made.start(_symmetric(3, 21), whole(3, 21, 21), counting(3), (3.5, -2.5))]


def _finish() -> list[Launch]:
    exponents = np.arange(-620, 620, 31).astype(i32)
    bound = np.resize(np.array([1, 3e38, 1e-44, 7], f32), len(exponents))
    return [
        made.finish(whole(len(exponents), 5, 5), bound, exponents),
        made.finish(whole(3, 21, 21), counting(3), np.array([0, 1, -1], i32)),
    ]


def _fill() -> list[Launch]:
    return [made.fill(600, f32(3)), made.fill(512, f32(-0.0))]


def _copied() -> list[Launch]:
    return [made.copied(random(3, 30, 21)), made.copied(random(2, 128, 2))]


CASES: dict[str, Callable[[], list[Launch]]] = {
    "bounds": _bounds,
    "copied": _copied,
    "exact_rows": _exact_rows,
    "fill": _fill,
    "finish": _finish,
    "first_step": _first_step,
    "gram": _gram,
    "largest": _largest,
    "moments": _moments,
    "normalized": _normalized,
    "normalized_at_once": _normalized_at_once,
    "outer": _outer,
    "power_sums": _power_sums,
    "product": _product,
    "restored": _restored,
    "row_forms": _row_forms,
    "scaled": _scaled,
    "scatter": _scatter,
    "scatter_far": _scatter_far,
    "small_image": _small_image,
    "start": _start,
    "step": _step,
    "update": _update,
    "weighted_sum": _weighted_sum,
}


@cache
def cases(name: str) -> tuple[Launch, ...]:
    """Of a kernel; the arrays are shared, so ``numba_launches.run`` copies them."""
    return tuple(CASES[name]())
