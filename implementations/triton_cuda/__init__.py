"""triton:cuda, kernels in Triton's Python on torch tensors, and triton:interpreter, the same ones
run on the CPU by Triton's interpreter. This file imports neither Triton nor torch."""

from __future__ import annotations

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

_HERE = {("weights", "dense"), ("pool", "direct"), ("normalize", "direct")}
_DTYPES = ("float16", "bfloat16", "float32")
_ELSEWHERE = "there is no kernel in Triton for it; torch:cuda has it"
_INSTALL = "pip install '.[triton]' (in a clone)"


def _capability(route: Route) -> Capability:
    if route.products == "tf32":
        return Capability(route.operation, route.name, route.orders, ("float32",))
    if route.products == "128" or (route.operation, route.name) in _HERE:
        return Capability(route.operation, route.name, route.orders, _DTYPES)
    return Capability(route.operation, route.name, route.orders, reason=_ELSEWHERE)


def _probe(device: str) -> Probe:
    versions = probing.installed(("torch", "triton"), _INSTALL)
    if isinstance(versions, Probe):
        return versions
    if device == "interpreter":
        return probing.on_cpu(versions)
    if versions["torch"].endswith("+cpu"):
        reason = f"torch {versions['torch']} is built without CUDA (pytorch.org has builds with it)"
        return Probe(State.UNAVAILABLE, versions=versions, reason=reason)
    return probing.on_gpu(versions, least_capability=(8, 0))


def _recognise(array: Any) -> str | None:
    """Tensors belong to torch unless we are named."""
    return None


def _load(device: str, threads: int) -> Implementation:
    from .implementation import Interpreted, OnGpu

    return Interpreted() if device == "interpreter" else OnGpu()


SPECIFICATION = Specification(
    library="triton",
    devices=("cuda", "interpreter"),
    probe=_probe,
    capabilities=tuple(_capability(route) for route in routes_for("triton")),
    load=_load,
    recognise=_recognise,
    contract=CONTRACT_VERSION,
    # For sizes that are multiples of 16 and others, powers of two of small images, and so on: not
    # for every shape, but nobody can tell for which.
    compiles_per="shape",
)
