"""Suspects are measured again: commits before the step and after it in turns, A B C, C B A, A B C.

Every round measures each of them, in new processes, one after the other: what the machine does
meanwhile hits all. Of a time it is the fastest call that counts. Measured are the two commits
before the step, the two after it, and the newest one that should show it. Judged is the logarithm
of the ratio of the newest to the oldest in a round, by Yuen's t of trimmed means, which a fifth of
spoilt rounds on either side does not move: after 6 rounds and, where these do not decide, after 12
and after 20. Each look has a third of the 1 % that an error may have. What is confirmed is put down
to the commit where the medians of all rounds step up, which noise may have hidden in the history.

confirmed   the interval of the ratio lies above 1, and the ratio itself is as large as a step must
            be to count
refuted     the interval lies below what a step must be to count
undecided   neither
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from .points import Series

LOOKS = (6, 12, 20)
"""Rounds after which it is judged."""
LEVEL = 0.01 / len(LOOKS)
"""Of one-sided limits."""
TRIMMED = 5
"""The lowest and the highest of so many rounds are left out."""
LEAST_SPREAD = 0.01
"""Of the logarithms of ratios, whatever a few lucky rounds show."""


@dataclass(frozen=True)
class Confirmation:
    """What rounds of some commits have shown; ``ratio`` is that of a round, newest / oldest.

    commits        that were measured, oldest first
    appeared       the one among them where the value went up, if it did
    before, after  median values at the oldest and at the newest
    low, high      limits of the ratio; each is passed by chance in a third of 1 % of cases
    verdict        ``confirmed``, ``refuted`` or ``undecided``
    """

    commits: tuple[str, ...]
    appeared: str
    rounds: int
    before: float
    after: float
    ratio: float
    low: float
    high: float
    verdict: str


def judge(
    commits: tuple[str, ...],
    rounds: Sequence[tuple[float, ...]],
    ratio: float,
    least: int = LOOKS[0],
) -> Confirmation | None:
    """``rounds``: the values of all commits; None of fewer than two, or where one is zero.

    Nothing is decided by fewer than ``least``: some may have failed.
    """
    from scipy.special import stdtrit

    if len(rounds) < 2 or min(map(min, rounds)) <= 0:
        return None
    found = sorted(log(values[-1] / values[0]) for values in rounds)
    count, cut = len(found), len(found) // TRIMMED
    kept = found[cut : count - cut]
    # Of the whole, with the values that were cut off put where the cut is.
    spread = max(stdev([*kept, *[kept[0]] * cut, *[kept[-1]] * cut]), LEAST_SPREAD)
    freedom = len(kept) - 1
    error = spread * sqrt((count - 1) / (len(kept) * freedom))
    middle, reach = fmean(kept), float(stdtrit(freedom, 1.0 - LEVEL)) * error
    low, high, limit = middle - reach, middle + reach, log(ratio)
    verdict = "undecided"
    if count >= least:
        if low > 0 and middle >= limit:
            verdict = "confirmed"
        elif high < limit:
            verdict = "refuted"
    usual = [median(values) for values in zip(*rounds, strict=True)]
    appeared = commits[_step_in([log(value) for value in usual])]
    limits = (exp(middle), exp(low), exp(high))
    return Confirmation(commits, appeared, count, usual[0], usual[-1], *limits, verdict)


def _step_in(heights: Sequence[float]) -> int:
    """Where the second of two levels begins that fit best."""

    def misfit(place: int) -> float:
        sides = heights[:place], heights[place:]
        return sum(abs(height - median(side)) for side in sides for height in side)

    return min(range(1, len(heights)), key=misfit)


def turns(commits: tuple[str, ...], number: int) -> tuple[str, ...]:
    """In what order a round measures them: every other one begins with the newest."""
    return commits if number % 2 == 0 else commits[::-1]


def pattern(one: Series) -> str:
    """What ``asv run --bench`` takes for this series alone."""
    name = re.escape(one.benchmark)
    if one.parameters is None:
        return f"^{name}$"
    # asv compares with the parameters as Python writes them, text in quotation marks.
    values = [part.partition("=")[2] for part in one.parameters.split(", ")]
    mark = "['\"]?"
    quoted = ", ".join(mark + re.escape(value) + mark for value in values)
    return rf"^{name}\({quoted}\)$"
