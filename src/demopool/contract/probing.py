"""Whether libraries and GPUs are here, found without importing the one or touching the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from ..machine.gpu import gpus
from ..machine.system import processor
from ..problem.vocabulary import State
from .interface import Probe


def installed(names: Sequence[str], install: str) -> dict[str, str] | Probe:
    """The versions of distributions, or the probe that says which one is missing."""
    try:
        return {name: version(name) for name in names}
    except PackageNotFoundError as missing:
        reason = f"{missing.name} is not installed"
        return Probe(State.UNAVAILABLE, reason=reason, install=install)


def on_cpu(versions: Mapping[str, str]) -> Probe:
    return Probe(State.OK, device=processor(), versions=versions)


def on_gpu(versions: Mapping[str, str], least_capability: tuple[int, int] = (0, 0)) -> Probe:
    """Of a library that needs a GPU, of a compute capability or a later one: asked of NVML, so that
    no CUDA context is created."""
    visible = gpus()
    if not visible:
        reason = "no GPU can be seen (NVML: driver, CUDA_VISIBLE_DEVICES, nvidia-ml-py)"
        return Probe(State.UNAVAILABLE, versions=versions, reason=reason)
    name, capability = str(visible[0]["name"]), visible[0]["compute_capability"]
    if capability and tuple(map(int, capability.split("."))) < least_capability:
        least = "{}.{}".format(*least_capability)
        reason = f"it needs a GPU of compute capability {least}; {name} has {capability}"
        return Probe(State.UNAVAILABLE, versions=versions, reason=reason)
    return Probe(State.OK, device=name, versions=versions)


def from_ptx(versions: Mapping[str, str]) -> Probe:
    """GPU code executed on the CPU."""
    return Probe(State.OK, device=f"PTX on {processor()}", versions=versions)
