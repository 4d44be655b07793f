"""The common base of backends that work on NumPy arrays in host memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from demopool.contract import ArrayFacts, Implementation
from demopool.errors import InvalidInput

from .blas import Array


class HostImplementation(Implementation):
    """Arrays stay views of the caller's memory until a kernel has to work on them."""

    def inspect(self, array: Any) -> ArrayFacts | None:
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            return None
        return ArrayFacts(array.shape, _name(array.dtype), "cpu")

    def asarray(self, array: Array) -> Array:
        if isinstance(array, np.ma.MaskedArray):
            raise InvalidInput("array must have all its values; got a MaskedArray.")
        return np.asarray(array)

    def to_numpy(self, array: Array) -> Array:
        return array

    def cast(self, array: Array, dtype: str) -> Array:
        return array.astype(dtype, copy=False)

    def looks_ordinary(self, X: Array, low: float, high: float, *, zero_rows: bool = False) -> bool:
        return look_ordinary(X, low, high)

    def row_magnitudes(self, X: Array) -> Array:
        if X.dtype != np.float16:
            # Not the methods of the same meaning, which go through Python.
            highest, lowest = np.maximum.reduce(X, axis=-1), np.minimum.reduce(X, axis=-1)
            return np.maximum(highest, -lowest)
        # NumPy compares half precision one by one, after conversion. Without their sign bit such
        # numbers are in the order of integers, NaN last: the largest of one sign is the largest
        # signed integer, that of the other the largest unsigned one.
        signed, unsigned = (X.view(kind).max(axis=-1) for kind in (np.int16, np.uint16))
        magnitudes = np.maximum(signed.view(np.uint16) & 0x7FFF, unsigned & 0x7FFF)
        return magnitudes.view(np.float16)


def look_ordinary(X: Array, low: float, high: float) -> bool:
    """See ``Implementation.looks_ordinary``, of rows in host memory."""
    if X.itemsize == 2 or X.strides[-1] != X.itemsize:  # float16 of either byte order
        return False
    # A row's largest magnitude is at most its norm, and at least that over the root of d. BLAS
    # finds the norms of short rows in a fraction of the time that NumPy takes for a maximum.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = np.vecdot(X, X)
    least, most = np.minimum.reduce(squares, axis=None), np.maximum.reduce(squares, axis=None)
    return bool(least >= X.shape[-1] * low * low and most <= high * high)


@lru_cache(maxsize=64)
def _name(dtype: np.dtype[Any]) -> str:
    """Composed by NumPy each time it is asked, in Python."""
    return dtype.name
