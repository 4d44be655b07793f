"""What the clock and the memory meter ask of a device.

A backend's :class:`~demopool.contract.Implementation` answers all of it, so a real GPU, the host
and the fake device of the tests are measured by the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class MeasuredDevice(Protocol):
    """Where calls run."""

    gpu_index: int | None
    """Which of the GPUs that CUDA shows this process; None for the host."""

    def synchronize(self) -> None:
        """Wait until everything that was started has finished."""

    def event(self) -> Any:
        """A mark in the device's queue of work, at this point; None where there is no queue."""

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two marks that the device has passed."""

    def flush_caches(self) -> None:
        """Push what earlier calls left in the caches out of them."""

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        """Most memory of the device held during the call, above what was held before it."""


class Host:
    """The processor itself: calls end when they return, and its memory is the host's."""

    gpu_index: int | None = None

    def synchronize(self) -> None:
        """Nothing runs on after a call."""

    def event(self) -> Any:
        return None

    def elapsed(self, start: Any, end: Any) -> float:
        raise NotImplementedError("the host has no queue of work")

    def flush_caches(self) -> None:
        bytearray(FLUSH_BYTES)

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        return None


FLUSH_BYTES = 256 * 2**20
"""More than the last cache of any device there is; writing so much leaves nothing else in it."""
