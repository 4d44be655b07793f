"""How much of the machine others used while asv measured, from the counters in the notes.

Every measurement begins with a note of the processor time that all processes, and our own, have
used so far. What others used during it is the difference to the next note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

_ROUNDED = timedelta(seconds=1)
"""Notes have the time without its fractions."""


class Counters(NamedTuple):
    """One note; ``what`` is about to be measured by a child of the process ``asv``."""

    at: datetime
    what: str | None
    asv: int
    wall: float
    busy: float
    own: float
    cores: int

    @classmethod
    def of(cls, note: Mapping[str, Any], at: datetime) -> Counters:
        wall, busy, own = (float(note[name]) for name in ("wall_s", "busy_s", "own_s"))
        what = None if note["what"] is None else str(note["what"])
        return cls(at, what, int(note["asv"]), wall, busy, own, int(note["cores"]))


class Loads:
    """By what was measured and when."""

    def __init__(self, counters: Iterable[Counters]) -> None:
        self._shares: dict[str | None, list[tuple[datetime, float]]] = {}
        for now, then in pairwise(counters):
            wall, busy, own = then.wall - now.wall, then.busy - now.busy, then.own - now.own
            if now.asv == then.asv and wall > 0 and own >= 0 and now.cores > 0:
                share = min(max(0.0, (busy - own) / (wall * now.cores)), 1.0)
                self._shares.setdefault(now.what, []).append((now.at, share))

    def of(self, what: str, started: datetime | None, seconds: float | None) -> float | None:
        """The highest while the benchmark ran, which has many cells; None if it is not known."""
        if started is None or not isinstance(seconds, int | float):
            return None
        end = started.timestamp() + seconds
        return max(
            (
                share
                for at, share in self._shares.get(what, ())
                if at >= started - _ROUNDED and at.timestamp() <= end
            ),
            default=None,
        )
