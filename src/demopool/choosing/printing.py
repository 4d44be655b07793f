"""An answer as plain text: the sentence, the table, what was not timed, and how it was measured.

The same on a terminal, through a pipe and for ``print(choice)``. The table takes the columns that
fit, the most important first, and cuts nothing off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..common.units import readable
from ..problem.vocabulary import Backend, State, Verdict
from ..trials.measures import ONCE, Where
from .rule import BUSY_CORES

if TYPE_CHECKING:
    from .answer_types import Choice, Ranked

WIDTH = 80
LONG_COMPILATION = 0.1
"""Seconds from which on it is told how much longer a first call takes."""

_GAP = "  "
# In the order they are shown, each with how early it is given a place.
_COLUMNS = {
    "candidate": 0,
    "median": 2,
    "total": 1,
    "x best": 1,
    "95 %": 3,
    "x limit": 4,
    "rounds": 7,
    "cores": 9,
    **{measure.heading: measure.rank for measure in ONCE.values()},
    "verdict": 0,
}
_LEFT = ("candidate", "verdict")
_LABELS = {
    State.OK: "not timed",
    State.TIMEOUT: "not timed",
    State.WRONG: "wrong",
    State.INACCURATE: "left out",
    State.ERROR: "failed",
}

LEGEND = (
    "x best: its time over that of the best in the same round, the middle of the",
    "rounds both ran, and the 95 % interval of that; the verdict rests on it. The",
    "medians are of each one's own rounds, under whatever load there was then.",
)
LEGEND_OF_TOTALS = (
    "total: the first call of a process, which compiles, and all others at the",
    "median. x best: its total over that of the best, by calls of the same round,",
    "and the 95 % interval of that; the verdict rests on it.",
)


LEGEND_OF_LIMIT = (
    "x limit: the median over the least time for this work, by the speed of matrix",
    "products and memory that was measured on this machine.",
)
LEGEND_OF_COLD = (
    "Caches were emptied before every timed call: features, tables and results come",
    "from memory. auto learns nothing of it: its calls are as warm as any.",
)


def lines(choice: Choice, width: int = WIDTH) -> Iterator[str]:
    """Whole sentences, which the caller wraps; the table is within ``width``."""
    case = choice.case
    sizes = f"{case.batch} x n={case.n} x d={case.d}, {case.dtype}"
    if case.descriptor.is_sketched:
        sizes += f", k={case.k}"
    job = "" if choice.calls is None else f", {_count(choice.calls, 'call')} in one process"
    caches = ", cold caches" if case.is_cold else ""
    yield f"{case.descriptor} of {sizes}, data on the {case.data}{caches}{job}"
    yield choice.sentence
    timed = [r for r in choice.rows if r.median_s is not None or r.at_least_s is not None]
    if timed:
        yield ""
        yield from table(timed, width, sizes_of_devices=_has_devices(timed))
        yield ""
    if any(row.ratio is not None and row.ratio != 1 for row in timed):
        yield from LEGEND if choice.calls is None else LEGEND_OF_TOTALS
    if any(row.limit_s is not None for row in timed):
        yield from LEGEND_OF_LIMIT
    if timed and case.is_cold:
        yield from LEGEND_OF_COLD
    compiled = [_compiling(row) for row in timed if (row.compile_s or 0.0) >= LONG_COMPILATION]
    if compiled:
        yield f"First calls take longer: {', '.join(compiled)}."
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in choice.rows:
        if row.median_s is None:
            label = _LABELS.get(row.state, "not tried")
            label = label if row.at_least_s is None else "stopped"
            what = str(row.candidate) if row.route else row.backend
            reasons.setdefault((label, row.reason or str(row.state)), []).append(what)
    for (label, reason), names in reasons.items():
        yield f"{label}: {', '.join(names)}: {reason}"
    if any(_is_remembered(row) for row in choice.rows):
        yield "What failed is not tried again until its code changes, or with --retry."
    yield _how(choice)
    for warning in choice.warnings:
        yield f"Warning: {warning}"


def _is_remembered(row: Ranked) -> bool:
    """Whether it failed in a way that the next race takes over."""
    failed = row.state in (State.WRONG, State.ERROR) and bool(row.route) and not row.untried
    return failed or (row.state is State.TIMEOUT and row.at_least_s is not None)


def _compiling(row: Ranked) -> str:
    every = {"shape": "for every new shape", "dtype": "for a dtype, in a process"}
    how = every.get(row.compiles_per or "", "in a process")
    return f"{row.candidate} by {readable(row.compile_s, 'time')} {how}"


def _how(choice: Choice) -> str:
    seconds = f"{choice.seconds:.0f} s in all"
    if choice.setup_s >= 1:
        seconds += f", {choice.setup_s:.0f} s of them to set up libraries"
    parts = [_count(choice.rounds, "round"), _count(choice.threads, "thread"), seconds]
    if choice.others_cores > BUSY_CORES:
        parts.append(f"others used {choice.others_cores:.1f} cores")
    if choice.reused:
        parts.append("from stored measurements")
    return f"{', '.join(parts)}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _has_devices(rows: Sequence[Ranked]) -> bool:
    return any(not Backend(row.backend).on_host for row in rows)


def table(rows: Sequence[Ranked], width: int, *, sizes_of_devices: bool) -> Iterator[str]:
    """As many columns as fit; the candidate and its verdict in any case, folded if they must be."""
    best = min((row.median_s for row in rows if row.ratio == 1 and row.median_s), default=None)
    cells = [_cells(row, best) for row in rows]
    empty = {n for n in _COLUMNS if all(row[n] in ("", "-") for row in cells)}
    if not sizes_of_devices:
        empty |= {m.heading for m in ONCE.values() if m.where is not Where.EVERYWHERE}
    names = [n for n in _COLUMNS if n not in empty]
    widths = {n: max(len(n), *(len(row[n]) for row in cells)) for n in names}
    shown: set[str] = set()
    for name in sorted(names, key=lambda n: _COLUMNS[n]):
        needed = sum(widths[n] + len(_GAP) for n in (*shown, name)) - len(_GAP)
        if needed <= width or _COLUMNS[name] == 0:
            shown.add(name)
    chosen = [name for name in names if name in shown]
    if sum(widths[n] + len(_GAP) for n in chosen) - len(_GAP) > width:
        for row in cells:
            yield row["candidate"]
            yield f"{_GAP}{row['x best']} {row['verdict']}"
        return

    def line(values: Sequence[str]) -> str:
        pairs = zip(chosen, values, strict=True)
        padded = [v.ljust(widths[n]) if n in _LEFT else v.rjust(widths[n]) for n, v in pairs]
        return _GAP.join(padded).rstrip()

    yield line(chosen)
    yield "-" * (sum(widths[n] + len(_GAP) for n in chosen) - len(_GAP))
    for row in cells:
        yield line([row[name] for name in chosen])


def _times(seconds: float | None, limit: float | None) -> str:
    if not seconds or not limit:
        return "-"
    return f"{seconds / limit:.1f}" if seconds < 10 * limit else f"{seconds / limit:.0f}"


def _cells(row: Ranked, best: float | None) -> dict[str, str]:
    ratio, interval = "-", "-"
    if row.ratio is not None:
        ratio, interval = f"{row.ratio:.2f}", ""
        if row.ratio != 1 and row.ratio_low is not None and row.ratio_high is not None:
            interval = f"{row.ratio_low:.2f}-{row.ratio_high:.2f}"
    elif row.at_least_s is not None and best:
        ratio = f"> {row.at_least_s / best:.1f}"
    median = readable(row.median_s, "time")
    if row.median_s is None:
        median = f"> {readable(row.at_least_s, 'time')}"
    return {
        "candidate": str(row.candidate),
        "median": median,
        "total": readable(row.total_s, "time"),
        "x best": ratio,
        "95 %": interval,
        "x limit": _times(row.median_s, row.limit_s),
        "rounds": str(row.rounds),
        "cores": "-" if row.cores is None else f"{row.cores:.1f}",
        **{m.heading: readable(getattr(row, m.name), m.quantity) for m in ONCE.values()},
        "verdict": str(row.verdict or Verdict.UNKNOWN),
    }
