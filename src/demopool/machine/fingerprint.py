"""The hardware and software of this machine, as plain values for JSON.

Nothing names the user, the host or a path. Values that the system does not provide are None.
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
"""Maximum share of the cores used by other processes before a measurement is in doubt."""

_PLUGINS = "demopool.backends"
_DISTRIBUTIONS = (
    *("demopool", "numpy", "scipy", "numba", "numba-cuda", "torch", "triton"),
    *("cupy", *(f"cupy-cuda{major}x" for major in range(11, 20))),
    # The libraries that CuPy uses if they come from pip. Torch pins its own.
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
    """Processor, cores, memory, GPUs and system: cheap, because it is part of every JSON output."""
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

    Only NumPy and SciPy are imported, so that their BLAS is found. The BLAS thread counts are those
    of this process at this moment.
    """
    load = system.load_average()  # before the work below increases it
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
    """A key that is equal for equal hardware and software, where measured times remain valid.

    It leaves out load, frequencies, governor and power limit, which differ between two runs on one
    machine; the kernel release, because it changes with every security update and hardly affects
    code that only computes, but would invalidate all stored measurements; and demopool's own
    version, because every sample identifies the code that it measured. It leaves out a BLAS that
    another package brings, because it is visible only if that package happens to be imported.
    Memory is rounded to GiB, because kernel and driver reserve a varying part of it. Threads are
    left out because they differ between processes and are recorded with every measurement.
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


def warnings(found: dict[str, Any], busy: float | None = None) -> list[str]:
    """Sentences about what could disturb a measurement; ``busy`` comes from ``busy_share()``."""
    cpu, governor, load = found["cpu"], found["frequency"]["governor"], found["load_average"]
    cores = cpu["usable_cores"]
    told = []
    if governor not in (None, "performance"):
        told.append(f"The frequency governor is {governor}, not performance: the clock will vary.")
    if load is not None and load[0] > cores / 2:
        told.append(f"The load was {load[0]:.1f} on {cores} usable cores before the start.")
    if busy is not None and busy > BUSY:
        told.append(f"Other processes use {busy:.0%} of the cores.")
    if cpu["physical_cores"] is not None and cores < cpu["physical_cores"]:
        told.append(
            f"Only {cores} of {cpu['physical_cores']} cores may be used here; "
            "processes on the other cores share caches and memory."
        )
    if cpu["quota_cores"] is not None and cpu["quota_cores"] < cores:
        told.append(
            f"A quota allows the time of {cpu['quota_cores']:g} cores and {cores} are usable: "
            "with more threads than the quota, the system stops them repeatedly."
        )
    models = {gpu["name"] for gpu in found["gpus"]}
    if len(models) > 1 and found["environment"]["CUDA_DEVICE_ORDER"] != "PCI_BUS_ID":
        told.append(
            "The GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID to make their numbers unambiguous."
        )
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
    """The package whose wheel contains a library; None for one of the system or environment."""
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts[:-2]:
            return parts[parts.index(folder) + 1].removesuffix(".libs")
    return None


def _libraries() -> dict[str, str]:
    """Versions of the installed distributions; nothing is imported."""
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
