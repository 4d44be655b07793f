"""Of sketches and of roots of matrices."""

from __future__ import annotations

import numpy as np

import demopool as dp

from ..arrays import counting, random, symmetric, whole
from ..backends import Launch
from ..made import Made

f32, i32 = np.float32, np.int32


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
    return [made(symmetric(3, 21), whole(3, 21, 21), counting(3), (3.5, -2.5))]


def finish(made: Made) -> list[Launch]:
    exponents = np.arange(-620, 620, 31).astype(i32)
    bound = np.resize(np.array([1, 3e38, 1e-44, 7], f32), len(exponents))
    return [
        made(whole(len(exponents), 5, 5), bound, exponents),
        made(whole(3, 21, 21), counting(3), np.array([0, 1, -1], i32)),
    ]
