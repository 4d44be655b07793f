"""torch:cpu and torch:cuda, PyTorch tensors where they are. This file does not import torch."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from demopool.contract import Capability, Implementation, Probe, Specification
from demopool.measurement.fingerprint import processor
from demopool.measurement.gpu import gpus
from demopool.routes import ROUTES
from demopool.vocabulary import DTYPES, State

_FLOATS = ("float32", "float64")
_INSTALL = "pip install 'demopool[torch]'"


def _dtypes(operation: str) -> tuple[str, ...]:
    """A matrix rounded to half precision is no longer positive semi-definite: not a valid A."""
    return _FLOATS if operation == "matrix_power" else DTYPES


_CAPABILITIES = tuple(
    Capability(route.operation, route.name, route.orders, _dtypes(route.operation))
    for route in ROUTES
)


def _probe(device: str) -> Probe:
    """Without importing torch, and for CUDA without touching a GPU: through NVML."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        return Probe(State.UNAVAILABLE, reason="torch is not installed", install=_INSTALL)
    versions = {"torch": found}
    if device == "cpu":
        return Probe(State.OK, device=processor(), versions=versions)
    if found.endswith("+cpu"):
        reason = f"torch {found} is built without CUDA (pytorch.org has builds with it)"
        return Probe(State.UNAVAILABLE, versions=versions, reason=reason)
    visible = gpus()
    if not visible:
        reason = "no GPU can be seen (NVML: driver, CUDA_VISIBLE_DEVICES, nvidia-ml-py)"
        return Probe(State.UNAVAILABLE, versions=versions, reason=reason)
    return Probe(State.OK, device=str(visible[0]["name"]), versions=versions)


def _recognise(array: Any) -> str | None:
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return None
    return str(array.device.type)


def _load(device: str) -> Implementation:
    from .implementation import TorchImplementation

    return TorchImplementation(device)


SPECIFICATION = Specification(
    library="torch",
    devices=("cpu", "cuda"),
    probe=_probe,
    capabilities=_CAPABILITIES,
    load=_load,
    recognise=_recognise,
)
