"""The history as a table of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ...common.units import readable
from .changes import Step
from .points import Series

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
    """A series with its steps, and whether it has a regression that stands or is suspected."""

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
        f"{count_of(len(ranked), 'series', 'series')} over {count_of(count, 'commit')} on "
        f"{count_of(len(machines), 'machine')}; {len(stepped)} with a step."
    )
    left, left_stepped = len(ranked) - len(shown), max(0, len(stepped) - len(shown))
    if left_stepped:
        screen.print(f"... and {left_stepped} more with a step; --all shows them.")
    if left - left_stepped:
        screen.print(f"... and {left - left_stepped} more series without a step; --all shows them.")
    busy = [p.busy for line in ranked for p in line.series.points if p.value is not None]
    if any(busy):
        screen.print(
            f"{sum(busy)} of {count_of(len(busy), 'value')} were measured on a busy machine; "
            "a picture (--png) has them hollow."
        )
    if count == 1:
        screen.print("One commit has no history: measure another to compare with.")


def _table(shown: Sequence[Line], screen: Console) -> Table:
    """A line per series where there is room for it; otherwise two, one under the other."""
    wide = screen.width >= WIDE
    plain = not screen.encoding.lower().startswith("utf")
    several = len({place_of(line.series) for line in shown}) > 1
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
        case, place = one.case or "-", [place_of(one)] * several
        steps = [_step(step) for step in line.steps] or ["-"]
        ratio = f"{one.values[-1] / one.values[0]:.3g}" if one.values[0] else "-"
        if wide:
            what = [subject_of(one), one.measure, case, one.name, *place, *ends]
        else:
            about = f"{subject_of(one)} {one.measure}"
            what = [f"{about}\n  {', '.join([one.name, case, *place])}", "\n".join(ends)]
        reach = 24 if wide else 10
        table.add_row(*what, ratio, trend(one, plain, reach), "\n".join(steps[-MAX_STEPS:]))
    return table


def _rank(line: Line) -> list[float]:
    return [-float(part) for part in line.weight]


def subject_of(one: Series) -> str:
    """``power`` is a descriptor and an operation."""
    subject = one.subject or one.benchmark
    return f"{one.kind} {subject}" if one.kind in ("operation", "gradient") else subject


def place_of(one: Series) -> str:
    threads = [] if one.threads is None else [count_of(one.threads, "thread")]
    return ", ".join([one.machine or "-", *threads])


def _step(step: Step) -> str:
    factor = "from 0" if step.ratio is None else f"x{step.ratio:.3g}"
    return f"{factor} at {step.commit[:HASH]}"


def count_of(number: int, one: str, many: str | None = None) -> str:
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
