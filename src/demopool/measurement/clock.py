"""The clock: how long a call takes, on any device.

Every reading starts with an idle device and ends when the result is there, so a call that only
starts work is charged for the work. Where the device has events in its own queue (CUDA events), the
time between two of them is read as well. It excludes the time that the host needs to start the
call; the difference of the two times is that overhead.

The first call is timed separately: it compiles, allocates and loads. Warm-up calls follow and are
not reported. Caches stay as the previous call left them (hot), unless ``cold`` flushes them before
every reading.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from ..contract.device import MeasuredDevice, wait_for
from ..machine.gpu import Watch

Call = Callable[[], Any]


class Reading(NamedTuple):
    """The seconds of one call: by the wall clock, and by the device's events if it has them."""

    wall: float
    device: float | None = None


@dataclass(frozen=True)
class Timing:
    """All readings of one call: the first separately, then those after the warm-up.

    ``warning`` is a sentence about what disturbed them, such as a throttled GPU, or empty.
    """

    first: float
    readings: tuple[Reading, ...]
    warning: str = ""


class Clock:
    """Times calls on one device."""

    def __init__(
        self,
        device: MeasuredDevice,
        *,
        cold: bool = False,
        now: Callable[[], float] = perf_counter,
        touch: Callable[[Any], Any] = lambda result: None,
    ) -> None:
        """``touch`` reads a value of the result before the clock is stopped."""
        self.device = device
        self.cold = cold
        self._now, self._touch = now, touch

    def read(self, call: Call) -> Reading:
        """Time one call, from an idle device until its result is there."""
        return self.call(call)[0]

    def call(self, call: Call) -> tuple[Reading, Any]:
        """Time one call, and return its result too."""
        device, now = self.device, self._now
        if self.cold:
            device.flush_caches()
        device.synchronize()
        before = now()
        start = device.event()
        result = call()
        end = device.event()
        wait_for(result, device)
        self._touch(result)
        wall = now() - before
        return Reading(wall, None if start is None else device.elapsed(start, end)), result

    def block(self, call: Call, calls: int, *, discard: int = 0) -> list[Reading]:
        """Time ``calls`` calls in a row, after ``discard`` calls that are not reported."""
        for _ in range(discard):
            self.read(call)
        return [self.read(call) for _ in range(calls)]

    def time(
        self,
        call: Call,
        *,
        seconds: float = 0.5,
        warm_up: float = 0.1,
        at_least: int = 3,
        at_most: int = 1000,
    ) -> Timing:
        """Time the first call, warm up, then take readings until ``seconds`` have passed.

        If the first call takes longer than the warm-up, it is the whole warm-up.
        """
        began = self._now()
        first = self.read(call).wall
        while self._now() - began < warm_up:
            self.read(call)
        index = self.device.gpu_index
        watch = Watch(index) if index is not None else None
        readings: list[Reading] = []
        with watch or nullcontext():
            began = self._now()
            while len(readings) < at_least or (
                len(readings) < at_most and self._now() - began < seconds
            ):
                readings.append(self.read(call))
        return Timing(first, tuple(readings), watch.warning() if watch else "")


def resolution(now: Callable[[], float] = perf_counter) -> float:
    """The smallest step of the clock in seconds; times close to it cannot be measured."""
    steps = []
    for _ in range(20):
        before = now()
        while (after := now()) == before:
            pass
        steps.append(after - before)
    return min(steps)
