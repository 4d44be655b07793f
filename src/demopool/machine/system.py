"""Processor, caches, memory and load as the system reports them; unknown values are None."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def processor() -> str:
    """The processor's name as reported by the system."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def usable_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usual_threads() -> int:
    """Threads that a library uses by default: all usable cores, or the number set for all."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), usable_cores())
    return usable_cores()


def cpu() -> dict[str, Any]:
    info = _cpuinfo()
    siblings = {_text(file) for file in _CPU.glob("cpu[0-9]*/topology/thread_siblings_list")}
    smt, flags = _text(_CPU / "smt/active"), info.get("flags")
    # Clouds sell many generations under one name; these numbers distinguish them (x86, then ARM).
    numbers = ("cpu family", "model", "stepping", "CPU implementer", "CPU variant", "CPU part")
    return {
        "name": processor(),
        "model": " ".join(info[name] for name in numbers if name in info) or None,
        "architecture": platform.machine(),
        "usable_cores": usable_cores(),
        "physical_cores": len(siblings) or None,
        "quota_cores": quota_cores(),
        "caches": caches(),
        "smt": None if smt is None else smt == "1",
        "virtual": None if flags is None else "hypervisor" in flags.split(),
    }


def caches() -> list[dict[str, Any]] | None:
    """The caches of the first core."""
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


def frequency() -> dict[str, Any]:
    """The current frequency of the first core; turbo is a setting of all cores."""
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


def memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def memory_limit() -> int | None:
    """The memory limit of a container or batch system if it is below the total, else None."""
    files = ("memory.max", "memory.limit_in_bytes")
    limits = [_number(group / file) for group in _groups("memory") for file in files]
    lowest = min((limit for limit in limits if limit is not None), default=None)
    total = memory_bytes()
    return None if lowest is None or (total is not None and lowest >= total) else lowest


def quota_cores() -> float | None:
    """The processor time that a container may use, in cores: ``docker run --cpus 2``."""
    quotas = []
    for group in _groups("cpu"):
        allowed, _, period = (_text(group / "cpu.max") or "").partition(" ")
        allowed = allowed or _text(group / "cpu.cfs_quota_us") or ""
        period = period or _text(group / "cpu.cfs_period_us") or ""
        if allowed.isdecimal() and period.isdecimal():  # not "max", and not -1
            quotas.append(int(allowed) / int(period))
    return min(quotas, default=None)


def busy_share(seconds: float = 0.5) -> float | None:
    """Share of all cores that other processes use while this one sleeps; None if unknown."""
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return 1.0 - (after[0] - before[0]) / (after[1] - before[1])


def load_average() -> list[float] | None:
    """The load average over 1, 5 and 15 minutes."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (OSError, AttributeError):
        return None


def _cpu_ticks() -> tuple[int, int] | None:
    """Idle and total ticks of all cores."""
    text = _text(_PROC / "stat")
    if text is None:
        return None
    ticks = [int(field) for field in text.splitlines()[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks[:8])


def _cpuinfo() -> dict[str, str]:
    """The entries of the first core; reading the whole file is slow on a large machine."""
    found = {}
    with suppress(OSError, ValueError), (_PROC / "cpuinfo").open() as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                break
            found[name.strip()] = value.strip()
    return found


def _groups(controller: str) -> Iterator[Path]:
    """Folders of this process's control groups (both versions) and of their parents, whose limits
    apply as well."""
    for line in (_text(_PROC / "self/cgroup") or "").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _CGROUP / controllers
        group = root / name.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _count(ranges: str) -> int:
    """Count the numbers in ranges such as ``0-3,8``."""
    ends = [part.split("-") for part in ranges.split(",")]
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in ends)


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
