"""The memory meter: net peak of host and device memory during a call, each in a separate run.

Host: the peak resident memory is reset before the call and read after it, so memory held by
libraries and earlier work does not count. Linux only; elsewhere the result is None, never a guess.
Less than about 256 kB cannot be seen.

Device: the figure of the library's allocator; None where the device has no memory of its own.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..contract.device import MeasuredDevice, wait_for
from ..machine.gpu import gpus, telemetry
from ..machine.system import memory_limit

ATTEMPTS = 3
UNSEEN_BYTES = 2**18
"""What the allocator keeps in reserve, and serves without growth."""

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_SYSTEM = Path("/proc/meminfo")


def peak_host_bytes(call: Callable[[], Any], device: MeasuredDevice | None = None) -> int | None:
    """Highest resident memory until the result is there, above what was resident before the call.

    Run the call once before: memory that a first call keeps forever is not a need of every call.
    A peak below the size of the result itself is not believed: a library that keeps memory to use
    it again then had enough. It is measured again, and None if that does not change it.
    """
    for _ in range(ATTEMPTS):
        peak, least = _peak_host_bytes(call, device)
        if peak is None or peak + UNSEEN_BYTES >= least:
            return peak
    return None


def _peak_host_bytes(
    call: Callable[[], Any], device: MeasuredDevice | None
) -> tuple[int | None, int]:
    """The peak, and what the result holds of it."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return None, 0
    try:
        _CLEAR.write_text("5")
        before = _field(_STATUS, "VmRSS")
        kept = call()
        if device is not None:
            wait_for(kept, device)
        peak = _field(_STATUS, "VmHWM")
    except OSError:
        return None, 0
    on_host = device is None or device.gpu_index is None
    held = getattr(kept, "nbytes", 0) if on_host else 0
    return max(0, peak - before), held if isinstance(held, int) else 0


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
