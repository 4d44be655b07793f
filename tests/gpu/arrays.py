"""KernelSizes and arrays for launches of GPU kernels, the same for every set of kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = Any
f32 = np.float32


class KernelSizes(NamedTuple):
    """Images, features, their length, and the length of a sketch."""

    images: int
    n: int
    d: int
    k: int


EVEN = KernelSizes(2, 128, 64, 512)
"""Whole tiles, so that what is counted is what the kernel does, not what its edges do."""

UNEVEN = KernelSizes(2, 70, 21, 50)
"""More than one tile, and tiles with tails: for results."""


def random(*shape: int, dtype: Any = f32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def positive(*shape: int, dtype: Any = f32) -> Array:
    return np.abs(random(*shape, dtype=dtype)) + dtype(0.1)


def whole(*shape: int, most: int = 4) -> Array:
    """Integers of both signs, and zeros among them."""
    return np.random.default_rng(sum(shape)).integers(-most, most + 1, shape).astype(f32)


def counting(*shape: int, most: int = 4) -> Array:
    """Integers from 1."""
    return np.random.default_rng(sum(shape)).integers(1, most + 1, shape).astype(f32)


def lower(K: Array) -> Array:
    """Above the diagonal there is junk."""
    return np.where(np.tri(K.shape[-1], dtype=bool), K, K.dtype.type(np.nan))


def symmetric(images: int, d: int) -> Array:
    M = whole(images, d, d)
    return np.tril(M) + np.tril(M, -1).swapaxes(1, 2)


def spread(*shape: int) -> Array:
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


def one_large(images: int, values: int) -> Array:
    """The largest one is in another lane of another warp of another block in every image."""
    V = random(images, values)
    for image in range(images):
        V[image, 677 * image % values] = (-1) ** image * (10 + image)
    return V


# Infinite, undefined or negative sums are mistakes of others; what a power makes of them is known.
STRANGE = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1, -2.5], f32)
POWERS = (0.5, 0.0, 1.0, 2.0, 1.7)


def of_all_magnitudes() -> Array:
    """Of both signs, with zeros of both; one image of subnormal numbers, one of zeros."""
    V = random(5, 600)
    V *= np.array([1, 1e-40, 0, 1e37, 1e-30], f32)[:, None]
    V[:, ::5] = 0
    V[:, 1::5] = -0.0
    return V


def _in_turn() -> Array:
    """The largest one is in another warp in every image."""
    peaks = np.diag(np.arange(1, 9) * f32(4))[:, np.arange(8).repeat(32)]
    return (peaks * (np.arange(256) % 32 == 7)).astype(f32) + counting(8, 256, most=2)


def _eights() -> Array:
    """Integers whose largest is 8, so that shares and their sums are exact."""
    V = whole(3, 1100, most=7)
    V[np.arange(3), [5, 700, 1099]] = 8, -8, 8
    return V


def _alone(values: int, at: int) -> Array:
    """Zeros but for one value."""
    V = np.zeros((1, values), f32)
    V[0, at] = 3
    return V


DESCRIPTORS: list[tuple[Array, int]] = [
    *((_eights(), power) for power in (1, 2)),
    *((of_all_magnitudes(), power) for power in (1, 2)),
    (_in_turn(), 1),
    (_alone(256, 250), 1),
    (counting(2, 21) * f32(0.125), 2),
]
"""To be normalised, with the power that is summed: 1 for the signed square root, 2 without it."""


class WithGradient:
    """A tensor of torch on a GPU that requires grad."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")
