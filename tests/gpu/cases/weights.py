"""Of the iterations that make weights democratic, and of their Gram matrices."""

from __future__ import annotations

import numpy as np

from demopool.implementations.shared import grids

from ..arrays import POWERS, STRANGE, Array, counting, lower, spread, symmetric, whole
from ..backends import Launch
from ..made import Made

f32 = np.float32


def gram(made: Made) -> list[Launch]:
    """The last row of tiles ends in each of its four parts, here and in the next ones; features are
    some slabs long, one, or less, and more than are added up on their own."""
    return [
        made(whole(2, 109, 19)),
        made(whole(2, 131, 3) * f32(0.5), made.b.launches.RECTIFY),
        made(whole(1, 87, 45)),
        made(whole(1, 120, 8)),
    ]


def gram_parts(made: Made) -> list[Launch]:
    """Parts of which the last is shorter, and ends within a slab, or is empty."""
    sizes = [(2, 109, 45, 2), (1, 70, 131, 3), (1, 87, 5, 2), (1, 180, 8, 1)]
    return [made(whole(images, n, d), P=parts) for images, n, d, parts in sizes]


def from_parts(made: Made) -> list[Launch]:
    """Parts of K with its row sums, and of A, with the sum for its norm too. Rows are written four
    at a time, in both halves of a tile: the last one is each of them."""
    there = made.b.launches
    kinds = [there.SQUARE, there.RECTIFY, there.KEEP]
    if made.b.name == "cupy":
        kinds += [there.LOWER_1, there.LOWER_2]
    sizes = [(2, 109, 2), (1, 131, 3), (1, 70, 1), (2, 87, 1), (1, 120, 2)]
    sizes += [(1, n, 1) for n in (4, 5, 34, 35)] + [(2, 70, 2)]
    found = []
    for i, (images, n, count) in enumerate(sizes):
        kind, tiles = kinds[i % len(kinds)], grids.triangle(n)
        parts = whole(images * tiles, count, grids.TILE**2) * f32(0.5)
        of_image = (2, tiles) if kind > there.KEEP else (grids.tiles(n), n)
        shapes = ((images, n, n), (images, *of_image))
        found.append(there.from_parts(parts, *(np.full(z, np.nan, f32) for z in shapes), kind))
    return found


def from_triangle(made: Made) -> list[Launch]:
    return [
        made(lower(whole(2, 109, 109))),
        made(lower(whole(1, 131, 131)) * f32(0.5), made.b.launches.RECTIFY),
        *(made(lower(whole(1, n, n)), made.b.launches.KEEP) for n in (87, 109, 120)),
        made(lower(whole(2, 70, 70)), made.b.launches.KEEP),
        *(made(lower(whole(1, n, n))) for n in (87, 120)),
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


def resident(made: Made) -> list[Launch]:
    """Rows of one block and of several, the last of which has fewer; more warps than there are rows
    for, and fewer; images in turn, after odd and even numbers of iterations."""
    K, targets, a = counting(3, 37, 37), counting(3, 37), counting(3, 37)
    a[:, 2:5] = 0
    far, goals = K[:2].copy(), spread(2, 37)
    far[1] *= f32(2**-20)
    goals[:, 7:14] = STRANGE
    few = (counting(1, 5, 5), counting(1, 5), counting(1, 5))
    kernel, shape, args = made(K, targets, a, grids.Slices(40, 1, 2), 0.3, 3)
    return [
        made(K, targets, a, grids.Slices(16, 3, 1), 0.5, 4),
        (kernel, shape._replace(threads=(64,)), args),
        *(made(far, goals, a[:2], grids.Slices(8, 5, 2), tau, 2) for tau in POWERS),
        *(made(K, targets, a, grids.Slices(24, 2, 3), 0.3, count) for count in (0, 1)),
        made(*few, grids.Slices(8, 1, 1), 0.5, 3),
        made(
            counting(1, 260, 260),
            counting(1, 260),
            counting(1, 260),
            grids.Slices(136, 2, 1),
            0.25,
            3,
        ),
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
    """Read in words and in vectors, of which some lanes have none."""
    sizes = ((2, 37, 70), (1, 8, 5), (1, 21, 140), (1, 21, 12))
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


def row_forms(made: Made) -> list[Launch]:
    sizes = [(2, 109, 100), (1, 70, 18), (1, 20, 50)]
    return [made(whole(i, n, d), symmetric(i, d)) for i, n, d in sizes]


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
