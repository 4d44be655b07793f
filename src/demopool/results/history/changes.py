"""Steps: changes between the constant levels of a series that are large enough to count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from .levels import Level
from .points import Series

RATIO = 1.10
"""Of times and bytes: two and a half times the 4 % by which a quartile moves on its own."""
SECONDS = 50e-6
"""For calls under half a millisecond more than the ratio is asked: 25 % of one of 0.2 ms."""
BYTES = 1e6
"""A net peak is true within 0.25 MB, so two can differ by half of this with nothing changed."""
ERROR_RATIO = 3.0
"""Errors on fixed features repeat, but another order of adding moves their rounding a little."""
ERROR = 1e-12
"""Below this an error is the rounding of float64 and no news."""
COUNT_RATIO = 1.005
"""Of instructions: those of unchanged code at other addresses move by up to 0.1 %."""


@dataclass(frozen=True)
class Step:
    """A change that counts, from the level ``base`` to ``level``.

    ``ratio`` is after / before, None if it was 0 before.
    """

    commit: str
    last_before: str
    before: float
    after: float
    base: Level = field(repr=False)
    level: Level = field(repr=False)

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before > 0 else None

    @property
    def size(self) -> float:
        """How many times up or down, for sorting."""
        low, high = sorted((self.before, self.after))
        return high / low if low > 0 else inf

    @property
    def up(self) -> bool:
        return self.after > self.before


@dataclass(frozen=True)
class Thresholds:
    """Both must be exceeded: the ratio, and the absolute change of the measure's kind."""

    ratio: float = RATIO
    seconds: float = SECONDS
    bytes: float = BYTES
    error_ratio: float = ERROR_RATIO
    error: float = ERROR
    count_ratio: float = COUNT_RATIO

    def counts_in(self, one: Series) -> Callable[[float, float], bool]:
        """Whether the step from a lower to a higher value counts in this series."""
        ratio, change = {
            "time": (self.ratio, self.seconds),
            "memory": (self.ratio, self.bytes),
            "error": (self.error_ratio, self.error),
            "count": (self.count_ratio, 0.0),
            "other": (self.ratio, 0.0),
        }[one.quantity]
        return lambda low, high: high > low and high >= ratio * low and high - low >= change


def steps(one: Series, thresholds: Thresholds | None = None) -> list[Step]:
    """The changes of level that count, up and down, oldest first.

    A level is compared with the lowest since the last step that counted, not only with the one
    before it: three steps of 6 % are one of 19 %, found at the commit where it went over.
    """
    counts = (thresholds or Thresholds()).counts_in(one)
    found: list[Step] = []
    base = one.levels[0] if one.levels else None
    for earlier, level in pairwise(one.levels):
        assert base is not None
        if counts(base.value, level.value) or counts(level.value, base.value):
            at, before = one.points[level.first], one.points[earlier.last]
            found.append(
                Step(at.commit, before.commit, base.value, level.value, base=base, level=level)
            )
            base = level
        elif level.value < base.value:
            base = level
    return found
