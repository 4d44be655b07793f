"""The table of a backend's kernels by operation and route, from its four modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from demopool.contract import Kernel, signatures


class WeightsModule(Protocol):
    """A backend's ``weights.py``."""

    @property
    def dense(self) -> signatures.Weights: ...
    @property
    def matrix_free(self) -> signatures.Weights: ...


class PoolModule(Protocol):
    @property
    def direct(self) -> signatures.Pool: ...
    @property
    def normalize(self) -> signatures.Normalize: ...


class SketchModule(Protocol):
    @property
    def sketch_fft(self) -> signatures.Sketch: ...
    @property
    def pool_fft(self) -> signatures.PoolSketch: ...
    @property
    def pool_moment(self) -> signatures.PoolSketch: ...


class PowerModule(Protocol):
    """Kernels by route."""

    @property
    def OF_FEATURES(self) -> Mapping[str, signatures.Power]: ...
    @property
    def OF_MATRICES(self) -> Mapping[str, signatures.MatrixPower]: ...
    @property
    def SKETCHED(self) -> Mapping[str, signatures.PowerSketch]: ...


def kernel_table(
    weights: WeightsModule, pool: PoolModule, sketch: SketchModule, power: PowerModule
) -> dict[tuple[str, str], Kernel]:
    """From a backend's ``weights.py``, ``pool.py``, ``sketch.py`` and ``power.py``."""
    return work_table(weights, pool, sketch, power)


def work_table(weights: Any, pool: Any, sketch: Any, power: Any) -> dict[tuple[str, str], Any]:
    """The same of functions that take a launcher first, and so are no kernels yet."""
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
