"""How much of the machine others use while something is measured: Linux only, from /proc.

All that the cores were busy with, less what this process and its workers used. Time that a
hypervisor took away counts as used by others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PROC = Path("/proc")


class Others:
    """Cores used by others since it was last asked; ``workers`` are processes that are ours."""

    def __init__(self, workers: Callable[[], Iterable[int]] = tuple) -> None:
        self._workers = workers
        self._before = self._seconds()

    def cores(self) -> float | None:
        """None where it cannot be told, and if no time has passed."""
        before, now = self._before, self._seconds()
        self._before = now
        if before is None or now is None or now[0] <= before[0]:
            return None
        wall, busy, own = (new - old for new, old in zip(now, before, strict=True))
        return max(0.0, (busy - own) / wall)

    def _seconds(self) -> tuple[float, float, float] | None:
        """The time, and the processor time of everybody and of us until now."""
        try:
            tick = os.sysconf("SC_CLK_TCK")
            fields = (_PROC / "stat").read_text().splitlines()[0].split()[1:9]
            ticks = [int(field) for field in fields]
            # Not what was idle or waited for a disk.
            busy = (sum(ticks) - ticks[3] - ticks[4]) / tick
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        ours = os.times()
        own = ours.user + ours.system + ours.children_user + ours.children_system
        return time.monotonic(), busy, own + sum(map(self._of, self._workers())) / tick

    @staticmethod
    def _of(process: int) -> int:
        """Ticks of a process and of those it has waited for; one that is gone is among ours."""
        try:
            text = (_PROC / str(process) / "stat").read_text()
        except OSError:
            return 0
        # The name, in brackets, may hold spaces.
        return sum(int(field) for field in text.rpartition(")")[2].split()[11:15])
