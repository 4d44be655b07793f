"""torch:cpu and torch:cuda: PyTorch tensors on their device. This file does not import torch."""

from __future__ import annotations

import sys
from typing import Any

from demopool.contract import (
    CONTRACT_VERSION,
    DTYPES,
    Capability,
    Implementation,
    Probe,
    Specification,
    State,
    probing,
    routes_for,
)

_FLOATS = ("float32", "float64")


def _dtypes(operation: str) -> tuple[str, ...]:
    """The supported dtypes. A matrix rounded to half precision is no longer positive semi-definite,
    so it is not a valid A."""
    return _FLOATS if operation == "matrix_power" else DTYPES


_CAPABILITIES = tuple(
    Capability(route.operation, route.name, route.orders, _dtypes(route.operation))
    for route in routes_for("torch")
)


def _probe(device: str) -> Probe:
    """Probe without importing torch."""
    versions = probing.installed(("torch",), "pip install '.[torch]' (in a clone)")
    if isinstance(versions, Probe):
        return versions
    if device == "cpu":
        return probing.on_cpu(versions)
    if versions["torch"].endswith("+cpu"):
        reason = f"torch {versions['torch']} is built without CUDA (pytorch.org has builds with it)"
        return Probe(State.UNAVAILABLE, versions=versions, reason=reason)
    return probing.on_gpu(versions)


def _recognise(array: Any) -> str | None:
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return None
    return str(array.device.type)


def _load(device: str, threads: int) -> Implementation:
    from .implementation import OnCpu, OnGpu

    return OnCpu() if device == "cpu" else OnGpu()


SPECIFICATION = Specification(
    library="torch",
    devices=("cpu", "cuda"),
    probe=_probe,
    capabilities=_CAPABILITIES,
    load=_load,
    recognise=_recognise,
    contract=CONTRACT_VERSION,
)
