"""How much of the machine other processes use during a measurement: Linux only, from /proc.

It is the busy time of all cores minus the time used by this process and its workers. Time taken by
a hypervisor counts as used by others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PROC = Path("/proc")


class Others:
    """Cores used by other processes between two calls of ``cores``; ``workers`` lists our own."""

    def __init__(self, workers: Callable[[], Iterable[int]] = tuple) -> None:
        self._workers = workers
        self._before = self.seconds()

    def cores(self) -> float | None:
        """Cores used by others since the last call; None if unknown, or if no time has passed."""
        before, now = self._before, self.seconds()
        self._before = now
        if before is None or now is None or now[0] <= before[0]:
            return None
        wall, busy, own = (new - old for new, old in zip(now, before, strict=True))
        return max(0.0, (busy - own) / wall)

    def seconds(self) -> tuple[float, float, float] | None:
        """The time now, and the processor time used so far by all processes and by our own.

        The time is the same for all processes; None if unknown.
        """
        try:
            tick = os.sysconf("SC_CLK_TCK")
            fields = (_PROC / "stat").read_text().splitlines()[0].split()[1:9]
            ticks = [int(field) for field in fields]
            # Without the time spent idle or waiting for a disk.
            busy = (sum(ticks) - ticks[3] - ticks[4]) / tick
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        ours = os.times()
        own = ours.user + ours.system + ours.children_user + ours.children_system
        return time.monotonic(), busy, own + sum(map(self._ticks, self._workers())) / tick

    @staticmethod
    def _ticks(process: int) -> int:
        """Ticks of a process and its reaped children; 0 if it has ended: it then counts as ours."""
        try:
            text = (_PROC / str(process) / "stat").read_text()
        except OSError:
            return 0
        # The process name, in brackets, may contain spaces.
        return sum(int(field) for field in text.rpartition(")")[2].split()[11:15])
