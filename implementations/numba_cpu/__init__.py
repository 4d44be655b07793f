"""numba:cpu: compiled kernels on NumPy arrays, products by SciPy's BLAS. It imports neither."""

from __future__ import annotations

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

# float16 features are converted to float32, exactly; a matrix rounded to float16 is not a valid A.
_CAPABILITIES = tuple(
    Capability(
        route.operation,
        route.name,
        route.orders,
        _FLOATS if route.operation == "matrix_power" else ("float16", *_FLOATS),
    )
    for route in routes_for("numba")
)


def _probe(device: str) -> Probe:
    versions = probing.installed(
        ("numba", "llvmlite", "numpy", "scipy"), "pip install '.[numba]' (in a clone)"
    )
    return versions if isinstance(versions, Probe) else probing.on_cpu(versions)


def _recognise(array: Any) -> str | None:
    """NumPy arrays belong to numpy:cpu; this backend accepts them only when it is named."""
    return None


def _load(device: str, threads: int) -> Implementation:
    from .implementation import NumbaImplementation

    return NumbaImplementation()


SPECIFICATION = Specification(
    library="numba",
    devices=("cpu",),
    probe=_probe,
    capabilities=_CAPABILITIES,
    load=_load,
    recognise=_recognise,
    contract=CONTRACT_VERSION,
    compiles_per="dtype",
)
