"""What the clock and the memory meter ask of a device.

A backend's :class:`~demopool.contract.Implementation` answers all of it, so a real GPU, the host
and the fake device of the tests are measured by the same code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..machine import system


class MeasuredDevice(Protocol):
    """Where calls run."""

    gpu_index: int | None
    """Which of the GPUs that CUDA shows this process; None for the host."""

    def synchronize(self) -> None:
        """Wait until everything that was started has finished."""

    def wait(self, result: Any) -> None:
        """Wait until this result is there."""

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

    def wait(self, result: Any) -> None:
        """It is there when the call returns."""

    def event(self) -> Any:
        return None

    def elapsed(self, start: Any, end: Any) -> float:
        raise NotImplementedError("the host has no queue of work")

    def flush_caches(self) -> None:
        """Every core writes its share: some caches belong to one core, or to a group of them."""
        pool, shares = _flood()
        list(pool.map(_write, *zip(*shares, strict=True)))

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        return None


def wait_for(result: Any, device: MeasuredDevice) -> None:
    """Wait until the result is there, also on devices of older commits, which asv measures too."""
    wait = getattr(device, "wait", None)
    if wait is None:
        device.synchronize()
    else:
        wait(result)


_add = np.add  # which a backend could replace

FLUSH_BYTES = 256 * 2**20
"""More than the last cache of any GPU there is; writing so much leaves nothing else in it."""


def host_flush_bytes() -> int:
    """The same for the host, where the last cache of a server may be larger."""
    sizes = (cache["size_bytes"] or 0 for cache in system.caches() or ())
    return max(FLUSH_BYTES, 2 * max(sizes, default=0))


@cache
def _flood() -> tuple[ThreadPoolExecutor, list[tuple[int, NDArray[np.float64]]]]:
    """Threads, and what each core writes."""
    cores = _cores()
    shares = np.array_split(np.zeros(host_flush_bytes() // 8), len(cores))
    return ThreadPoolExecutor(len(cores)), list(zip(cores, shares, strict=True))


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _write(core: int, share: NDArray[np.float64]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})  # of this thread only
    _add(share, 1.0, out=share)
