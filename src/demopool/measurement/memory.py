"""The memory meter: net peak of host and device memory during a call, each in a separate run.

Host: the peak resident memory is reset before the call and read after it, so memory held by
libraries and earlier work does not count. Linux only; elsewhere the result is None, never a guess.
Less than about 256 kB cannot be seen, because the allocator keeps that much in reserve.

Device: the figure of the library's allocator; None where the device has no memory of its own.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..contract.device import MeasuredDevice
from ..machine.gpu import gpus, telemetry
from ..machine.system import memory_limit

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_SYSTEM = Path("/proc/meminfo")


def peak_host_bytes(call: Callable[[], Any]) -> int | None:
    """Highest resident memory while ``call`` runs, above what was resident before it.

    Run the call once before: memory that a first call keeps forever is not a need of every call.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return None
    try:
        _CLEAR.write_text("5")
        before = _field(_STATUS, "VmRSS")
        kept = call()
        peak = _field(_STATUS, "VmHWM")
    except OSError:
        return None
    del kept
    return max(0, peak - before)


def peak_device_bytes(call: Callable[[], Any], device: MeasuredDevice) -> int | None:
    """Peak of the device memory held while ``call`` runs, including its result."""
    gc.collect()
    device.synchronize()
    return device.peak_device_bytes(call)


def available_host_bytes() -> int | None:
    """Memory available without swapping and within the limit of a container."""
    try:
        available = _field(_SYSTEM, "MemAvailable")
        held = _field(_STATUS, "VmRSS")
    except OSError:
        return None
    limit = memory_limit()
    return available if limit is None else max(0, min(available, limit - held))


def resident_bytes() -> int | None:
    """Memory that this process holds now."""
    try:
        return _field(_STATUS, "VmRSS")
    except OSError:
        return None


def available_device_bytes(index: int = 0) -> int | None:
    """Free memory of a GPU; None if it is unknown."""
    visible, now = gpus(), telemetry(index)
    if now is None or now["used_bytes"] is None or index >= len(visible):
        return None
    total = visible[index]["memory_bytes"]
    return None if total is None else max(0, total - now["used_bytes"])


def _field(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {file}")
