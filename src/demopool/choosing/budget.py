"""The budget of a race: wall time for everything but the set-up of libraries.

Starting a process, importing a library and compiling (by a call on little data) cannot be planned:
they are set-up, and counted separately. So are the judge's answers and its measurement of the
machine, once for a case. All else is in the budget: placing data, first calls,
checks against the reference, memory, rounds, and new processes that confirm a winner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OVERRUN = 1.2
"""A request that is under way when the budget ends is given up at this multiple of the budget."""

QUALIFYING = 0.6
"""The share of the budget for everything that comes before the race."""

SOON = 0.05
"""Minimum seconds of any request."""


class OutOfTime(Exception):
    """The budget ended in the middle of something."""


class Budget:
    """Seconds that may be spent, and that were; ``now`` is a clock."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.now = now
        self.setup = 0.0
        self._began = now()

    @property
    def spent(self) -> float:
        return self.now() - self._began - self.setup

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    @property
    def patience(self) -> float:
        """How long a request may take that is made now."""
        return max(OVERRUN * self.seconds - self.spent, SOON)

    @property
    def is_spent(self) -> bool:
        return self.left <= 0

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """Counts what is done inside as set-up."""
        before = self.now()
        try:
            yield
        finally:
            self.setup += self.now() - before
