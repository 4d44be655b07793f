"""Two commits, cell by cell: what the change did, when the machine's own part is taken out.

The baseline's code is the same at both commits, so what its time did was the machine. A candidate's
ratio is divided by that of the baseline beside it. How far baselines moved at all tells the noise
of this run, and what exceeds that by the ratio that the history asks for seems changed. Turns of
both commits decide whether it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from demopool.common.units import readable
from demopool.results.history.changes import RATIO, SECONDS
from demopool.results.history.confirming import Confirmation
from demopool.results.history.points import BASELINE

from .cells import Cell

NOISY = 2.0
"""Where code that is the same took twice as long, nothing can be said of code that is not."""

SLOWER, FASTER, SAME, UNCLEAR = "slower", "faster", "same", "unclear"
NEW, FAILED = "new", "not measured"


@dataclass(frozen=True)
class Time:
    """Of one cell at one commit: the lower quartile, and asv's 99 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One candidate on one case."""

    cell: Cell
    subject: str
    base: Time | None
    head: Time | None
    machine: float | None = None
    verdict: str = SAME
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """Of the change alone: HEAD over base, over the same of the baseline."""
        if self.base is None or self.head is None:
            return None
        return self.head.value / self.base.value / (self.machine or 1.0)


@dataclass(frozen=True)
class Comparison:
    """``limit`` is the ratio from which on something seems changed."""

    rows: tuple[Row, ...]
    limit: float

    @property
    def exit_code(self) -> int:
        """1 if something is slower, else 2 if something that had to be told was not."""
        if self.cells(SLOWER):
            return 1
        return 2 if self.cells(FAILED, UNCLEAR) or self.is_noisy or not self.is_measured else 0

    @property
    def is_noisy(self) -> bool:
        return self.limit > NOISY

    @property
    def is_measured(self) -> bool:
        return any(row.ratio for row in self.rows)

    def cells(self, *verdicts: str) -> set[Cell]:
        return {row.cell for row in self.rows if row.verdict in verdicts}


def compare(frame: Any, base: str, head: str, cells: Iterable[Cell]) -> Comparison:
    """``frame``: the rows of :func:`demopool.results.read` for both commits."""
    at = {commit: _by_cell(frame[frame["commit"] == commit]) for commit in (base, head)}
    return judged(_row(cell, at[base].get(cell), at[head].get(cell)) for cell in sorted(set(cells)))


def judged(measured: Iterable[Row]) -> Comparison:
    """Candidates and baselines as they were measured; only candidates get a verdict."""
    rows = list(measured)
    machine = {
        (row.cell.benchmark, row.cell.case): row.ratio
        for row in rows
        if is_baseline(row.cell) and row.ratio
    }
    moved = [max(ratio, 1 / ratio) for ratio in machine.values()]
    limit = RATIO * (median(moved) if moved else 1.0)
    found = tuple(
        _verdict(replace(row, machine=machine.get((row.cell.benchmark, row.cell.case))), limit)
        for row in rows
        if not is_baseline(row.cell)
    )
    return Comparison(found, limit)


def confirmed(comparison: Comparison, answers: Mapping[Cell, Confirmation]) -> Comparison:
    """What seemed changed, by what turns of both commits have shown."""

    def again(row: Row) -> Row:
        if row.verdict not in (SLOWER, FASTER):
            return row
        answer = answers.get(row.cell)
        if answer is None:
            return replace(row, verdict=UNCLEAR, reason="it failed when measured again")
        limits = sorted((answer.low, answer.high))
        if row.verdict == FASTER:
            # The turns went from HEAD to the base.
            limits = sorted(1 / limit for limit in limits)
        told = f"x{limits[0]:.2f} to x{limits[1]:.2f} in {answer.rounds} rounds"
        verdicts = {"confirmed": row.verdict, "refuted": SAME, "undecided": UNCLEAR}
        return replace(row, verdict=verdicts[answer.verdict], reason=told)

    return replace(comparison, rows=tuple(map(again, comparison.rows)))


def is_baseline(cell: Cell) -> bool:
    return cell.candidate.startswith(BASELINE)


def _by_cell(frame: Any) -> dict[Cell, Any]:
    return {Cell(row.benchmark, row.candidate, row.case): row for row in frame.itertuples()}


def _row(cell: Cell, base: Any, head: Any) -> Row:
    row = Row(cell, cell.suite.subject.name, _time(base), _time(head))
    if head is None or head.state == "not run":
        return replace(row, verdict=FAILED, reason="asv did not run it")
    if head.state == "failed":
        return replace(row, verdict=FAILED, reason=head.reason)
    if head.state == "skipped":
        # It may be that this machine never has it; what worked before must work.
        verdict = FAILED if row.base else ""
        return replace(row, verdict=verdict, reason=head.reason)
    return row if row.base else replace(row, verdict=NEW)


def _time(row: Any) -> Time | None:
    if row is None or row.state != "ok":
        return None
    value = float(row.lower_quartile)
    known = row.low == row.low and row.high == row.high
    return Time(value, *((row.low, row.high) if known else (value, value)))


def _verdict(row: Row, limit: float) -> Row:
    if row.base is None or row.head is None:
        return row
    machine = row.machine or 1.0
    # By the machine alone the base would have taken this.
    base = Time(*(machine * value for value in vars(row.base).values()))
    if _counts(base, row.head, limit):
        return replace(row, verdict=SLOWER)
    return replace(row, verdict=FASTER) if _counts(row.head, base, limit) else row


def _counts(low: Time, high: Time, limit: float) -> bool:
    """Beyond the ratio, the absolute change, and what the samples of each leave open."""
    apart = high.low > low.high
    return apart and high.value >= limit * low.value and high.value - low.value >= SECONDS


# --- for a comment ---


def markdown(comparison: Comparison, base: str, head: str) -> str:
    """A sentence, a table of what changed, and the rest to unfold."""
    rows = sorted(comparison.rows, key=lambda row: -(row.ratio or 0))
    changed = [row for row in rows if row.verdict in (SLOWER, FASTER, UNCLEAR)]
    same = [row for row in rows if row.verdict in (SAME, NEW)]
    parts = [
        f"**{_headline(comparison)}** from {base[:8]} to {head[:8]}.",
        f"Times are lower quartiles of interleaved rounds; the ratio is that of the candidate over "
        f"that of the baseline, whose code is the same at both commits. What changed by "
        f"{readable(SECONDS, 'time')} and a ratio of {comparison.limit:.2f}, {RATIO:.2f} times as "
        f"far as half of the baselines moved, was measured again in turns; the verdict has the "
        f"limits of that ratio.",
    ]
    if changed:
        parts.append(_table(changed))
    failed = [row for row in rows if row.verdict == FAILED]
    parts += [f"- not measured: `{row.cell.name}`: {row.reason}" for row in failed]
    if same:
        title = f"{len(same)} without a change"
        parts.append(f"<details><summary>{title}</summary>\n\n{_table(same)}\n\n</details>")
    absent = [row for row in rows if row.verdict == ""]
    if absent:
        parts.append(f"{len(absent)} cannot run on this machine at either commit.")
    return "\n\n".join(parts) + "\n"


def _headline(comparison: Comparison) -> str:
    counts = {
        verdict: len(comparison.cells(verdict)) for verdict in (SLOWER, FASTER, UNCLEAR, FAILED)
    }
    told = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    if not comparison.is_measured:
        told.insert(0, "nothing could be compared")
    elif comparison.is_noisy:
        told.insert(0, "the machine is too busy to tell")
    return ", ".join(told) or f"No change in {len(comparison.cells(SAME))} measurements"


def _table(rows: list[Row]) -> str:
    heading = "| descriptor | case | candidate | base | HEAD | baseline | ratio | verdict |"
    line = "|---|---|---|--:|--:|--:|--:|---|"
    return "\n".join([heading, line, *map(_line, rows)])


def _line(row: Row) -> str:
    def text(value: float | None, show: Callable[[float], str]) -> str:
        return "-" if value is None else show(value)

    times = [readable(time.value if time else None, "time") for time in (row.base, row.head)]
    ratios = [text(value, lambda ratio: f"{ratio:.2f}") for value in (row.machine, row.ratio)]
    verdict = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
    about = (row.subject, row.cell.case, f"`{row.cell.candidate}`", *times, *ratios, verdict)
    return f"| {' | '.join(about)} |"
