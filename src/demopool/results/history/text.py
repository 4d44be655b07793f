"""The history as text: a table of series, and a sentence for every regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ...common.units import readable
from .analysis import RATIO, Regression, Series, Step

SHOWN = 20
"""Lines of the table, unless --all is given."""
MAX_STEPS = 4
"""In a cell of the table, the newest; the JSON has them all."""
HASH = 8
WIDE = 110
"""Columns of a terminal from which on a series fits on one line."""

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.,-~=*#"
_GAPS, _PLAIN_GAPS = {"failed": "×", "skipped": "·"}, {"failed": "x", "skipped": "'"}


@dataclass(frozen=True)
class Line:
    """A series with its steps, and whether it has an open regression."""

    series: Series
    steps: list[Step]
    open: bool

    @property
    def weight(self) -> tuple[bool, bool, float]:
        """The most informative first: open regressions, then large steps, then large changes."""
        return self.open, bool(self.steps), max((s.size for s in self.steps), default=self.drift)

    @property
    def drift(self) -> float:
        values = [value for value in self.series.values if value]
        return max(values[-1] / values[0], values[0] / values[-1]) if values else 0.0


def show(lines: Sequence[Line], count: int, show_all: bool, screen: Console) -> None:
    """The table of the most informative series, or of all, and how many there are."""
    ranked = sorted((line for line in lines if line.series.values), key=_rank)
    stepped = [line for line in ranked if line.steps]
    shown = ranked if show_all else (stepped or ranked)[: SHOWN if count > 1 else 0]
    if shown:
        screen.print(_table(shown, screen))
    machines = {line.series.machine for line in lines}
    screen.print(
        f"{_count(len(ranked), 'series', 'series')} over {_count(count, 'commit')} on "
        f"{_count(len(machines), 'machine')}; {len(stepped)} with a step."
    )
    left, left_stepped = len(ranked) - len(shown), max(0, len(stepped) - len(shown))
    if left_stepped:
        screen.print(f"... and {left_stepped} more with a step; --all shows them.")
    if left - left_stepped:
        screen.print(f"... and {left - left_stepped} more series without a step; --all shows them.")
    if count == 1:
        screen.print("One commit has no history: measure another to compare with.")


def _table(shown: Sequence[Line], screen: Console) -> Table:
    """A line per series where there is room for it; otherwise two, one under the other."""
    wide = screen.width >= WIDE
    plain = not screen.encoding.lower().startswith("utf")
    several = len({_place(line.series) for line in shown}) > 1
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1 if wide else 0, 0, 1))
    headings = ["subject", "measure", "case", "candidate"] if wide else ["series"]
    for heading in headings + ["machine"] * (several and wide):
        table.add_column(heading, overflow="fold")
    for heading in ["first", "last"] if wide else ["first\nlast"]:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("trend", no_wrap=True)
    table.add_column("steps", no_wrap=True)
    for line in shown:
        one = line.series
        ends = [readable(value, one.quantity) for value in (one.values[0], one.values[-1])]
        case, place = one.case or "-", [_place(one)] * several
        steps = [_step(step) for step in line.steps] or ["-"]
        ratio = f"{one.values[-1] / one.values[0]:.3g}" if one.values[0] else "-"
        if wide:
            what = [_subject(one), one.measure, case, one.name, *place, *ends]
        else:
            about = f"{_subject(one)} {one.measure}"
            what = [f"{about}\n  {', '.join([one.name, case, *place])}", "\n".join(ends)]
        reach = 24 if wide else 10
        table.add_row(*what, ratio, trend(one, plain, reach), "\n".join(steps[-MAX_STEPS:]))
    return table


def _rank(line: Line) -> list[float]:
    return [-float(part) for part in line.weight]


def sentences(found: Sequence[Regression]) -> list[str]:
    """One for what the same commit did to the same measure, of however many candidates."""
    groups: dict[tuple[Any, ...], list[Regression]] = {}
    for regression in found:
        one = regression.series
        key = (_place(one), _subject(one), one.measure, regression.commit, regression.last_good)
        groups.setdefault((*key, regression.state, regression.fixed_by), []).append(regression)
    if not groups:
        return ["No regression found."]
    found_sentences = []
    for (place, subject, measure, commit, good, state, fixed), group in groups.items():
        ratios = [regression.ratio for regression in group if regression.ratio is not None]
        ends = [f"{end(ratios):.3g}" for end in (min, max)] if ratios else []
        factor = f"{' to '.join(dict.fromkeys(ends))} times" if ends else "from 0"
        which = [
            f"{r.series.name} on {r.series.case or '-'} "
            f"({readable(r.before, r.series.quantity)} to {readable(r.after, r.series.quantity)})"
            for r in group[:6]
        ]
        more = f", and {len(group) - 6} more" if len(group) > 6 else ""
        outcome = f"fixed by {fixed[:HASH]}" if fixed else "still there"
        title = (
            "No regression, the machine"
            if state == "machine"
            else f"{state.capitalize()} regression"
        )
        found_sentences.append(
            f"{title}: with {commit[:HASH]} {subject} {measure} went up "
            f"{factor}, {outcome}; last good {good[:HASH]}; {place}: {', '.join(which)}{more}."
            + _warnings(group)
        )
    return found_sentences


def _warnings(group: Sequence[Regression]) -> str:
    """What speaks against blaming the commit."""
    warnings = []
    if any(regression.software_changed for regression in group):
        warnings.append("The machine or its software is not the same before and after.")
    moved = [r.baseline_ratio for r in group if r.baseline_ratio and r.baseline_ratio >= RATIO]
    timed = [r for r in group if r.series.quantity == "time"]
    if moved:
        warnings.append(
            f"The baseline, whose code is the same for all commits, went up {max(moved):.3g} times."
        )
    elif any(r.baseline_ratio is None for r in timed):
        warnings.append("The baseline was not measured with it, so it may have been the machine.")
    if any(r.state == "open" and r.measured == 1 for r in timed):
        warnings.append("Only one commit shows it: measure again before blaming it.")
    return "".join(f" {warning}" for warning in warnings)


def failures(lines: Sequence[Series]) -> list[str]:
    """What has no value any more because it failed."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for one in lines:
        asked = [point for point in one.points if point.state != "not run"]
        if asked and asked[-1].state == "failed":
            last = asked[-1]
            groups.setdefault((last.commit, last.reason or "no reason is stored"), []).append(one)
    return [
        f"{_count(len(group), 'series', 'series')} failed at the newest commit {commit[:HASH]} "
        f"({group[0].name}, {_subject(group[0])} {group[0].measure}, ...): {reason}."
        for (commit, reason), group in groups.items()
    ]


def _subject(one: Series) -> str:
    """``power`` is a descriptor and an operation."""
    subject = one.subject or one.benchmark
    return f"{one.kind} {subject}" if one.kind in ("operation", "gradient") else subject


def _place(one: Series) -> str:
    threads = [] if one.threads is None else [_count(one.threads, "thread")]
    return ", ".join([one.machine or "-", *threads])


def _step(step: Step) -> str:
    factor = "from 0" if step.ratio is None else f"x{step.ratio:.3g}"
    return f"{factor} at {step.commit[:HASH]}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def trend(one: Series, plain: bool, width: int) -> str:
    """The newest values as a line of characters, with a mark where one failed or was skipped."""
    bars, gaps = (_PLAIN_BARS, _PLAIN_GAPS) if plain else (_BARS, _GAPS)
    points = one.points[-width:]
    values = [point.value for point in points if point.value is not None]
    if not values:
        return ""
    # At least half of the lowest value is the full height, so that noise looks flat.
    low, high = min(values), max(max(values), min(values) * 1.5)
    reach = (high - low) or 1.0
    return "".join(
        bars[round((point.value - low) / reach * (len(bars) - 1))]
        if point.value is not None
        else gaps.get(point.state, " ")
        for point in points
    )
