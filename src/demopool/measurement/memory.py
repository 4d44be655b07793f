"""The memory meter: net peak of host memory during a call.

Peak resident memory is reset before the call and read after it, so what libraries and earlier work
hold does not count. Linux only; elsewhere the answer is None, never a guess.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_host_bytes(call: Callable[[], Any]) -> int | None:
    """Highest resident memory while ``call`` runs, above what was resident before it."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return None
    try:
        _CLEAR.write_text("5")
        before = _field("VmRSS")
        kept = call()
        peak = _field("VmHWM")
    except OSError:
        return None
    del kept
    return max(0, peak - before)


def _field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {_STATUS}")
