"""The pictures of the report, each only where there is something to show.

One origin to a picture: what another machine, another number of threads or asv measured is drawn
in another one. Legends are text beside the picture, so that they wrap where a page is narrow; the
PNG has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any
from zlib import crc32

import numpy as np

from ..choosing import crossover, rule
from ..common.files import UNREADABLE
from ..common.units import AXES, readable
from ..errors import DemopoolError
from ..problem.cases import Case
from ..problem.vocabulary import DESCRIPTORS, Descriptor
from ..results import history
from ..results.history import repository
from ..trials.measures import MEASURES
from . import crossover_map, history_plot, pictures
from .data import Fact, Gathered, Origin, ReportedRace, plain
from .panels import WIDTH, Figure, logarithmic, panel
from .pictures import INK

CLIPPED = 6.0
"""The axis ends at this multiple of the best; longer bars are cut there and marked."""

MAX_BARS = 14

PAGE = 4096.0
"""Bytes: less memory than a page is not seen, and 0 has no place on a logarithmic axis."""

_FEWEST = 3
"""Sizes in a curve."""

_HISTORY_PANELS = {"time": 8, "memory": 4}
_LABELS = {"call_s": "ms a call", "peak_host_bytes": "MB beyond the input"}
_WORDS = {"call_s": "time", "peak_host_bytes": "memory"}


def of_job(job: ReportedRace) -> Iterator[Figure]:
    """A bar for every candidate of a race, with its interval."""
    timed = [row for row in job.choice.rows if row.median_s is not None]
    rows = timed[:MAX_BARS]
    if not rows:
        return
    with pictures.drawing():
        scale, unit = _unit(min(row.median_s or 1.0 for row in rows))
        figure, axes = panel(0.75 + 0.24 * len(rows))
        values = [(row.median_s or 0.0) * scale for row in rows]
        longest = max(_or(row.high_s, row.median_s or 0.0) * scale for row in rows)
        end = min(longest, CLIPPED * min(values))
        for y, (row, value) in enumerate(zip(rows, values, strict=True)):
            look = pictures.look(str(row.candidate))
            low, high = (_or(v, row.median_s or 0.0) * scale for v in (row.low_s, row.high_s))
            # Cut where the axis ends: what is only hidden there makes a page wider than it is.
            axes.barh(y, min(value, end), height=0.62, color=look.colour)
            if row.low_s is not None and value <= end:
                shown = [[value - low], [min(high, end) - value]]
                axes.errorbar(value, y, xerr=shown, color=INK, lw=1, capsize=2.5)
            label = readable(row.median_s, "time") + (" »" if value > end else "")
            beside = {"xytext": (4, 0), "textcoords": "offset points", "annotation_clip": False}
            axes.annotate(label, (min(high, end), y), va="center", fontsize=8, **beside)
        axes.set_yticks(range(len(rows)), [str(row.candidate) for row in rows], fontsize=8)
        axes.invert_yaxis()
        axes.set(xlabel=unit, xlim=(0, end))
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
    title = f"{_sizes(job.choice.case)}: {_origin(job.origin)}"
    says = "Median of the rounds' lowest calls with its 95 % interval"
    if any(row.low_s is None for row in rows):
        says += f"; fewer than {rule.FEWEST} rounds have none"
    says += "." if len(rows) == len(timed) else f"; the best {len(rows)} of {len(timed)}."
    yield Figure(_file_name(job), title, says, figure)


def all_of(found: Gathered) -> Iterator[Figure]:
    """Everything but the bars of the jobs."""
    for descriptor in DESCRIPTORS:
        of_this = [f for f in found.facts if f.case.descriptor == descriptor]
        for over in ("n", "d", "batch"):
            for measure in _LABELS:
                yield from _numbered(_scaling(of_this, descriptor, over, measure))
        yield from _numbered(_maps(found.jobs, descriptor))
        for measure in ("peak_host_bytes", "error"):
            yield from _numbered(_against_time(of_this, descriptor, measure))
    yield from _history(found)


def _numbered(figures: Iterator[Figure]) -> Iterator[Figure]:
    """The first has the plain name; those of other origins a number."""
    for number, figure in enumerate(figures, start=1):
        yield figure if number == 1 else figure._replace(name=f"{figure.name}-{number}")


def _scaling(facts: Sequence[Fact], descriptor: str, over: str, measure: str) -> Iterator[Figure]:
    """Of every origin and dtype the sweeps with most sizes, a line for every candidate.

    Of many such sweeps, as a map has them, those at the smallest and at the largest other sizes.
    """
    sweeps: dict[tuple[Origin, str], dict[tuple[Any, ...], list[Fact]]] = {}
    for f in facts:
        if f.measure == measure and f.value > 0:
            of_origin = sweeps.setdefault((f.origin, f.case.dtype), {})
            of_origin.setdefault(_fixed(f.case, over), []).append(f)
    for (origin, _), of_origin in sweeps.items():
        most = max(len(_at(group, over)) for group in of_origin.values())
        if most < _FEWEST:
            continue
        widest = [group for group in of_origin.values() if len(_at(group, over)) == most]
        widest.sort(key=lambda group: _size_beside(group[0].case, over))
        for group in widest[:1] + widest[1:][-1:]:
            yield _curves(group, origin, descriptor, over, measure)


def _curves(
    facts: Sequence[Fact], origin: Origin, descriptor: str, over: str, measure: str
) -> Figure:
    """One sweep, with the slope of every line."""
    scale = _scale(measure)
    with pictures.drawing():
        figure, axes = panel()
        legend = []
        for candidate in sorted({f.candidate for f in facts}):
            look = pictures.look(candidate)
            own = sorted(
                (f for f in facts if f.candidate == candidate),
                key=lambda f: float(getattr(f.case, over)),
            )
            x = [float(getattr(f.case, over)) for f in own]
            y = [f.value * scale for f in own]
            whiskers = [
                [(f.value - _or(f.low, f.value)) * scale for f in own],
                [(_or(f.high, f.value) - f.value) * scale for f in own],
            ]
            style = {"lw": 1.3, "ms": 4, "elinewidth": 1, "capsize": 2}
            axes.errorbar(x, y, yerr=np.maximum(whiskers, 0.0), **look.line, **style)
            slope = fitted_slope(x, y)
            fitted = "" if slope is None else f": {_WORDS[measure]} ~ {over}^{slope:.2f}"
            legend.append((look, f"{candidate}{fitted}"))
        axes.set(xlabel=over, ylabel=_LABELS[measure])
        logarithmic(axes)
    case = facts[0].case
    others = {"n": "n", "d": "d", "batch": "images"}
    fixed = [f"{word} = {getattr(case, o)}" for o, word in others.items() if o != over]
    if Descriptor(descriptor).is_sketched:
        fixed.append(f"k = {case.k}")
    return Figure(
        f"{descriptor}-{'' if measure == 'call_s' else 'memory-'}over-{over}",
        f"{descriptor}: {_WORDS[measure]} over {over}",
        f"{', '.join(fixed)}, {case.dtype}{_caches(case)}; {_origin(origin)}. Slopes are least "
        "squares through all points of a line, both axes logarithmic; whiskers are intervals.",
        figure,
        tuple(legend),
    )


def fitted_slope(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The exponent s of y ~ x^s by least squares of logarithms; None of fewer than three sizes."""
    if len(set(x)) < _FEWEST:
        return None
    logs = np.log(np.asarray(x)) - np.mean(np.log(x))
    return float(logs @ np.log(y) / (logs @ logs))


def _maps(jobs: Sequence[ReportedRace], descriptor: str) -> Iterator[Figure]:
    """Where the winner changes: of every origin and dtype the batch with most cells."""
    grids: dict[tuple[Origin, str], dict[tuple[Any, ...], list[ReportedRace]]] = {}
    for job in jobs:
        case = job.choice.case
        if case.descriptor == descriptor and job.choice.backend is not None:
            fixed = tuple(v for k, v in sorted(asdict(case).items()) if k not in ("n", "d"))
            grids.setdefault((job.origin, case.dtype), {}).setdefault(fixed, []).append(job)
    for (origin, dtype), of_origin in grids.items():
        widest = max(of_origin.values(), key=len)
        cells = [crossover.cell(job.choice) for job in widest]
        ns, ds = {cell.n for cell in cells}, {cell.d for cell in cells}
        if len(ns) < 2 or len(ds) < 2:
            continue
        with pictures.drawing():
            figure = crossover_map.draw(cells, "", size=(WIDTH, 1.0 + 0.5 * len(ns)))
        names = sorted({cell.name for cell in cells})
        looks = [pictures.look(name)._replace(marker="s", stroke="") for name in names]
        of = widest[0].choice.case
        yield Figure(
            f"{descriptor}-map",
            f"{descriptor}: fastest by n and d",
            f"{_images(of.batch)}, {dtype}{_caches(of)}; {_origin(origin)}. 1.3x: speed-up over "
            "the runner-up; =: a tie, recommended; ?: probably.",
            figure,
            tuple(zip(looks, names, strict=True)),
        )


def _against_time(facts: Sequence[Fact], descriptor: str, measure: str) -> Iterator[Figure]:
    """Memory, or the error, against the time of every candidate on the job that has most."""
    points: dict[tuple[Origin, Case], dict[str, dict[str, Fact]]] = {}
    for f in facts:
        if f.measure == "peak_host_bytes":
            f = f._replace(value=max(f.value, PAGE))
        if f.measure in ("call_s", measure) and f.value > 0:
            both = points.setdefault((f.origin, f.case), {}).setdefault(f.candidate, {})
            both[f.measure] = f
    chosen: dict[Origin, tuple[Case, dict[str, dict[str, Fact]]]] = {}
    for (origin, case), of in points.items():
        complete = {name: both for name, both in of.items() if len(both) == 2}
        size = (len(complete), case.batch * case.n * case.d)
        before = chosen.get(origin)
        if len(complete) >= _FEWEST and (
            before is None or size > (len(before[1]), before[0].batch * before[0].n * before[0].d)
        ):
            chosen[origin] = (case, complete)
    scale, unit = _scale(measure), _LABELS.get(measure) or MEASURES[measure].unit
    for origin, (case, complete) in chosen.items():
        with pictures.drawing():
            figure, axes = panel()
            legend = []
            for name, both in sorted(complete.items()):
                time, other = both["call_s"], both[measure]
                beaten = any(
                    o["call_s"].value <= time.value and o[measure].value <= other.value
                    for n, o in complete.items()
                    if n != name
                )
                look = pictures.look(name)
                face = "none" if beaten else look.colour
                seconds = _scale("call_s")
                whiskers = [
                    [max(time.value - _or(time.low, time.value), 0.0) * seconds],
                    [max(_or(time.high, time.value) - time.value, 0.0) * seconds],
                ]
                style = {"ms": 7, "markerfacecolor": face, "elinewidth": 1, "capsize": 2}
                line = {**look.line, "linestyle": "none"}
                place = ([time.value * seconds], [other.value * scale])
                axes.errorbar(*place, xerr=whiskers, **line, **style)
                legend.append((look._replace(stroke=""), name))
            axes.set(xlabel=_LABELS["call_s"], ylabel=unit)
            logarithmic(axes)
        what = "memory" if measure != "error" else "error"
        better = "leaner" if measure != "error" else "more accurate"
        yield Figure(
            f"{descriptor}-{'pareto' if measure != 'error' else 'error'}",
            f"{descriptor}: {what} against time",
            f"{_sizes(case)}; {_origin(origin)}. Filled: nothing is both faster and {better}.",
            figure,
            tuple(legend),
        )


def _history(found: Gathered) -> Iterator[Figure]:
    """A picture per panel of ``demopool history``, those with large steps first, then memory.

    As the command has it: the commits that led to HEAD, in git's order.
    """
    frame = found.frame
    if frame is None or frame.commit.nunique() < 2:
        return
    try:
        place = repository.place(frame[frame.commit.notna()])
        lines = history.series(place.frame, place.order)
        order = history.commits(place.frame, place.order)
        drawn: list[tuple[str, list[str], Any]] = []
        with pictures.drawing():
            for quantity, most in _HISTORY_PANELS.items():
                of_this = [one for one in lines if one.quantity == quantity]
                steps = {one: history.steps(one) for one in of_this}
                drawn += history_plot.panels(of_this, order, steps, most=most, width=WIDTH)
    except (DemopoolError, *UNREADABLE) as problem:
        found.notes.append(plain(f"The history was not drawn: {problem}"))
        return
    for number, (title, names, figure) in enumerate(drawn, start=1):
        yield Figure(
            "history" if number == 1 else f"history-{number}",
            plain(title),
            f"{len(order)} commits, as asv measured them; hollow: on a busy machine. "
            "demopool history has the steps.",
            figure,
            tuple((pictures.look(name), plain(name)) for name in names),
        )


def _size_beside(case: Case, over: str) -> float:
    """Values of all images, per unit of what a curve is drawn over."""
    return case.batch * case.n * case.d / float(getattr(case, over))


def _at(group: Sequence[Fact], over: str) -> set[int]:
    """The sizes that the candidate with most of them has."""
    sizes: dict[str, set[int]] = {}
    for f in group:
        sizes.setdefault(f.candidate, set()).add(getattr(f.case, over))
    return max(sizes.values(), key=len)


def _fixed(case: Case, over: str) -> tuple[Any, ...]:
    """All that must be the same in a curve."""
    fields = asdict(case)
    if not case.descriptor.is_sketched:
        del fields["k"]
    return tuple(value for name, value in fields.items() if name != over)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _file_name(job: ReportedRace) -> str:
    """Has the sizes; the digest distinguishes what they leave out."""
    case, origin = job.choice.case, job.origin
    digest = crc32(repr((job.fingerprint, origin, case)).encode())
    sizes = f"b{case.batch}-n{case.n}-d{case.d}-{case.dtype}-t{origin.threads}"
    return f"job-{case.descriptor}-{sizes}-{digest:08x}"


def _images(count: int) -> str:
    return "one image" if count == 1 else f"{count} images"


def _sizes(case: Case) -> str:
    k = f", k={case.k}" if case.descriptor.is_sketched else ""
    return (
        f"{case.descriptor} of {case.batch} x n={case.n} x d={case.d}, {case.dtype}{k}"
        f"{_caches(case)}"
    )


def _caches(case: Case) -> str:
    return ", cold caches" if case.is_cold else ""


def _origin(origin: Origin) -> str:
    return f"machine {origin}"


def _unit(seconds: float) -> tuple[float, str]:
    unit = readable(seconds, "time").rpartition(" ")[2]
    return {"s": (1.0, "seconds"), "ms": (1e3, "milliseconds")}.get(unit, (1e6, "microseconds"))


def _scale(measure: str) -> float:
    """What a value is multiplied by on an axis."""
    return AXES.get(MEASURES[measure].quantity, (1.0, ""))[0]
