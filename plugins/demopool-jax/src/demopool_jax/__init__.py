"""JAX as a backend of demopool. This file is read whenever backends are listed: it imports no
library."""

from __future__ import annotations

import os
import sys

from demopool.contract import (
    Capability,
    Implementation,
    Probe,
    Specification,
    State,
    probing,
    routes_for,
)

# What each device needs beside jax and jaxlib: one of these distributions.
_PLATFORMS = {"gpu": ("jax-cuda13-plugin", "jax-cuda12-plugin"), "tpu": ("libtpu",)}


def _probe(device: str) -> Probe:
    """Asked of the installed distributions and of NVML, so that no device is taken."""
    versions = probing.installed(("jax", "jaxlib"), "pip install demopool-jax")
    if isinstance(versions, Probe) or device == "cpu":
        return versions if isinstance(versions, Probe) else probing.on_cpu(versions)
    for name in _PLATFORMS[device]:
        found = probing.installed((name,), "")
        if not isinstance(found, Probe):
            versions |= found
            return probing.on_gpu(versions) if device == "gpu" else Probe("ok", "TPU", versions)
    install = {"gpu": "pip install 'jax[cuda13]'", "tpu": "pip install 'jax[tpu]'"}[device]
    reason = f"{' and '.join(_PLATFORMS[device])} is not installed"
    return Probe(State.UNAVAILABLE, "", versions, reason, install)


def _load(device: str, threads: int) -> Implementation:
    # XLA's threads on a CPU; it is read when the first device is used, and then no more.
    os.environ.setdefault("PJRT_NPROC", str(threads))
    from .implementation import JaxImplementation

    return JaxImplementation(device)


def _recognise(array: object) -> str | None:
    """The platform of an array. A tracer, which is an array too, is on the one that is used."""
    if not type(array).__module__.startswith("jax"):
        return None
    jax = sys.modules["jax"]
    if not isinstance(array, jax.Array):
        return None
    if isinstance(array, jax.core.Tracer):
        return str(jax.default_backend())
    return str(next(iter(array.devices())).platform)


SPECIFICATION = Specification(
    library="jax",
    devices=("cpu", "gpu", "tpu"),
    probe=_probe,
    capabilities=tuple(
        Capability(route.operation, route.name, route.orders) for route in routes_for("jax")
    ),
    load=_load,
    recognise=_recognise,
    contract=1,
    compiles_per="shape",
)
