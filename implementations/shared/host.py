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

    def row_magnitudes(self, X: Array) -> Array:
        # Not the methods of the same meaning, which go through Python.
        highest, lowest = np.maximum.reduce(X, axis=-1), np.minimum.reduce(X, axis=-1)
        return np.maximum(highest, -lowest)


@lru_cache(maxsize=64)
def _name(dtype: np.dtype[Any]) -> str:
    """Composed by NumPy each time it is asked, in Python."""
    return dtype.name
