"""numpy:cpu: NumPy arrays with SciPy's BLAS, LAPACK and FFT. This file imports neither library."""

from __future__ import annotations

import sys
from typing import Any

from demopool.contract import (
    CONTRACT_VERSION,
    Capability,
    Implementation,
    Probe,
    Specification,
    probing,
    routes_for,
)

_FLOATS = ("float32", "float64")


def _dtypes(operation: str) -> tuple[str, ...]:
    """The supported dtypes. float16 features are converted to float32, exactly; a matrix rounded to
    float16 is no longer positive semi-definite, so it is not a valid A."""
    return _FLOATS if operation == "matrix_power" else ("float16", *_FLOATS)


_CAPABILITIES = tuple(
    Capability(route.operation, route.name, route.orders, _dtypes(route.operation))
    for route in routes_for("numpy")
)


def _probe(device: str) -> Probe:
    versions = probing.installed(("numpy", "scipy"), "pip install . (in a clone)")
    return versions if isinstance(versions, Probe) else probing.on_cpu(versions)


def _recognise(array: Any) -> str | None:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray):
        return None
    # A masked array declares some values missing; using all of them would be wrong.
    return None if isinstance(array, numpy.ma.MaskedArray) else "cpu"


def _load(device: str, threads: int) -> Implementation:
    from .implementation import NumpyImplementation

    return NumpyImplementation()


SPECIFICATION = Specification(
    library="numpy",
    devices=("cpu",),
    probe=_probe,
    capabilities=_CAPABILITIES,
    load=_load,
    recognise=_recognise,
    contract=CONTRACT_VERSION,
)
