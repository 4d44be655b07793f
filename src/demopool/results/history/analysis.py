"""What happened from commit to commit: series of values, the steps in them, the regressions.

Pure functions over the table of ``results.read``.

Of times the lower quartile is followed, not the median: on identical code it moved 4 % between
runs where the median moved 12 %.

Steps are changes between the constant levels that :mod:`.levels` fits to a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from math import inf
from typing import Any

from ...trials.measures import quantity
from .levels import Level, levels_of

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
"""Of instructions: those of unchanged code at other addresses move by up to 0.2 %."""
BASELINE = "baseline/"

IDENTITY = (
    "machine",
    "environment",
    "threads",
    "benchmark",
    "kind",
    "subject",
    "measure",
    "unit",
    "candidate",
    "case",
    "parameters",
)


@dataclass(frozen=True)
class Point:
    """One commit of a series; ``value`` is None unless the state is ``ok``."""

    commit: str
    date: datetime | None
    value: float | None
    state: str = "ok"
    reason: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True)
class Series:
    """One thing measured on one machine in one environment, commit by commit, oldest first."""

    machine: str | None
    environment: str | None
    threads: int | None
    benchmark: str
    kind: str | None
    subject: str | None
    measure: str
    unit: str | None
    candidate: str | None
    case: str | None
    parameters: str | None
    points: tuple[Point, ...] = field(repr=False)

    @property
    def quantity(self) -> str:
        """``time``, ``memory``, ``error``, ``count`` or ``other``: what decides thresholds."""
        return quantity(self.measure, self.unit)

    @property
    def is_baseline(self) -> bool:
        """Its code lies with the benchmarks, the same for all commits: it shows the machine."""
        return (self.candidate or "").startswith(BASELINE)

    @property
    def values(self) -> tuple[float, ...]:
        """Those there are, without the gaps."""
        return tuple(point.value for point in self.points if point.value is not None)

    @property
    def broke(self) -> bool:
        """It had a value, and failed at the newest commit that was asked."""
        asked = [point for point in self.points if point.state != "not run"]
        return bool(self.values) and asked[-1].state == "failed"

    @property
    def name(self) -> str:
        """Of the line in a picture or table."""
        return self.candidate or self.parameters or self.benchmark

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The constant levels that fit the values best; a gap belongs to none."""
        tracked = self.benchmark.rpartition(".")[2].startswith("track_")
        kind = "tracked time" if tracked and self.quantity == "time" else self.quantity
        return levels_of([point.value for point in self.points], kind)


@dataclass(frozen=True)
class Step:
    """A change of level that counts: ``ratio`` is after / before, None if it was 0 before."""

    commit: str
    last_before: str
    before: float
    after: float

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
class Regression:
    """An upward step and what became of it.

    commit            where it appeared
    last_good         the measured commit before it; what lies between was not measured
    before, after     the levels, and ``ratio`` of the two (None if it was 0 before)
    now               the newest level
    state             ``open``: still there at the newest measured commit; ``fixed``; ``machine``:
                      the baseline, whose code never changes, slowed down with it
    fixed_by          the commit with which the value came back
    measured          how many measured commits show it; with 1 measure again before blaming
    software_changed  the fingerprint is not the same on both sides: it may not be the commit
    baseline_ratio    after / before of the baseline on the same case; None if not measured
    """

    series: Series = field(repr=False)
    commit: str
    last_good: str
    before: float
    after: float
    now: float
    ratio: float | None
    state: str
    fixed_by: str | None
    measured: int
    software_changed: bool
    baseline_ratio: float | None


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


def commits(frame: Any, order: Sequence[str] | None = None) -> list[str]:
    """The commits in the table of ``results.read``, oldest first.

    ``order``: more commits in order, as ``repository.order`` gives them. It counts if it knows
    every commit in the table: asv stores the author's date, which a rebase leaves as it was, so
    dates alone can put a commit before its parent. Otherwise by date, and within a date by when the
    commit was first measured.
    """
    first = frame.groupby("commit")[["commit_date", "measured_at"]].min()
    if order is not None:
        position = {commit: number for number, commit in enumerate(order)}
        if all(commit in position for commit in first.index):
            return sorted(first.index, key=position.__getitem__)
    # Stable, so what has no other order is in that of the hashes, which groupby gave.
    return list(first.sort_values(list(first.columns), kind="stable", na_position="first").index)


def series(frame: Any, order: Sequence[str] | None = None) -> list[Series]:
    """Every series in the table of ``results.read``, sorted by what it is of.

    The order of the commits is that of ``commits``. Rows without a commit (samples) have no place
    in a history, nor has a cell that no commit was ever asked for.
    """
    place = {commit: number for number, commit in enumerate(commits(frame, order))}
    rows = frame[frame["commit"].notna()]
    rows = rows.astype(object).where(rows.notna(), None)
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows.to_dict("records"):
        line = found.setdefault(tuple(row[name] for name in IDENTITY), {})
        kept = line.get(row["commit"])
        if kept is None or _preference(row) > _preference(kept):
            line[row["commit"]] = row
    unsorted = [
        Series(
            **dict(zip(IDENTITY, identity, strict=True)),
            points=tuple(_point(line[commit]) for commit in sorted(line, key=place.__getitem__)),
        )
        for identity, line in found.items()
        if any(row["state"] != "not run" for row in line.values())
    ]
    return sorted(unsorted, key=lambda one: [str(getattr(one, name)) for name in IDENTITY])


def only(lines: Iterable[Series], wanted: Iterable[str]) -> list[Series]:
    """The same series with these commits only; those that have none of them are dropped."""
    kept = set(wanted)
    cut = (
        replace(one, points=tuple(point for point in one.points if point.commit in kept))
        for one in lines
    )
    return [one for one in cut if one.points]


def steps(one: Series, thresholds: Thresholds | None = None) -> list[Step]:
    """The changes of level that count, up and down, oldest first.

    A level is compared with the lowest since the last step that counted, not only with the one
    before it: three steps of 6 % are one of 19 %, found at the commit where it went over.
    """
    counts = (thresholds or Thresholds()).counts_in(one)
    found: list[Step] = []
    base: float | None = None
    for earlier, level in zip((None, *one.levels), one.levels, strict=False):
        if earlier is None or base is None:
            base = level.value
        elif counts(base, level.value) or counts(level.value, base):
            at, before = one.points[level.first], one.points[earlier.last]
            found.append(Step(at.commit, before.commit, base, level.value))
            base = level.value
        else:
            base = min(base, level.value)
    return found


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
    baselines = {_beside(one): one for one in every if one.is_baseline}
    found = [
        regression
        for one in every
        if not one.is_baseline
        for regression in _of_one(one, thresholds, baselines.get(_beside(one)))
    ]
    return sorted(found, key=lambda r: (r.state != "open", -(inf if r.ratio is None else r.ratio)))


def _preference(row: Mapping[str, Any]) -> tuple[bool, str, float]:
    """Of two results for one commit: a number before a gap, then the newer one."""
    moment = row["measured_at"]
    value = row["lower_quartile"]
    return (
        row["state"] == "ok",
        moment.isoformat() if moment is not None else "",
        value if value is not None else -inf,
    )


def _point(row: Mapping[str, Any]) -> Point:
    date = row["commit_date"]
    return Point(
        commit=row["commit"],
        date=date.to_pydatetime() if date is not None else None,
        value=row["lower_quartile"] if row["state"] == "ok" else None,
        state=row["state"],
        reason=row["reason"],
        fingerprint=row["fingerprint"],
    )


def _beside(one: Series) -> tuple[Any, ...]:
    """What a candidate shares with its baseline."""
    return (one.machine, one.environment, one.threads, one.benchmark, one.case)


def _level_at(one: Series | None, commit: str) -> float | None:
    if one is None:
        return None
    place = next((number for number, p in enumerate(one.points) if p.commit == commit), -1)
    return next((lv.value for lv in one.levels if lv.first <= place <= lv.last), None)


def _of_one(one: Series, thresholds: Thresholds, baseline: Series | None) -> list[Regression]:
    counts = thresholds.counts_in(one)
    place = {point.commit: number for number, point in enumerate(one.points)}
    found = []
    for step in steps(one, thresholds):
        if not step.up:
            continue
        start = place[step.commit]
        later = [level for level in one.levels if level.first > start]
        back = next((level for level in later if not counts(step.before, level.value)), None)
        end = back.first if back else len(one.points)
        good, bad = one.points[place[step.last_before]], one.points[start]
        usual, then = (_level_at(baseline, point.commit) for point in (good, bad))
        moved = then / usual if usual and then is not None else None
        # What is left of a slowness when the machine's own part is taken out.
        slower = one.quantity == "time" and moved is not None and moved > 1
        by_machine = slower and moved is not None and not counts(step.before * moved, step.after)
        state = "machine" if by_machine else "fixed" if back else "open"
        found.append(
            Regression(
                series=one,
                commit=step.commit,
                last_good=step.last_before,
                before=step.before,
                after=step.after,
                now=one.levels[-1].value,
                ratio=step.ratio,
                state=state,
                fixed_by=one.points[back.first].commit if back else None,
                measured=sum(point.value is not None for point in one.points[start:end]),
                software_changed=good.fingerprint != bad.fingerprint,
                baseline_ratio=moved,
            )
        )
    return found
