"""The clock of a GPU while others work on it, and what its speed is beside its data sheet."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from .. import ptx
from ..machine.gpu import Watch
from ..machine.limits import Limits

_SECONDS = 0.2
"""Between two looks, at least."""


class Clocks:
    """A watch that looks whenever it is told of progress, and says what it has seen."""

    def __init__(self, index: int = 0) -> None:
        self._watch = Watch(index)
        self._last = float("-inf")

    def look(self) -> None:
        if time.monotonic() - self._last >= _SECONDS:
            self._last = time.monotonic()
            self._watch.look()

    def summary(self) -> dict[str, Any] | None:
        """Lowest, median and highest of what was seen at work; None if NVML says nothing."""
        working = [now for now in self._watch.seen if "idle" not in now["reasons"]]
        if not working:
            return None
        return {
            "looks": len(working),
            "sm_clock_mhz": _span([now["sm_clock_mhz"] for now in working]),
            "max_sm_clock_mhz": working[-1]["max_sm_clock_mhz"],
            "memory_clock_mhz": _span([now["memory_clock_mhz"] for now in working]),
            "temperature_c": _span([now["temperature_c"] for now in working]),
            "warning": self._watch.warning(),
        }


def _span(values: Sequence[float | None]) -> list[float] | None:
    """Lowest, middle, highest."""
    known = sorted(value for value in values if value is not None)
    return [known[0], known[len(known) // 2], known[-1]] if known else None


_OTHER_MODEL = re.compile(r"Laptop|Max-Q|\bD\b|H100 (PCIe|NVL)|A100.*(64|80)GB|\bMIG\b")
"""What follows the name of a data sheet's GPU in the names of others."""


def data_sheet(name: str, reached: Limits) -> dict[str, Any] | None:
    """What the GPU reached in float32, over what its data sheet says, if that is known here."""
    sheet = next((one for one in ptx.DEVICES if re.search(rf"\b{one.name}\b", name)), None)
    if sheet is None or _OTHER_MODEL.search(name):
        return None
    return {
        "device": sheet.name,
        "flops": sheet.flops,
        "bytes": sheet.bytes,
        "flops_share": reached.flops / sheet.flops,
        "bytes_share": reached.memory_bytes / sheet.bytes,
    }
