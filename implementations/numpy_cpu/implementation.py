"""NumPy arrays and the kernels of numpy:cpu, by operation and route."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from demopool.contract import ArrayFacts, Implementation, Kernel
from demopool.errors import InvalidInput
from demopool.hashing import Hashes

from . import pool, power, sketch, weights
from .blas import Array


class NumpyImplementation(Implementation):
    """Everything is a view of the caller's memory until a kernel has to work on it."""

    kernels: ClassVar[dict[tuple[str, str], Kernel]] = {
        ("weights", "dense"): weights.dense,
        ("weights", "matrix-free"): weights.matrix_free,
        ("pool", "direct"): pool.direct,
        ("sketch", "fft"): sketch.sketch_fft,
        ("pool_sketch", "fft"): sketch.pool_fft,
        ("pool_sketch", "moment"): sketch.pool_moment,
        **{("power", route): kernel for route, kernel in power.OF_FEATURES.items()},
        **{("matrix_power", route): kernel for route, kernel in power.OF_MATRICES.items()},
        **{("power_sketch", route): kernel for route, kernel in power.SKETCHED.items()},
        ("normalize", "direct"): pool.normalize,
    }

    def inspect(self, array: Any) -> ArrayFacts | None:
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            return None
        return ArrayFacts(array.shape, array.dtype.name, "cpu")

    def asarray(self, array: Array) -> Array:
        if isinstance(array, np.ma.MaskedArray):
            raise InvalidInput("array must have all its values; got a MaskedArray.")
        return np.asarray(array)

    def to_numpy(self, array: Array) -> Array:
        return array

    def cast(self, array: Array, dtype: str) -> Array:
        return array.astype(dtype, copy=False)

    def row_magnitudes(self, X: Array) -> Array:
        return np.maximum(X.max(axis=-1), -X.min(axis=-1))

    def prepare(self, hashes: Hashes) -> sketch.PreparedHashes:
        return sketch.prepare(hashes)
