"""The table of a backend's kernels by operation and route, from its four modules."""

from __future__ import annotations

from typing import Any

from demopool.contract import Kernel


def kernel_table(weights: Any, pool: Any, sketch: Any, power: Any) -> dict[tuple[str, str], Kernel]:
    """The kernels of a backend's ``weights.py``, ``pool.py``, ``sketch.py`` and ``power.py``."""
    return {
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
