"""What is a regression, and what was the machine: every upward step of a series is judged.

A step of a time is judged twice, by the series itself and by its ratio to the baseline beside it,
whose code is the same for all commits. Values measured beside other work are left out of both.

open
    The series went up, and so did its ratio to the baseline; or the baseline jumped by quite
    another factor: that is chance, and excuses nothing.
machine
    The baseline went up by the same factor: what is left over does not count, and the baseline is
    not ahead by 1.3 times or more.
suspect
    One of these: only values measured beside other work show it; the newest value alone does, by
    five times the noise but less than makes a step; the baseline went up too, and less than 1.3
    times is left over; it became faster than it ever was, and the candidate did not; it went up by
    the same factor at one or two commits, but most other baselines did not, and the load is not
    known (if it is known to be low, that is chance, too, and the step is open).
fixed
    It was open, and the value came back, not only because the machine became faster. A suspect
    whose value came back is still one, because it may never have been the commit.

How often this errs is simulated by ``python -m tools.history_errors``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from statistics import median
from typing import Any, NamedTuple

from .changes import (
    BYTES,
    COUNT_RATIO,
    ERROR,
    ERROR_RATIO,
    RATIO,
    SECONDS,
    Step,
    Thresholds,
    steps,
)
from .confirming import Confirmation
from .levels import HINT_PRICE, Level
from .points import Point, Series, beside

WITNESSES = 3
"""Fewer other baselines say nothing about the machine."""
LASTING = 3
"""Commits."""
STANDS_OUT = 5.0
"""Times the noise."""
AGREE = 1.3
"""A machine slows the baseline and a candidate by factors that differ less than this."""
FAILING = ("open", "confirmed")
"""States of a regression that stands."""

Counts = Callable[[float, float], bool]


@dataclass(frozen=True)
class Regression:
    """An upward step and what became of it.

    commit             where it appeared
    last_good          the measured commit before it; what lies between was not measured
    before, after      the levels, and ``ratio`` of the two (None if it was 0 before)
    now                the newest level, and ``remains``, its ratio to ``before``
    state              ``open``, ``suspect``, ``machine`` or ``fixed``; after ``--confirm`` also
                       ``confirmed`` or ``refuted``
    fixed_by           the commit with which the value came back, of a suspect too
    measured           how many measured commits show it; with 1 measure again before blaming
    busy               how many of these were measured on a busy machine
    software_changed   the fingerprint is not the same on both sides: it may not be the commit
    baseline_ratio     after / before of the baseline on the same case; None if not measured
    ratio_to_baseline  after / before of the candidate's ratio to the baseline; likewise
    confirmation       what measuring again has shown; None without ``--confirm``
    """

    series: Series = field(repr=False)
    commit: str
    last_good: str
    before: float
    after: float
    now: float
    ratio: float | None
    remains: float | None
    state: str
    fixed_by: str | None
    measured: int
    busy: int
    software_changed: bool
    baseline_ratio: float | None
    ratio_to_baseline: float | None
    confirmation: Confirmation | None = None

    @property
    def stands(self) -> bool:
        """It is called a regression, and it is there at the newest measured commit."""
        return self.state in FAILING


class Moved(NamedTuple):
    """After / before: of the baseline, and of the candidate's ratio to it."""

    baseline: float
    ratio: float


def regressions(
    lines: Iterable[Series],
    ratio: float = RATIO,
    seconds: float = SECONDS,
    bytes: float = BYTES,
    error_ratio: float = ERROR_RATIO,
    error: float = ERROR,
    count_ratio: float = COUNT_RATIO,
) -> list[Regression]:
    """Every upward step that exceeds ratio and absolute change: open ones first, then by ratio.

    ``ratio`` is for times and bytes (and cache misses), ``count_ratio`` for instructions, and
    ``error_ratio`` for errors: a version that is fast because it is wrong shows there. An error is
    fixed as a slowness is: when the level is no longer worse than it was before the step, by the
    same thresholds. A baseline cannot regress, its code is not the commit's: it tells how far the
    machine moved.
    """
    thresholds = Thresholds(ratio, seconds, bytes, error_ratio, error, count_ratio)
    every = list(lines)
    baselines = {beside(one): one for one in every if one.is_baseline and one.quantity == "time"}
    found = [
        regression
        for one in every
        if not one.is_baseline
        for regression in _of_one(one, thresholds, *_controls(one, baselines))
    ]
    return sorted(found, key=_rank)


def hints(
    lines: Sequence[Series], known: Iterable[Regression], ratio: float = RATIO
) -> list[Regression]:
    """Slower times that stand out too little to be told, to be measured again: all are suspects.

    Only of series that have no regression in ``known`` already.
    """
    told = {regression.series for regression in known if regression.state != "machine"}
    closer = {replace(one, step_price=HINT_PRICE): one for one in lines if one.quantity == "time"}
    return [
        replace(found, series=closer[found.series], state="suspect")
        for found in regressions(closer, ratio=ratio)
        if found.state != "machine" and closer[found.series] not in told
    ]


def _controls(
    one: Series, baselines: Mapping[tuple[Any, ...], Series]
) -> tuple[Series | None, list[Series]]:
    """The baseline beside a series, and those of other cases and subjects on the same machine."""
    own = baselines.get(beside(one)) if one.quantity == "time" else None
    place = (one.machine, one.environment, one.threads)
    others = [b for b in baselines.values() if (b.machine, b.environment, b.threads) == place]
    return own, [other for other in others if other is not own] if own else []


def _rank(regression: Regression) -> tuple[int, float]:
    order = ("open", "suspect", "fixed", "machine")
    return order.index(regression.state), -(inf if regression.ratio is None else regression.ratio)


def _of_one(
    one: Series, thresholds: Thresholds, baseline: Series | None, witnesses: Sequence[Series]
) -> Iterable[Regression]:
    counts = thresholds.counts_in(one)
    found = [step for step in steps(one, thresholds) if step.up]
    stands = False
    for step in found:
        sides = one.in_level(step.base), one.in_level(step.level)
        moved = _moved(one, baseline, *sides)
        later = [level for level in one.levels if level.first > step.level.first]
        back = next((lv for lv in later if _is_back(one, baseline, step, lv, counts)), None)
        state = "open" if moved is None else _state(moved, step.before, counts)
        if state == "machine" and _stand_still(witnesses, *sides):
            # The baseline was hit alone; with the candidate only if there was other work.
            known_quiet = all(point.load is not None and not point.loaded for point in sides[1])
            state = "open" if known_quiet else "suspect"
        if state == "open" and one.all_loaded:
            state = "suspect"
        if back is not None and state == "open":
            state = "fixed"
        yield _regression(one, step, moved, state, back)
        stands |= state in ("open", "suspect") and back is None
    if one.quantity != "time":
        return
    if not stands and not one.all_loaded and any(point.loaded for point in one.points):
        control = baseline and baseline.whatever_the_load
        for regression in _of_one(one.whatever_the_load, thresholds, control, ()):
            if regression.state == "open":
                place = [point.commit for point in one.points].index(regression.commit)
                busy = sum(p.busy for p in one.points[place:] if p.value is not None)
                yield replace(regression, series=one, state="suspect", busy=busy)
    late = _late(one, counts)
    if late is not None:
        moved = _moved(one, baseline, one.in_level(late.base), one.in_level(late.level))
        if moved is None or _state(moved, late.before, counts) != "machine":
            yield _regression(one, late, moved, "suspect")
    if baseline is not None:
        yield from _hidden(one, baseline, thresholds, {step.commit for step in found})


def _late(one: Series, counts: Counts) -> Step | None:
    """The newest value stands out, but not so far that one value makes a level of its own."""
    known = [point for point in one.points if point.value is not None]
    if not known or known[-1] != one.trusted[-1]:
        return None
    positive = [(p.commit, p.value) for p in one.in_level(one.levels[-1]) if p.value]
    if len(positive) <= LASTING:
        return None
    *before, newest = positive
    usual, value = median(value for _, value in before), newest[1]
    if not counts(usual, value) or log(value / usual) < STANDS_OUT * one.noise:
        return None
    first, last = one.levels[-1].first, one.levels[-1].last
    base, level = Level(first, last - 1, usual), Level(last, last, value)
    return Step(newest[0], before[-1][0], usual, value, base=base, level=level)


def _state(moved: Moved, before: float, counts: Counts) -> str:
    """By what the baseline did meanwhile."""
    if moved.baseline <= 1 or moved.ratio * AGREE <= 1:
        return "open"
    if not counts(before, before * moved.ratio):
        return "machine"
    return "suspect" if moved.baseline >= RATIO and moved.ratio < AGREE else "open"


def _stand_still(
    witnesses: Sequence[Series], before: Sequence[Point], after: Sequence[Point]
) -> bool:
    """Whether most baselines of other cases, if there are a few, did not go up meanwhile.

    Asked only of what few commits show: a baseline that stays up was not hit by chance.
    """
    if len(after) >= LASTING:
        return False
    moves = []
    for witness in witnesses:
        value = {point.commit: point.value for point in witness.trusted}
        sides = [[v for p in side if (v := value.get(p.commit))] for side in (before, after)]
        if all(sides):
            moves.append(median(sides[1]) / median(sides[0]))
    return len(moves) >= WITNESSES and median(moves) < RATIO


def _regression(
    one: Series, step: Step, moved: Moved | None, state: str, back: Level | None = None
) -> Regression:
    place = {point.commit: number for number, point in enumerate(one.points)}
    end = back.first if back else len(one.points)
    good, bad = one.points[place[step.last_before]], one.points[place[step.commit]]
    shown = [point for point in one.points[place[step.commit] : end] if point.value is not None]
    now = one.levels[-1].value
    return Regression(
        series=one,
        commit=step.commit,
        last_good=step.last_before,
        before=step.before,
        after=step.after,
        now=now,
        ratio=step.ratio,
        remains=now / step.before if step.before > 0 else None,
        state=state,
        fixed_by=one.points[back.first].commit if back and state != "machine" else None,
        measured=len(shown),
        busy=sum(point.busy for point in shown),
        software_changed=good.fingerprint != bad.fingerprint,
        baseline_ratio=moved.baseline if moved else None,
        ratio_to_baseline=moved.ratio if moved else None,
    )


def _moved(
    one: Series, baseline: Series | None, before: Sequence[Point], after: Sequence[Point]
) -> Moved | None:
    """By medians over the commits of either side that have both values, commit by commit."""
    if baseline is None:
        return None
    control = {p.commit: p.value for p in baseline.trusted if p.value is not None and p.value > 0}

    def sides(points: Sequence[Point]) -> tuple[list[float], list[float]]:
        pairs = [
            (p.value, control[p.commit])
            for p in points
            if p.value is not None and p.commit in control
        ]
        return [b for _, b in pairs], [a / b for a, b in pairs]

    (usual, shares), (then, later) = sides(before), sides(after)
    if not shares or not later or median(shares) <= 0:
        return None
    return Moved(median(then) / median(usual), median(later) / median(shares))


def _is_back(
    one: Series, baseline: Series | None, step: Step, level: Level, counts: Counts
) -> bool:
    """The value is as it was, and not only because the machine has become faster."""
    if counts(step.before, level.value):
        return False
    moved = _moved(one, baseline, one.in_level(step.base), one.in_level(level))
    return (
        moved is None
        or moved.baseline * AGREE > 1
        or not counts(step.before, step.before * moved.ratio)
    )


def _hidden(
    one: Series, baseline: Series, thresholds: Thresholds, known: set[str]
) -> Iterable[Regression]:
    """The baseline became faster than it ever was, and the candidate did not."""
    counts = thresholds.counts_in(one)
    place = {point.commit: number for number, point in enumerate(one.points)}
    for control in steps(baseline, thresholds):
        earlier = [lv.value for lv in baseline.levels if lv.first < control.level.first]
        if control.commit in known or control.level.value * RATIO > min(earlier):
            continue
        sides = [
            [one.points[place[p.commit]] for p in baseline.in_level(level) if p.commit in place]
            for level in (control.base, control.level)
        ]
        before, after = ([p for p in side if p.value is not None] for side in sides)
        moved = _moved(one, baseline, before, after)
        if moved is None or moved.ratio < AGREE:
            continue
        usual = median(p.value for p in before if p.value is not None) * moved.baseline
        now = median(p.value for p in after if p.value is not None)
        if not counts(usual, now):
            continue
        ends = [
            Level(place[s[0].commit], place[s[-1].commit], v)
            for s, v in ((before, usual), (after, now))
        ]
        step = Step(after[0].commit, before[-1].commit, usual, now, base=ends[0], level=ends[1])
        if one.levels and counts(usual, one.levels[-1].value):
            yield _regression(one, step, moved, "suspect")
