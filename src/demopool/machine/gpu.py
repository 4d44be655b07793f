"""NVIDIA GPUs as seen by NVML, the library behind nvidia-smi.

NVML creates no CUDA context. It is opened once per process and stays open, because opening it is
slow. Without a driver or ``pynvml`` the result is ``[]`` or None, never an exception.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

# Constants of NVML's stable binary interface: a sensor, two clocks, and the bits for the reasons
# why the clock is below its maximum. Idling and permanent settings do not harm a measurement.
_CHIP, _SM, _MEMORY = 0, 1, 2
_HARMLESS = {0: "idle", 1: "application clocks", 8: "display clocks"}
_LIMITS = {2: "power cap", 4: "sync boost", 5: "thermal", 9: "board limit", 10: "reliability"}
_SLOWDOWNS = {3: "hardware slowdown", 6: "hardware thermal", 7: "power brake"}
_KNOWN = _HARMLESS | _LIMITS | _SLOWDOWNS
_REASONS = [_KNOWN.get(bit, f"unknown reason {bit}") for bit in range(64)]
# Clocks always vary by a step or two of 15 MHz; below this share of the maximum it does harm.
_CLOCK_FALL = 0.95


def gpus() -> list[dict[str, Any]]:
    """The GPUs that a CUDA program started now would see, in the same order. With different models
    this requires ``CUDA_DEVICE_ORDER=PCI_BUS_ID``: CUDA's default order has the fastest first,
    NVML's does not."""
    driver, cuda = _ask("nvmlSystemGetDriverVersion"), _ask("nvmlSystemGetCudaDriverVersion")
    found: list[dict[str, Any]] = []
    for handle in _visible():
        capability = _ask("nvmlDeviceGetCudaComputeCapability", handle)
        ecc = _ask("nvmlDeviceGetEccMode", handle)
        gpu = {
            "index": len(found),
            "name": _ask("nvmlDeviceGetName", handle),
            "memory_bytes": getattr(_ask("nvmlDeviceGetMemoryInfo", handle), "total", None),
            "compute_capability": capability and "{}.{}".format(*capability),
            "driver": driver,
            "cuda": cuda and f"{cuda // 1000}.{cuda % 1000 // 10}",
            "ecc": ecc and bool(ecc[0]),
            "power_limit_milliwatts": _ask("nvmlDeviceGetEnforcedPowerLimit", handle),
        }
        found.append(gpu)
    return found


def telemetry(index: int = 0) -> dict[str, Any] | None:
    """The current state of a GPU of :func:`gpus`; None if it does not exist. Unknown values are
    None."""
    handle = dict(enumerate(_visible())).get(index)
    if handle is None:
        return None
    # Old drivers have only the second name of each pair; CUDA 14 will have only the first.
    bits = _ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    bits = _ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) if bits is None else bits
    degrees = _ask("nvmlDeviceGetTemperatureV", handle, _CHIP)
    degrees = _ask("nvmlDeviceGetTemperature", handle, _CHIP) if degrees is None else degrees
    reasons = None if bits is None else [w for i, w in enumerate(_REASONS) if bits >> i & 1]
    return {
        "sm_clock_mhz": _ask("nvmlDeviceGetClockInfo", handle, _SM),
        "max_sm_clock_mhz": _ask("nvmlDeviceGetMaxClockInfo", handle, _SM),
        "memory_clock_mhz": _ask("nvmlDeviceGetClockInfo", handle, _MEMORY),
        "temperature_c": degrees,
        "busy_percent": getattr(_ask("nvmlDeviceGetUtilizationRates", handle), "gpu", None),
        "used_bytes": getattr(_ask("nvmlDeviceGetMemoryInfo", handle), "used", None),
        "reasons": reasons,
        "throttled": None if reasons is None else bool(_harmful(reasons)),
    }


class Watch:
    """Samples the state of a GPU before and after a block, and whenever ``look`` is called. Enter
    it warmed up: the low clock of an idle GPU is not compared with anything."""

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.seen: list[dict[str, Any]] = []

    def __enter__(self) -> Watch:
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        self.look()

    def look(self) -> None:
        now = telemetry(self.index)
        # Without reasons, an idle GPU and a slow one cannot be distinguished.
        if now is not None and now["reasons"] is not None:
            self.seen.append(now)

    def warning(self) -> str:
        """What disturbed the GPU, in one sentence; empty if nothing did."""
        problems = []
        working = [now["sm_clock_mhz"] for now in self.seen if "idle" not in now["reasons"]]
        clocks = [clock for clock in working if clock is not None] or [0]
        highest, lowest = max(clocks), min(clocks[clocks.index(max(clocks)) :])
        if lowest < _CLOCK_FALL * highest:
            problems.append(f"GPU clock fell from {highest} to {lowest} MHz")
        if harmful := _harmful(word for now in self.seen for word in now["reasons"]):
            problems.append(f"throttled: {', '.join(harmful)}")
        return "; ".join(problems)


@cache
def _nvml(process: int) -> Any:
    """The opened NVML, or None. Opened once per process: a fork cannot use its parent's."""
    with suppress(Exception):
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        return nvml


def _ask(function: str, *arguments: Any) -> Any:
    """NVML's answer, or None after any exception: devices refuse, old versions lack functions, and
    under WSL some drivers return garbage for text, which pynvml fails to decode."""
    with suppress(Exception):
        answer = getattr(_nvml(os.getpid()), function)(*arguments)
        return answer.decode() if isinstance(answer, bytes) else answer


def _harmful(reasons: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(reasons) if word not in _HARMLESS.values()]


def _visible() -> list[Any]:
    """Handles of the GPUs in CUDA_VISIBLE_DEVICES, in its order and by CUDA's rules: the list ends
    at the first entry that names no GPU, and if a GPU is named twice no GPU is visible."""
    count = _ask("nvmlDeviceGetCount") or 0
    handles = [_ask("nvmlDeviceGetHandleByIndex", number) for number in range(count)]
    present = [handle for handle in handles if handle is not None]
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return present
    chosen: list[Any] = []
    for entry in map(str.strip, wanted.split(",")):
        if entry.startswith("GPU-"):
            named = [h for h in present if str(_ask("nvmlDeviceGetUUID", h)).startswith(entry)]
        elif entry.startswith("MIG-"):
            named = [_ask("nvmlDeviceGetHandleByUUID", entry)]
        else:
            named = present[int(entry) :][:1] if entry.isdecimal() else []
        if len(named) != 1 or named[0] is None:
            break
        if named[0] in chosen:
            return []
        chosen += named
    return chosen
