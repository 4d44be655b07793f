"""Asynchronous copies that were started and not yet waited for (``cp.async``).

A copy belongs to the group that its thread commits next. Its bytes arrive at some time before the
thread has waited for that group. Until then nobody may touch the place they go to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .memory import reserve

Array = Any

_CELL = 4
"""Bytes of the smallest copy; larger ones are multiples of it, and all are aligned by size."""


class Copy(NamedTuple):
    """Bytes on their way: a row for every lane that copies, to ``start``, in the lane's group."""

    lanes: Array
    start: Array
    data: Array
    group: Array

    def of(self, chosen: Array) -> Copy:
        return Copy(*(part[chosen] for part in self))


class Copies:
    """The copies of a wave."""

    def __init__(self, lanes: int, shared_bytes: int) -> None:
        self._committed = np.zeros(lanes, np.int64)
        self._started: list[Copy] = []
        self._awaited = reserve(shared_bytes // _CELL, np.bool_)

    def start(self, lanes: Array, start: Array, data: Array) -> None:
        self._started.append(Copy(lanes, start, data, self._committed[lanes]))
        self._mark(start, data.shape[1], awaited=True)

    def commit(self, lanes: Array) -> None:
        self._committed[lanes] += 1

    def finished(self, mask: Array, left: int) -> Iterator[Copy]:
        """Remove what these lanes wait for: all but their last ``left`` groups.

        -1 includes what they have not committed yet.
        """
        started, self._started = self._started, []
        for copy in started:
            last = self._committed[copy.lanes] - left
            done = mask[copy.lanes] & (copy.group < last)
            if not done.all():
                self._started.append(copy.of(~done))
            if done.any():
                arrived = copy.of(done)
                self._mark(arrived.start, arrived.data.shape[1], awaited=False)
                yield arrived

    def under_way(self, start: Array, size: int) -> Array | None:
        """Where a copy is on its way into an access of ``size`` bytes; None if nowhere."""
        if not self._started:
            return None
        found = self._awaited[start // _CELL]
        for inside in range(_CELL, size, _CELL):
            found = found | self._awaited[(start + inside) // _CELL]
        return found if found.any() else None

    def is_committed(self, start: int, size: int) -> bool:
        """Whether all copies into an access belong to groups."""
        for copy in self._started:
            meets = (copy.start < start + size) & (start < copy.start + copy.data.shape[1])
            if (meets & (copy.group == self._committed[copy.lanes])).any():
                return False
        return True

    def _mark(self, start: Array, size: int, *, awaited: bool) -> None:
        for inside in range(0, size, _CELL):
            self._awaited[(start + inside) // _CELL] = awaited
