"""What machine this is and what runs on it, in plain values for JSON.

Nothing names the user, the host or a path, and what a system does not tell is None.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from .gpu import gpus

BUSY = 0.15
"""Share of the cores that others may use before a measurement is in doubt."""

_PROC = Path("/proc")
_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")

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
        "processor": processor(),
        "cores": usable_cores(),
        "memory_bytes": _memory_bytes(),
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
    load = _load_average()  # before the work below adds to it
    return {
        "cpu": _cpu(),
        "frequency": _frequency(),
        "memory": {"total_bytes": _memory_bytes(), "limit_bytes": memory_limit()},
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


def processor() -> str:
    """The processor's name as the system tells it."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usual_threads() -> int:
    """Threads a library takes here if nobody tells it: all usable cores, or what is set for all."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), usable_cores())
    return usable_cores()


def busy_share(seconds: float = 0.5) -> float | None:
    """Share of all cores that others use while this process sleeps; None if it cannot be told."""

    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return 1.0 - (after[0] - before[0]) / (after[1] - before[1])


def _cpu_ticks() -> tuple[int, int] | None:
    """Idle and total ticks of all cores."""
    text = _text(_PROC / "stat")
    if text is None:
        return None
    ticks = [int(field) for field in text.splitlines()[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks[:8])


def _load_average() -> list[float] | None:
    """Over 1, 5 and 15 minutes."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (OSError, AttributeError):
        return None


def _cpu() -> dict[str, Any]:
    info = _cpuinfo()
    siblings = {_text(file) for file in _CPU.glob("cpu[0-9]*/topology/thread_siblings_list")}
    smt, flags = _text(_CPU / "smt/active"), info.get("flags")
    # Clouds sell many generations under one name; these numbers tell them apart (x86, then ARM).
    numbers = ("cpu family", "model", "stepping", "CPU implementer", "CPU variant", "CPU part")
    return {
        "name": processor(),
        "model": " ".join(info[name] for name in numbers if name in info) or None,
        "architecture": platform.machine(),
        "usable_cores": usable_cores(),
        "physical_cores": len(siblings) or None,
        "quota_cores": _quota_cores(),
        "caches": _caches(),
        "smt": None if smt is None else smt == "1",
        "virtual": None if flags is None else "hypervisor" in flags.split(),
    }


def _cpuinfo() -> dict[str, str]:
    """Of the first core; on a large machine the whole file takes long."""
    found = {}
    with suppress(OSError, ValueError), (_PROC / "cpuinfo").open() as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                break
            found[name.strip()] = value.strip()
    return found


def _caches() -> list[dict[str, Any]] | None:
    """Of the first core."""
    found = []
    for folder in sorted((_CPU / "cpu0/cache").glob("index*")):
        size, shared = _text(folder / "size"), _text(folder / "shared_cpu_list")
        cache = {
            "level": _number(folder / "level"),
            "type": _text(folder / "type"),
            "size_bytes": size and int(size.removesuffix("K")) * 1024,
            "shared_by": shared and _count(shared),
        }
        found.append(cache)
    return found or None


def _count(ranges: str) -> int:
    """How many numbers there are in ``0-3,8``."""
    ends = [part.split("-") for part in ranges.split(",")]
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in ends)


def _frequency() -> dict[str, Any]:
    """Of the first core, now; the turbo is that of all."""
    governed = _CPU / "cpu0/cpufreq"
    current, highest = (_number(governed / f) for f in ("scaling_cur_freq", "cpuinfo_max_freq"))
    no_turbo, boost = _text(_CPU / "intel_pstate/no_turbo"), _text(_CPU / "cpufreq/boost")
    turbo = None if boost is None else boost == "1"
    return {
        "governor": _text(governed / "scaling_governor"),
        "current_mhz": current and current // 1000,
        "max_mhz": highest and highest // 1000,
        "turbo": turbo if no_turbo is None else no_turbo == "0",
    }


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def memory_limit() -> int | None:
    """What a container or a batch system allows, if that is less than there is."""
    files = ("memory.max", "memory.limit_in_bytes")
    limits = [_number(group / file) for group in _groups("memory") for file in files]
    lowest = min((limit for limit in limits if limit is not None), default=None)
    total = _memory_bytes()
    return None if lowest is None or (total is not None and lowest >= total) else lowest


def _quota_cores() -> float | None:
    """The share of time that a container may compute, in cores: ``docker run --cpus 2``."""
    quotas = []
    for group in _groups("cpu"):
        allowed, _, period = (_text(group / "cpu.max") or "").partition(" ")
        allowed = allowed or _text(group / "cpu.cfs_quota_us") or ""
        period = period or _text(group / "cpu.cfs_period_us") or ""
        if allowed.isdecimal() and period.isdecimal():  # not "max", and not -1
            quotas.append(int(allowed) / int(period))
    return min(quotas, default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of this process's control groups, both versions; the parents' limits bind as well."""
    for line in (_text(_PROC / "self/cgroup") or "").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _CGROUP / controllers
        group = root / name.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


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


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except (OSError, ValueError):
        return None


def _number(file: Path) -> int | None:
    try:
        return int(_text(file) or "")
    except ValueError:
        return None
