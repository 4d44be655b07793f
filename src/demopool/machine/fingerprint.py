"""What machine this is and what runs on it, in plain values for JSON.

Nothing names the user, the host or a path, and what a system does not tell is None.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from . import system
from .gpu import gpus

BUSY = 0.15
"""Share of the cores that others may use before a measurement is in doubt."""

_PLUGINS = "demopool.backends"
_DISTRIBUTIONS = (
    *("demopool", "numpy", "scipy", "numba", "numba-cuda", "torch"),
    *("cupy", *(f"cupy-cuda{major}x" for major in range(11, 20))),
    # What CuPy computes with, where it comes from pip. Torch pins its own.
    *("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cusolver", "nvidia-cusolver-cu12"),
)
_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("CUDA_DEVICE_ORDER", "NVIDIA_TF32_OVERRIDE", "CUPY_TF32"),
)

_CPU_KEY = (
    *("name", "model", "architecture", "caches"),
    *("usable_cores", "physical_cores", "quota_cores"),
)
_GPU_KEY = ("name", "compute_capability", "ecc", "driver", "cuda")
_BLAS_OWNERS = ("numpy", "scipy", None)


def machine() -> dict[str, Any]:
    """Processor, cores, memory, GPUs and system; cheap, it goes into every JSON output."""
    return {
        "processor": system.processor(),
        "cores": system.usable_cores(),
        "memory_bytes": system.memory_bytes(),
        "gpu": [gpu["name"] for gpu in gpus()] or None,
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def fingerprint() -> dict[str, Any]:
    """Everything about hardware and software that a measured time may depend on.

    NumPy and SciPy are imported, so that their BLAS is seen; no other library is. The threads of
    BLAS are those of this process at this moment.
    """
    load = system.load_average()  # before the work below adds to it
    return {
        "cpu": system.cpu(),
        "frequency": system.frequency(),
        "memory": {"total_bytes": system.memory_bytes(), "limit_bytes": system.memory_limit()},
        "gpus": gpus(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "blas": _blas(),
        "libraries": _libraries(),
        "environment": {name: os.environ.get(name) for name in _VARIABLES},
        "load_average": load,
    }


def key(found: dict[str, Any]) -> str:
    """Equal where hardware and software are the same, so that times measured there still hold.

    Left out are load, frequencies, governor and power limit, which differ between two runs on one
    machine; the kernel's release, because it changes with every security update and hardly moves
    the times of code that only computes, but would make all stored measurements worthless; and
    demopool's own version, because a sample names the code that it measured. A BLAS that another
    package brings is left out, because it is seen only where that package happens to be imported.
    Memory is rounded to GiB, because kernel and driver keep a changing bit of it. Threads are not
    part of it: they are said beside every measurement, and differ from process to process.
    """
    same = {
        "cpu": {name: found["cpu"][name] for name in _CPU_KEY},
        "memory": _gibibytes(found["memory"]["limit_bytes"] or found["memory"]["total_bytes"]),
        "gpus": [
            {name: gpu[name] for name in _GPU_KEY} | {"memory": _gibibytes(gpu["memory_bytes"])}
            for gpu in found["gpus"]
        ],
        "system": found["system"],
        "python": found["python"],
        "blas": [
            {name: value for name, value in library.items() if name != "threads"}
            for library in found["blas"]
            if library["package"] in _BLAS_OWNERS
        ],
        "libraries": {k: v for k, v in found["libraries"].items() if k != "demopool"},
    }
    canonical = json.dumps(same, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def noise(found: dict[str, Any], busy: float | None = None) -> list[str]:
    """Sentences about what may make times on this machine noisy; ``busy`` is a busy_share()."""
    cpu, governor, load = found["cpu"], found["frequency"]["governor"], found["load_average"]
    cores = cpu["usable_cores"]
    told = []
    if governor not in (None, "performance"):
        told.append(f"The frequency governor is {governor}, not performance: the clock will move.")
    if load is not None and load[0] > cores / 2:
        told.append(f"The load was {load[0]:.1f} on {cores} usable cores before the start.")
    if busy is not None and busy > BUSY:
        told.append(f"Others use {busy:.0%} of the cores.")
    if cpu["physical_cores"] is not None and cores < cpu["physical_cores"]:
        told.append(
            f"Only {cores} of {cpu['physical_cores']} cores may be used here; "
            "whoever uses the others shares caches and memory."
        )
    if cpu["quota_cores"] is not None and cpu["quota_cores"] < cores:
        told.append(
            f"A quota allows the time of {cpu['quota_cores']:g} cores and {cores} are usable: "
            "with more threads than the quota they are stopped again and again."
        )
    models = {gpu["name"] for gpu in found["gpus"]}
    if len(models) > 1 and found["environment"]["CUDA_DEVICE_ORDER"] != "PCI_BUS_ID":
        told.append("The GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID to be sure which is which.")
    return told


def _blas() -> list[dict[str, Any]]:
    for module in ("numpy", "scipy.linalg"):
        importlib.import_module(module)
    from threadpoolctl import threadpool_info

    found = [
        {
            "name": library["internal_api"],
            "version": library["version"],
            "threads": library["num_threads"],
            "threading_layer": library.get("threading_layer"),
            "architecture": library.get("architecture"),
            "package": _package(library["filepath"]),
        }
        for library in threadpool_info()
        if library["user_api"] == "blas"
    ]
    return sorted(found, key=lambda library: json.dumps(library, sort_keys=True))


def _package(file: str) -> str | None:
    """Whose wheel a library came in; None for the system's or the environment's."""
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts[:-2]:
            return parts[parts.index(folder) + 1].removesuffix(".libs")
    return None


def _libraries() -> dict[str, str]:
    """Versions by distribution, of what is installed; nothing is imported."""
    found = {}
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    for point in entry_points(group=_PLUGINS):
        if point.dist is not None:
            found[point.dist.name] = point.dist.version
    return dict(sorted(found.items()))


def _gibibytes(size: int | None) -> int | None:
    return None if size is None else round(size / 2**30)
