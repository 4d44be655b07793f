"""The features every implementation is judged on, each by a name that fixes its seed.

A set is a plain NumPy array ``(..., n, d)`` whose values the asked dtype holds exactly, so that an
implementation and the reference see the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..problem.vocabulary import Dtype

Array = NDArray[Any]
Maker = Callable[[np.random.Generator], Array]

HALF_SCALES = {1e-12: 1e-3, 1e12: 1e3}
"""What half precision can hold, in place of the scales for the wider dtypes."""


def make(name: str, dtype: str) -> Array:
    """The named features in a dtype; float32 that holds its values where NumPy lacks it."""
    array = _SETS[name](np.random.default_rng(seed(name)))
    if name in _SCALES:
        half = Dtype(dtype).is_half
        array = array * (HALF_SCALES[_SCALES[name]] if half else _SCALES[name])
    return laid_out(name, representable(array, dtype))


def laid_out(name: str, array: Array) -> Array:
    """An array of the named set's job in the memory layout that the name promises."""
    return _LAYOUTS.get(name, _as_it_is)(array)


def seed(name: str) -> int:
    """Stable for ever, and different for every name."""
    return crc32(name.encode())


def representable(array: Array, dtype: str) -> Array:
    """The nearest values that the dtype holds."""
    kind = Dtype(dtype)
    if kind.in_numpy:
        return array.astype(dtype)
    # Ties go to even. Below its least exponent a dtype has one distance between numbers.
    wide = array.astype(np.float32).astype(np.float64)
    exponents = np.maximum(np.frexp(wide)[1] - 1, kind.least_exponent)
    distance = np.ldexp(1.0, exponents - kind.significand)
    return (np.round(wide / distance) * distance).astype(np.float32)


@cache
def real(name: str) -> Array:
    """Real VGG-16 features, shipped with the package: ``X224`` (2, 196, 512), ``X448``."""
    with (
        files(__package__).joinpath("vgg16_features.npz").open("rb") as file,
        np.load(file) as all_,
    ):
        array: Array = all_[name]
    array.setflags(write=False)
    return array


def _gaussian(*shape: int) -> Maker:
    return lambda rng: rng.standard_normal(shape)


def _rectified(*shape: int) -> Maker:
    """Like conv features after ReLU: non-negative, mostly zeros, no zero row."""

    def make(rng: np.random.Generator) -> Array:
        X = np.maximum(rng.standard_normal(shape) - 0.7, 0.0)
        X[..., 0] += 0.1
        return X

    return make


def _duplicated(rng: np.random.Generator) -> Array:
    X = rng.standard_normal((2, 12, 8))
    X[:, 6:] = X[:, :6]
    return X


def _rank_deficient(rng: np.random.Generator) -> Array:
    return rng.standard_normal((2, 40, 4)) @ rng.standard_normal((2, 4, 24))


def _zero_rows(rng: np.random.Generator) -> Array:
    """Rows 2 and 5 of the first image, and the whole second image."""
    X = rng.standard_normal((3, 9, 6))
    X[0, [2, 5]] = 0.0
    X[1] = 0.0
    return X


def _constant(rng: np.random.Generator) -> Array:
    """One eigenvalue is not zero, and no entry of A^p stands out of its rounding errors."""
    return np.stack([np.full((60, 48), 0.7), np.full((60, 48), 1 / 3)])


def _dead_channels(rng: np.random.Generator) -> Array:
    """As networks give them: most channels zero everywhere, and most rows."""
    X = np.maximum(rng.standard_normal((2, 90, 64)), 0.0)
    X[0, :, rng.permutation(64)[:45]] = 0.0
    X[1, rng.permutation(90)[:80]] = 0.0
    return X


def _orthogonal_faint_rows(rng: np.random.Generator) -> Array:
    """Weak rows orthogonal to all strong ones: their similarity is only to each other. In all
    coordinates, so that no zero hides what rounding does to a difference of large numbers."""
    X = np.zeros((2, 70, 16))
    X[:, :60, :8] = rng.standard_normal((2, 60, 8))
    # Faint enough for second order; in first order rounding disturbs still fainter ones anyway.
    X[:, 60:, 8:] = 0.03 * rng.standard_normal((2, 10, 8))
    return X @ np.linalg.qr(rng.standard_normal((16, 16)))[0]


def _in_subspaces(n: int, d: int, live: int, *parts: tuple[int, int, float]) -> Maker:
    """``parts`` (rows, dimensions, scale) are orthogonal to each other, in ``live`` of d channels:
    rotated among these, and each of them 0 in the others."""

    def make(rng: np.random.Generator) -> Array:
        X = np.zeros((1, n, d))
        row = column = 0
        for rows, dimensions, scale in parts:
            some = scale * rng.standard_normal((1, rows, dimensions))
            X[:, row : row + rows, column : column + dimensions] = some
            row, column = row + rows, column + dimensions
        assert (row, column) == (n, live)
        X[..., :live] = X[..., :live] @ np.linalg.qr(rng.standard_normal((live, live)))[0]
        return X

    return make


def _mixed_norms(rng: np.random.Generator) -> Array:
    """Row norms over three orders of magnitude: some weights are far from the others."""
    return rng.standard_normal((2, 30, 10)) * np.logspace(-1.5, 1.5, 30)[:, np.newaxis]


_SETS: dict[str, Maker] = {
    "n=1": _gaussian(2, 1, 7),
    "d=1": _gaussian(2, 7, 1),
    "n=1 d=1": _gaussian(1, 1),
    "n<d": _gaussian(2, 6, 20),
    "n=d": _gaussian(2, 12, 12),
    "n>d": _gaussian(2, 50, 9),
    "one image": _gaussian(20, 8),
    "rectified": _rectified(2, 60, 24),
    "mixed norms": _mixed_norms,
    "orthogonal faint rows": _orthogonal_faint_rows,
    "faint across strong": _in_subspaces(60, 8, 8, (8, 4, 1e-3), (52, 4, 1.0)),
    "faint across strong, scaled by 1e-12": _in_subspaces(60, 8, 8, (8, 4, 1e-3), (52, 4, 1.0)),
    "faint across strong, scaled by 1e12": _in_subspaces(60, 8, 8, (3, 2, 1e-2), (57, 6, 1.0)),
    "many faint across strong": _in_subspaces(784, 64, 64, (112, 32, 1e-3), (672, 32, 1.0)),
    "three sizes across": _in_subspaces(
        *(300, 24, 24), (30, 8, 1e-3), (70, 8, 3e-2), (200, 8, 1.0)
    ),
    "across in few channels": _in_subspaces(700, 200, 6, (2, 4, 0.1), (698, 2, 1.0)),
    "batch of 0": _gaussian(0, 6, 4),
    "batch of 1": _gaussian(1, 6, 4),
    "batch of 17": _gaussian(17, 6, 4),
    "several leading axes": _gaussian(2, 3, 6, 4),
    "strided": _gaussian(2, 10, 8),
    "column-major": _gaussian(2, 9, 8),
    "read-only": _gaussian(2, 9, 8),
    "duplicated rows": _duplicated,
    "zero rows": _zero_rows,
    "rank-deficient": _rank_deficient,
    "constant": _constant,
    "dead channels": _dead_channels,
    "scaled by 1e-12": _gaussian(2, 10, 8),
    "scaled by 1e12": _gaussian(2, 10, 8),
    "medium": _rectified(2, 200, 100),
    "many rows": _gaussian(1, 2100, 8),
    "many values": _gaussian(1, 6000, 200),
    "many columns": _gaussian(1, 3, 1500),
    "VGG-16 at 224 px": lambda rng: real("X224"),
    "VGG-16 at 448 px": lambda rng: real("X448"),
}
NAMES = tuple(_SETS)
_LARGE = (
    *("medium", "many rows", "many values", "many columns", "across in few channels"),
    "VGG-16 at 448 px",
)
CANCELLING = tuple(name for name in NAMES if "across" in name)
"""Groups of rows of unlike size, each orthogonal to the others, in all coordinates: without K a sum
is a difference of large numbers, and the weights decide of which rows."""
ONLY_FOR = {
    # Larger than the blocks in which implementations work, for the operations that have them.
    "many rows": ("weights", "pool", "pool_sketch"),
    "many values": ("pool", "pool_sketch"),
    "many columns": ("pool", "pool_sketch"),
    **dict.fromkeys(CANCELLING, ("weights",)),
}
QUICK = tuple(name for name in NAMES if name not in _LARGE)
_EMULATED = (
    *("n=1", "d=1", "n<d", "n>d", "mixed norms", "batch of 0", "several leading axes"),
    *("strided", "zero rows", "scaled by 1e-12", "scaled by 1e12", "orthogonal faint rows"),
    *("faint across strong", "faint across strong, scaled by 1e12"),
)
_EMULATED_ROOTS = (
    *("n<d", "n>d", "batch of 0", "several leading axes", "zero rows", "scaled by 1e12"),
)


def emulated(operation: str) -> tuple[str, ...]:
    """For GPU code whose PTX is executed on the CPU, some thousand times slower than on a GPU;
    roots are up to 111 products in a row."""
    return _EMULATED_ROOTS if "power" in operation else _EMULATED


_SCALES = {
    name: scale
    for name in NAMES
    for words, scale in (("scaled by 1e-12", 1e-12), ("scaled by 1e12", 1e12))
    if name.endswith(words)
}


def _as_it_is(X: Array) -> Array:
    return X


def _every_second(X: Array) -> Array:
    """A view of every second row and column of an array twice as large."""
    larger = np.zeros((*X.shape[:-2], 2 * X.shape[-2], 2 * X.shape[-1]), dtype=X.dtype)
    larger[..., ::2, ::2] = X
    return larger[..., ::2, ::2]


def _column_major(X: Array) -> Array:
    return X.swapaxes(-1, -2).copy().swapaxes(-1, -2)


def _read_only(X: Array) -> Array:
    X.setflags(write=False)
    return X


_LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "strided": _every_second,
    "column-major": _column_major,
    "read-only": _read_only,
}
