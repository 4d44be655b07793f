"""What was measured of one thing, commit by commit: points and the series they make.

Pure functions over the table of ``results.read``.

Of times the lower quartile is followed, not the median: on identical code it moved 4 % between
runs where the median moved 12 %. Where asv has kept every call of every commit of a series (``asv
run --record-samples``) it is the fastest call: beside other work the quartile of calls of a
millisecond jumped to twice its value, the fastest moved by 3 %.

A point is *busy* if others used more than 15 % of the cores while it was measured. Where that is
not known (no Linux, older results) it is busy if the baseline beside it took 1.25 times its usual
time or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from math import inf
from statistics import median
from typing import Any

from ...machine.fingerprint import BUSY
from ...trials.measures import quantity, without_plugins
from .levels import STEP_PRICE, Level, levels_of, noise_of

BASELINE = "baseline/"
OFF = 1.25
"""A baseline that is this many times slower than usual: six times the 4 % it moves on its own."""
_BESIDE = 4
"""Values of the baseline on either side that say what is usual."""
_FEWEST = 3
"""Of them, to say anything."""

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
    """One commit of a series; ``value`` is None unless the state is ``ok``.

    candidate_state   why there is no value: ``unavailable``, ``out-of-memory``, ...
    load              share of the cores that others used meanwhile; None if it is not known
    baseline_off      the baseline's value here over its usual one; None if it is not known
    """

    commit: str
    date: datetime | None
    value: float | None
    state: str = "ok"
    reason: str | None = None
    fingerprint: str | None = None
    candidate_state: str | None = None
    load: float | None = None
    baseline_off: float | None = None

    @property
    def loaded(self) -> bool:
        """The load of others was written down, and high."""
        return self.load is not None and self.load > BUSY

    @property
    def busy(self) -> bool:
        """The machine was, as far as one can tell."""
        if self.load is not None:
            return self.loaded
        return self.baseline_off is not None and self.baseline_off >= OFF


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
    step_price: float = STEP_PRICE

    @property
    def quantity(self) -> str:
        """``time``, ``memory``, ``error``, ``count`` or ``other``: what decides the thresholds."""
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
    def asked(self) -> tuple[Point, ...]:
        """The commits that were to be measured, whatever came of it."""
        return tuple(point for point in self.points if point.state != "not run")

    @property
    def name(self) -> str:
        """Of the line in a picture or table."""
        return self.candidate or self.parameters or self.benchmark

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The constant levels that fit best; a gap, or a value not trusted, belongs to none."""
        trusted = set(self.trusted)
        values = [point.value if point in trusted else None for point in self.points]
        return levels_of(values, self._noise_kind, self.step_price)

    @property
    def noise(self) -> float:
        """Of the logarithms of its values."""
        return noise_of([p.value for p in self.trusted if p.value is not None], self._noise_kind)

    @property
    def _noise_kind(self) -> str:
        tracked = self.benchmark.rpartition(".")[2].startswith("track_")
        return "tracked time" if tracked and self.quantity == "time" else self.quantity

    @cached_property
    def trusted(self) -> tuple[Point, ...]:
        """The values to judge by: those not measured beside other work, or all if there are none.

        Load is no noise of memory and error.
        """
        known = tuple(point for point in self.points if point.value is not None)
        quiet = tuple(point for point in known if not point.loaded)
        return quiet if quiet and self.quantity == "time" else known

    @property
    def all_loaded(self) -> bool:
        """Every value was measured beside other work, which matters for times only."""
        return self.quantity == "time" and all(point.loaded for point in self.trusted)

    @property
    def whatever_the_load(self) -> Series:
        """The same as if nothing were known about the load."""
        return replace(self, points=tuple(replace(point, load=None) for point in self.points))

    def in_level(self, level: Level) -> list[Point]:
        """The points that make a level."""
        place = {point.commit: number for number, point in enumerate(self.points)}
        return [p for p in self.trusted if level.first <= place[p.commit] <= level.last]


def commits(frame: Any, order: Sequence[str] | None = None) -> list[str]:
    """The commits in the table of ``results.read``, oldest first.

    ``order``: more commits in order, as ``repository.order`` gives them. asv stores the author's
    date, which a rebase leaves as it was, so dates alone can put a commit before its parent. What
    is not in ``order`` has a place by its date, and within a date by when it was first measured.
    """
    first = frame.groupby("commit")[["date", "measured_at"]].min()
    # Stable, so what has no other order is in that of the hashes, which groupby gave.
    dated = first.sort_values(list(first.columns), kind="stable", na_position="first").index
    position = {commit: number for number, commit in enumerate(order or ())}
    placed = sorted((commit for commit in dated if commit in position), key=position.__getitem__)
    date = first["date"]
    for commit in dated:
        if commit not in position:
            later = (n for n, other in enumerate(placed) if date[other] > date[commit])
            placed.insert(next(later, len(placed)), commit)
    return placed


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
            points=tuple(
                _point(line[commit], _followed(line.values()))
                for commit in sorted(line, key=place.__getitem__)
            ),
        )
        for identity, line in found.items()
        if any(row["state"] != "not run" for row in line.values())
    ]
    marked = _beside_baselines(unsorted)
    return sorted(marked, key=lambda one: [str(getattr(one, name)) for name in IDENTITY])


def beside(one: Series) -> tuple[Any, ...]:
    """What a candidate shares with its baseline."""
    benchmark = without_plugins(one.benchmark)
    return (one.machine, one.environment, one.threads, benchmark, one.case)


def _beside_baselines(lines: Sequence[Series]) -> list[Series]:
    """The same series; points of times know whether the baseline beside them was slow."""
    timed = [one for one in lines if one.quantity == "time"]
    off = {beside(one): _off(one) for one in timed if one.is_baseline}
    return [
        replace(
            one,
            points=tuple(
                replace(point, baseline_off=off[beside(one)].get(point.commit))
                for point in one.points
            ),
        )
        if one.quantity == "time" and beside(one) in off
        else one
        for one in lines
    ]


def _off(baseline: Series) -> dict[str, float]:
    """Each value over the median of those around it."""
    known = [(point.commit, point.value) for point in baseline.points if point.value is not None]
    found = {}
    for place, (commit, value) in enumerate(known):
        around = [v for _, v in known[max(0, place - _BESIDE) : place + _BESIDE + 1]]
        usual = median(around)
        if len(around) >= _FEWEST and usual > 0:
            found[commit] = value / usual
    return found


def only(lines: Iterable[Series], wanted: Iterable[str]) -> list[Series]:
    """The same series with these commits only; those that have none of them are dropped."""
    kept = set(wanted)
    cut = (
        replace(one, points=tuple(point for point in one.points if point.commit in kept))
        for one in lines
    )
    return [one for one in cut if one.points]


def _preference(row: Mapping[str, Any]) -> tuple[bool, str, float]:
    """Of two results for one commit: a number before a gap, then the newer one."""
    moment = row["measured_at"]
    value = row["lower_quartile"]
    return (
        row["state"] == "ok",
        moment.isoformat() if moment is not None else "",
        value if value is not None else -inf,
    )


def _followed(rows: Iterable[Mapping[str, Any]]) -> str:
    """One and the same column for all commits: a mixture would be full of steps."""
    known = [row["fastest"] is not None for row in rows if row["state"] == "ok"]
    return "fastest" if known and all(known) else "lower_quartile"


def _point(row: Mapping[str, Any], column: str) -> Point:
    date = row["date"]
    return Point(
        commit=row["commit"],
        date=date.to_pydatetime() if date is not None else None,
        value=row[column] if row["state"] == "ok" else None,
        state=row["state"],
        reason=row["reason"],
        fingerprint=row["fingerprint"],
        candidate_state=row["candidate_state"],
        load=row.get("load"),
    )
