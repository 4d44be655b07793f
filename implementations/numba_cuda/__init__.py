"""numba:cuda, our own kernels on a GPU, and numba:ptx, the same kernels executed on the CPU.

This imports neither Numba nor a compiler, and probing creates no CUDA context.
"""

from __future__ import annotations

import sys
from typing import Any

from demopool.contract import (
    CONTRACT_VERSION,
    Capability,
    Implementation,
    Probe,
    Route,
    Specification,
    probing,
    routes_for,
)

_INSTALL = {
    "cuda": "pip install '.[cuda13]' (in a clone)",
    "ptx": "pip install '.[gpu-proof]' (in a clone)",
}
_HERE = {
    *(("weights", "dense"), ("weights", "matrix-free"), ("pool", "direct")),
    *(("pool_sketch", "moment"), ("normalize", "direct")),
    *(("power", root) for root in ("newton-schulz", "polar")),
    *(("matrix_power", root) for root in ("newton-schulz", "polar")),
    *(("power_sketch", f"{root}+moment") for root in ("newton-schulz", "polar")),
}


def _capability(route: Route) -> Capability:
    if (route.operation, route.name) in _HERE:
        return Capability(route.operation, route.name, route.orders)
    return Capability(route.operation, route.name, route.orders, reason=_why_not(route.name))


def _why_not(route: str) -> str:
    if "fft" in route:
        return "Numba has no Fourier transform on CUDA"
    if route.startswith("newton"):
        return "Numba has no inverse on CUDA"
    return "Numba has no eigen-solver and no SVD on CUDA"


def _probe(device: str) -> Probe:
    needed = ("numba", "numba-cuda", *(("cuda-pathfinder",) if device == "ptx" else ()))
    versions = probing.installed(needed, _INSTALL[device])
    if isinstance(versions, Probe):
        return versions
    return probing.from_ptx(versions) if device == "ptx" else probing.on_gpu(versions)


def _recognise(array: Any) -> str | None:
    """Numba's own device arrays; those of other libraries belong to them unless we are named."""
    module: Any = sys.modules.get("numba.cuda.cudadrv.devicearray")
    if module is not None and module.is_cuda_ndarray(array):
        return "cuda"
    return None


def _load(device: str, threads: int) -> Implementation:
    if device == "ptx":
        from .emulated import NumbaPtxImplementation

        return NumbaPtxImplementation()
    from .implementation import NumbaCudaImplementation

    return NumbaCudaImplementation()


SPECIFICATION = Specification(
    library="numba",
    devices=("cuda", "ptx"),
    probe=_probe,
    capabilities=tuple(_capability(route) for route in routes_for("numba")),
    load=_load,
    recognise=_recognise,
    contract=CONTRACT_VERSION,
    compiles_per="dtype",
)
