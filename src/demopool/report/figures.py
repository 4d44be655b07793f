"""The pictures of the report, each only where there is something to show."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demopool import crossover, history, pictures
from demopool.crossover import Cell
from demopool.errors import DemopoolError
from demopool.history import plot
from demopool.profiles import Profile
from demopool.vocabulary import DESCRIPTORS, Verdict

from .data import Fact


class Figure(NamedTuple):
    """``made`` is of Matplotlib, or ``png`` the picture itself."""

    name: str
    title: str
    says: str
    made: Any = None
    png: bytes = b""


def all_of(facts: Sequence[Fact], profile: Profile, frame: Any) -> Iterator[Figure]:
    for descriptor in DESCRIPTORS:
        of_this = [f for f in facts if f.case.descriptor == descriptor]
        for over, fixed in (("n", "d"), ("d", "n")):
            yield from _scaling(of_this, descriptor, over, fixed)
        yield from _map(profile, descriptor)
        yield from _pareto(of_this, descriptor)
    yield from _history(frame)


def _scaling(facts: Sequence[Fact], descriptor: str, over: str, fixed: str) -> Iterator[Figure]:
    """Time over n or over d, a line for every candidate, the other size being the commonest."""
    timed = [f for f in facts if f.measure == "call_s" and f.case.dtype == "float32"]
    groups: dict[tuple[int, int], list[Fact]] = {}
    for f in timed:
        groups.setdefault((f.case.batch, getattr(f.case, fixed)), []).append(f)
    widest = max(
        groups.items(), key=lambda item: len({getattr(f.case, over) for f in item[1]}), default=None
    )
    if widest is None or len({getattr(f.case, over) for f in widest[1]}) < 3:
        return
    (batch, size), chosen = widest
    figure, axes = _panel()
    names = sorted({(f.machine, f.candidate) for f in chosen})
    several = len({machine for machine, _ in names}) > 1
    for i, (machine, candidate) in enumerate(names):
        points = sorted(
            {
                getattr(f.case, over): f.value
                for f in chosen
                if (f.machine, f.candidate) == (machine, candidate)
            }.items()
        )
        label = f"{candidate} ({machine})" if several else candidate
        style = {"color": pictures.COLOURS[i % len(pictures.COLOURS)], "label": label}
        dashes = "--" if i >= len(pictures.COLOURS) else "-"
        axes.plot(*zip(*points, strict=True), marker="o", ms=4, lw=1.5, ls=dashes, **style)
    axes.set(xlabel=over, ylabel="seconds a call")
    _logarithmic(axes)
    _legend(figure, len(names))
    yield Figure(
        f"{descriptor}-over-{over}",
        f"{descriptor}: time over {over}",
        f"{_images(batch)}, {fixed} = {size}, float32; both axes logarithmic.",
        figure,
    )


def _map(profile: Profile, descriptor: str) -> Iterator[Figure]:
    decided = [d for d in profile.decided if d.case.descriptor == descriptor]
    batches = [d.case.batch for d in decided]
    batch = max(set(batches), key=batches.count, default=0)
    cells = []
    for d in decided:
        if d.case.batch != batch or d.case.dtype != "float32":
            continue
        times = {(m.backend, m.route): m.seconds for m in d.candidates}
        own = times.pop((d.backend, d.route), None)
        lead = min(times.values()) / own if own and times else None
        cells.append(Cell(d.case.n, d.case.d, Verdict(d.state), d.backend, d.route, lead))
    if len({c.n for c in cells}) * len({c.d for c in cells}) < 4:
        return
    title = f"{descriptor}: fastest by n and d"
    says = (
        f"{batch} image{'s' if batch > 1 else ''}, float32, as measured by choose on this machine."
    )
    yield Figure(f"{descriptor}-map", title, says, crossover.draw(cells, title))


def _pareto(facts: Sequence[Fact], descriptor: str) -> Iterator[Figure]:
    """Time against memory of every candidate on the case that most candidates have both of."""
    points: dict[Any, dict[tuple[str, str], dict[str, float]]] = {}
    for f in facts:
        if f.measure in ("call_s", "peak_host_bytes"):
            of_case = points.setdefault(f.case, {}).setdefault((f.machine, f.candidate), {})
            of_case[f.measure] = f.value
    complete = {
        case: {name: both for name, both in of.items() if len(both) == 2}
        for case, of in points.items()
    }
    case = max(complete, key=lambda c: (len(complete[c]), c.batch * c.n * c.d), default=None)
    if case is None or len(complete[case]) < 3:
        return
    figure, axes = _panel()
    several = len({machine for machine, _ in complete[case]}) > 1
    for i, ((machine, candidate), both) in enumerate(sorted(complete[case].items())):
        x, y = both["call_s"], max(both["peak_host_bytes"], 1.0) / 1e6
        others = [o for (on, c), o in complete[case].items() if on == machine and c != candidate]
        beaten = any(
            o["call_s"] <= both["call_s"] and o["peak_host_bytes"] <= both["peak_host_bytes"]
            for o in others
        )
        colour = pictures.COLOURS[i % len(pictures.COLOURS)]
        face = "none" if beaten else colour
        label = f"{candidate} ({machine})" if several else candidate
        axes.plot([x], [y], "o", ms=9, color=colour, markerfacecolor=face, label=label, ls="")
    axes.set(xlabel="seconds a call", ylabel="MB beyond the input")
    _logarithmic(axes)
    _legend(figure, len(complete[case]))
    yield Figure(
        f"{descriptor}-pareto",
        f"{descriptor}: time against memory",
        f"{case.batch} x n={case.n} x d={case.d}, {case.dtype}. Filled: nothing is both faster and "
        "leaner.",
        figure,
    )


def _history(frame: Any) -> Iterator[Figure]:
    if frame is None or frame.commit.nunique() < 2:
        return
    frame = frame[frame.commit.notna()]
    lines = [one for one in history.series(frame) if one.quantity == "time"]
    found = {one: history.steps(one) for one in lines}
    order = history.commits(frame)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.png"
        try:
            plot.draw(lines, order, found, path)
        except DemopoolError:
            return
        yield Figure(
            "history",
            "Time over commits",
            f"{len(order)} commits, as asv measured them; demopool history has the steps.",
            png=path.read_bytes(),
        )


def _images(count: int) -> str:
    return "one image" if count == 1 else f"{count} images"


def _panel() -> tuple[Any, Any]:
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=(7.2, 4.6), layout="constrained", dpi=110)
    axes = figure.add_subplot()
    axes.grid(True, which="major", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _logarithmic(axes: Any) -> None:
    """Plain numbers at the ticks; between powers of ten only where there are few of those."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis, set_scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        set_scale("log")
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1.0,) if high > 30 * low else (1.0, 2.0, 5.0)))
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(NullFormatter())


def _legend(figure: Any, count: int) -> None:
    columns = 2 if count <= 12 else 3
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
