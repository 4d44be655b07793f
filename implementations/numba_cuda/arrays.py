"""Arrays of a device as kernels want them: contiguous, with one leading axis."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from . import launches
from .launcher import Array, Launcher


def zeros(on: Launcher, shape: tuple[int, ...], dtype: Any) -> Array:
    out = on.empty(shape, dtype)
    on.run(launches.fill(out, 0))
    return out


def in_range(on: Launcher, X: Array) -> tuple[Array, Array]:
    """A copy whose largest value in every image is near 1, and the exponents of the scale."""
    images, values = X.shape[0], prod(X.shape[1:])
    exponents = zeros(on, (images,), np.int32)
    out = on.empty(X.shape, X.dtype)
    if images and values:
        magnitude = largest(on, X.reshape((images, values)))
        on.run(launches.scaled(X, magnitude, out, exponents))
    return out, exponents


def are_ordinary(on: Launcher, X: Array, low: float, high: float, zero_rows: bool) -> bool:
    """As ``Implementation.looks_ordinary``: X is read once, and one number by the host. Kernels
    have no half precision."""
    if X.dtype.itemsize == 2:
        return False
    found = zeros(on, (1,), np.int32)
    on.run(launches.unordinary(X, found, low, high, zero_rows))
    return not on.read(found)[0]


def largest(on: Launcher, V: Array) -> Array:
    """max |v| of every row of a matrix."""
    found = zeros(on, (V.shape[0],), V.dtype)
    on.run(launches.largest(V, found))
    return found


def copied(on: Launcher, array: Array, dtype: Any = None) -> Array:
    """In memory of its own, contiguous; in another dtype if one is given."""
    out = on.empty(array.shape, dtype or array.dtype)
    on.run(launches.copied(array, out))
    return out
