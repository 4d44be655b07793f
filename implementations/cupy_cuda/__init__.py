"""cupy:cuda, CuPy arrays with our own CUDA kernels, and cupy:ptx, the same launches executed here.

cupy:ptx runs the kernels from their PTX and everything else on NumPy. This file imports neither
CuPy nor a compiler, and probing creates no CUDA context.
"""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from typing import Any

from demopool.contract import (
    CONTRACT_VERSION,
    Capability,
    Implementation,
    Probe,
    Route,
    Specification,
    State,
    probing,
    routes_for,
)

_FLOATS = ("float32", "float64")

# What NumPy stands in for where the kernels are executed from their PTX.
_LIBRARIES = {
    "eigh": "cuSOLVER's eigen-solver",
    "gram": "cuSOLVER's eigen-solver",
    "svd": "cuSOLVER's SVD",
    "newton": "cuBLAS's inverse",
    "fft": "cuFFT",
}
_BY_PRODUCTS = "cuBLAS's products"


def _capability(route: Route) -> Capability:
    """CuPy has no bfloat16; a matrix rounded to float16 is not positive semi-definite."""
    dtypes: tuple[str, ...] = ("float16", *_FLOATS)
    if route.operation == "matrix_power":
        dtypes = _FLOATS
    if route.products == "tf32":
        dtypes = ("float32",)
    if route.products == "128":  # in double a tile needs more shared memory than a block has
        dtypes = ("float16", "float32")
    return Capability(
        route.operation, route.name, route.orders, dtypes, not_executed=_not_executed(route)
    )


def _not_executed(route: Route) -> str:
    if route.products in ("cublas", "syrk"):
        return _BY_PRODUCTS
    if route.operation == "pool" and 1 in route.orders:
        return f"{_BY_PRODUCTS}, for first order"
    if route.operation in ("pool", "normalize") or route.name.startswith(("dense", "moment")):
        return ""  # nothing but kernels of our own
    parts = [_LIBRARIES[part] for part in route.name.split("+") if part in _LIBRARIES]
    return " and ".join(parts or [_BY_PRODUCTS])


def _probe(device: str) -> Probe:
    if device == "ptx":
        packages = ("cuda-bindings", "nvidia-cuda-nvrtc", "cuda-pathfinder")
        versions = probing.installed(packages, "pip install '.[gpu-proof]' (in a clone)")
        return versions if isinstance(versions, Probe) else probing.from_ptx(versions)
    # CuPy is one library under many names: cupy, cupy-cuda12x, cupy-cuda13x, ...
    found = {
        name: there.version
        for there in distributions()
        if (name := (there.metadata["Name"] or "").lower()).startswith("cupy")
    }
    if not found:
        install = "pip install '.[cuda13]' (in a clone)"
        return Probe(State.UNAVAILABLE, reason="cupy is not installed", install=install)
    return probing.on_gpu(found)


def _recognise(array: Any) -> str | None:
    cupy: Any = sys.modules.get("cupy")
    return "cuda" if cupy is not None and isinstance(array, cupy.ndarray) else None


def _load(device: str, threads: int) -> Implementation:
    if device == "ptx":
        from .emulated import CupyPtxImplementation

        return CupyPtxImplementation()
    from .implementation import CupyCudaImplementation

    return CupyCudaImplementation()


SPECIFICATION = Specification(
    library="cupy",
    devices=("cuda", "ptx"),
    probe=_probe,
    capabilities=tuple(_capability(route) for route in routes_for("cupy")),
    load=_load,
    recognise=_recognise,
    contract=CONTRACT_VERSION,
    compiles_per="dtype",
)
