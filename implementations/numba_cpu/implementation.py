"""NumPy arrays and the kernels of numba:cpu, by operation and route."""

from __future__ import annotations

from typing import ClassVar

from demopool.implementations.shared.host import HostImplementation

from demopool.contract import Kernel
from demopool.hashing import Hashes

from . import pool, power, sketch, weights


class NumbaImplementation(HostImplementation):
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

    def prepare(self, hashes: Hashes) -> sketch.PreparedHashes:
        return sketch.prepare(hashes)
