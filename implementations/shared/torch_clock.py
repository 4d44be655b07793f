"""What the clock and the memory meter ask of a GPU that torch works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class TorchClock:
    """Measurements are made on the current GPU; a result is waited for on its own."""

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def wait(self, result: Any) -> None:
        on_gpu = isinstance(result, Tensor) and result.is_cuda
        torch.cuda.synchronize(result.device if on_gpu else None)

    @property
    def gpu_index(self) -> int | None:
        return torch.cuda.current_device()

    def event(self) -> Any:
        untyped: Any = torch.cuda.Event
        mark = untyped(enable_timing=True)
        mark.record()
        return mark

    def elapsed(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del kept
        return int(peak)
