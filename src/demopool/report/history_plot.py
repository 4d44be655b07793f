"""The history as a picture: a small panel per subject, measure and case, a line per candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, sqrt
from pathlib import Path
from typing import Any

from ..common.units import AXES
from ..errors import DemopoolError, InvalidInput
from ..results.history import Point, Series, Step
from . import pictures

PANELS = 12
"""More in one picture cannot be read; those with steps come first."""

_WIDTH, _PANEL_HEIGHT, _DOTS_PER_INCH = 9.0, 2.5, 150
_LABELS = 14
_MARKS = 4
"""Steps of a panel that are named, the largest; a line marks every other one."""
_MARK_SIZE = 6.5
_AXES_WIDTH = 0.7
"""Inches beside a panel for its axis."""
_GREY = "0.35"
_CROSS: dict[str, Any] = {"marker": "x", "markersize": 4.5, "linestyle": "none"}
_BUSY: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linestyle": "none"}
_HOLLOW = {"markerfacecolor": "white", "markeredgewidth": 0.9}
_HASH = 7

Steps = Mapping[Series, Sequence[Step]]
_Panels = dict[tuple[Any, ...], list[Series]]


def draw(lines: Sequence[Series], order: Sequence[str], found: Steps, file: Path) -> str | None:
    """Write a PNG, whole or not at all; a sentence if it had to leave panels out."""
    figure_class = _figure_class()
    panels, shown = _chosen(lines, found, PANELS)
    if not panels:
        raise InvalidInput(f"{file} is not written: there is no measured value to draw.")
    drawn = [one for group in shown.values() for one in group]
    points = [point for one in drawn for point in one.points]
    signs = {}
    if any(point.state == "failed" for point in points):
        signs["failed"] = _CROSS
    if any(_is_hollow(one, point) for one in drawn for point in one.points):
        signs["on a busy machine"] = _BUSY | _HOLLOW
    styles = _styles(drawn)

    columns = min(2, len(shown))
    rows = ceil(len(shown) / columns)
    key_rows = ceil((len(styles) + len(signs)) / 3)
    height = rows * _PANEL_HEIGHT + 0.25 * key_rows + 0.3
    figure = figure_class(figsize=(_WIDTH, height), dpi=_DOTS_PER_INCH, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, group in zip(axes, shown.values(), strict=False):
        _draw_panel(panel, group, order, found, styles, _WIDTH / columns)
    for panel in axes[len(shown) :]:
        panel.set_axis_off()
    _draw_key(figure, styles, signs)
    pictures.save(figure, file)
    if len(panels) == len(shown):
        return None
    return (
        f"The picture has {len(shown)} of {len(panels)} panels, those with large steps first; "
        "--subject, --measure and --case choose others."
    )


def panels(
    lines: Sequence[Series], order: Sequence[str], found: Steps, *, most: int, width: float
) -> Iterator[tuple[str, list[str], Any]]:
    """Every panel as a figure of its own, without a key: its title, the names in it, the figure."""
    figure_class = _figure_class()
    for group in _chosen(lines, found, most)[1].values():
        figure = figure_class(figsize=(width, _PANEL_HEIGHT), dpi=160, layout="constrained")
        panel = figure.subplots()
        styles = _styles(group)
        _draw_panel(panel, group, order, found, styles, width)
        panel.set_title("")
        yield _title(group[0]).replace("\n", ", "), list(styles), figure


def _chosen(lines: Sequence[Series], found: Steps, most: int) -> tuple[_Panels, _Panels]:
    """All panels, and those to show."""
    panels: _Panels = {}
    # A single value has no history: drawn only where there is nothing else.
    fewest = 2 if any(len(one.values) > 1 for one in lines) else 1
    for one in lines:
        if len(one.values) >= fewest:
            panels.setdefault(_panel(one), []).append(one)
    chosen = sorted(panels, key=lambda key: -max(_weight(one, found) for one in panels[key]))
    return panels, {key: panels[key] for key in panels if key in chosen[:most]}


def _figure_class() -> Any:
    try:
        # The class and not pyplot: no window system is asked for, no state is left behind.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DemopoolError(
            "A picture needs matplotlib, which is not installed: "
            "pip install '.[report]' (in a clone)"
        ) from None

    def make(**options: Any) -> Any:
        figure = Figure(**options)
        FigureCanvasAgg(figure)
        return figure

    return make


def _panel(one: Series) -> tuple[Any, ...]:
    own = () if one.candidate else (one.benchmark,)
    where = (one.machine, one.environment, one.threads)
    return (*where, one.kind, one.subject, one.measure, one.case, *own)


def _weight(one: Series, found: Steps) -> float:
    return max((step.size for step in found.get(one, ())), default=0.0)


def _styles(lines: Sequence[Series]) -> dict[str, dict[str, Any]]:
    """The same look for a candidate in every panel."""
    names = sorted({one.name for one in lines})
    longest = max(len(one.points) for one in lines)
    return {
        name: {
            **pictures.look(name).line,
            "markersize": 3.5 if longest <= 20 else 2.5,
            "linewidth": 1.3,
        }
        for name in names
    }


def _draw_panel(
    panel: Any,
    group: Sequence[Series],
    order: Sequence[str],
    found: Steps,
    styles: Mapping[str, Mapping[str, Any]],
    width: float,
) -> None:
    first = group[0]
    scale, unit = AXES.get(first.quantity, (1.0, first.unit or ""))
    here = {point.commit for one in group for point in one.points}
    place = {commit: x for x, commit in enumerate(c for c in order if c in here)}
    for one in group:
        values = {place[p.commit]: p.value * scale for p in one.points if p.value is not None}
        # Every commit has its place; a gap in the values is a gap in the line.
        panel.plot(
            range(len(place)),
            [values.get(x, float("nan")) for x in range(len(place))],
            label=one.name,
            **styles[one.name],
        )
        hollow = [place[point.commit] for point in one.points if _is_hollow(one, point)]
        look = {**styles[one.name], **_HOLLOW, "linestyle": "none"}
        panel.plot(hollow, [values[x] for x in hollow], **look)
    _set_height(panel, group, scale)
    steps = [(one.name, step) for one in group for step in found.get(one, ())]
    _mark_steps(panel, steps, place, width - _AXES_WIDTH)
    _mark_failures(panel, group, place, styles)
    panel.set_title(_title(first), fontsize=8, loc="left")
    panel.set_ylabel(unit, fontsize=8)
    panel.set_xlim(-0.5, len(place) - 0.5)
    _label_commits(panel, place, {step.commit for _, step in steps})
    panel.tick_params(axis="x", labelrotation=45, labelsize=6)
    panel.tick_params(axis="y", labelsize=7)
    for label in panel.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")
    panel.grid(axis="y", linewidth=0.4, alpha=0.5)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _label_commits(panel: Any, place: Mapping[str, int], stepped: set[str]) -> None:
    """As many short hashes as can be read, those with a step first, then evenly."""
    every = ceil(len(place) / _LABELS)
    chosen: dict[int, str] = {}
    first = [commit for commit in place if commit in stepped]
    for commit in [*first, *list(place)[::every]]:
        if all(abs(place[commit] - x) >= every for x in chosen):
            chosen[place[commit]] = commit[:_HASH]
    panel.set_xticks([*chosen], [*chosen.values()])


def _title(one: Series) -> str:
    what = " ".join(part for part in (one.kind, one.subject, one.measure) if part)
    threads = None if one.threads is None else f"{one.threads} thread{'s' * (one.threads != 1)}"
    where = ", ".join(part for part in (one.case, one.machine, threads) if part)
    return f"{what}\n{where}"


def _set_height(panel: Any, group: Sequence[Series], scale: float) -> None:
    """Times and errors by ratio, and never zoomed into noise; memory from zero."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    values = [p.value * scale for one in group for p in one.points if p.value is not None]
    low, high = min(values), max(values)
    if group[0].quantity not in ("time", "error") or low <= 0:
        panel.set_ylim(min(0.0, low * 1.1), high * 1.2 if high > 0 else 1.0)
        return
    panel.set_yscale("log")
    middle, spread = sqrt(low * high), max(high / low, 3.0)
    # A tenth of the height stays free below for crosses, a fifth above for marks of steps.
    panel.set_ylim(middle / spread**0.63, middle * spread**0.79)
    decades = spread > 100
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0,) if decades else (1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _mark_steps(
    panel: Any, steps: Sequence[tuple[str, Step]], place: Mapping[str, int], width: float
) -> None:
    """A line before each commit with a step, and at the upper edge whose step is the largest."""
    for commit in {step.commit for _, step in steps}:
        x = place[commit] - 0.5
        panel.axvline(x, color="0.6", linewidth=0.7, linestyle=(0, (2, 2)), zorder=0)
    # Largest first, one mark each way for a commit.
    largest: dict[tuple[str, bool], list[tuple[str, Step]]] = {}
    for name, step in sorted(steps, key=lambda named: -named[1].size):
        largest.setdefault((step.commit, step.up), []).append((name, step))
    marks = list(largest.values())[:_MARKS]
    taken: list[list[tuple[float, float]]] = []
    for (name, step), *others in sorted(marks, key=lambda mark: place[mark[0][1].commit]):
        sign, colour = ("▲", "#B00020") if step.up else ("▼", "#00695C")
        more = f" +{len(others)}" if others else ""
        label = f"{sign}{_factor(step.size)} {name}{more}"
        x = place[step.commit] - 0.5
        room = len(label) * 0.58 * _MARK_SIZE / 72 / width * len(place)
        # Right of its line if there is room, else left of it, else across it; one below the other
        # where they would overlap.
        left = x
        if x + room > len(place) - 0.5:
            left = x - room if x - room >= -0.5 else len(place) - 0.5 - room
        row = next(
            (
                number
                for number, ends in enumerate(taken)
                if all(left + room <= start or left >= end for start, end in ends)
            ),
            len(taken),
        )
        if row == len(taken):
            taken.append([])
        taken[row].append((left, left + room))
        panel.annotate(
            label,
            (left, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2 if left == x else -4, -1 - 8 * row),
            textcoords="offset points",
            fontsize=_MARK_SIZE,
            color=colour,
            va="top",
            ha="left",
        )


def _is_hollow(one: Series, point: Point) -> bool:
    """Only of times: others do not move memory and error."""
    return point.busy and point.value is not None and one.quantity == "time"


def _factor(size: float) -> str:
    if size == float("inf"):
        return ""
    return f"×{size:.2f}" if size < 2 else f"×{size:.1f}" if size < 100 else f"×{size:.0e}"


def _mark_failures(
    panel: Any,
    group: Sequence[Series],
    place: Mapping[str, int],
    styles: Mapping[str, Mapping[str, Any]],
) -> None:
    """A cross on the lower edge for a commit that failed; grey if it failed for several."""
    failed: dict[int, set[str]] = {}
    for one in group:
        for point in one.points:
            if point.state == "failed":
                failed.setdefault(place[point.commit], set()).add(one.name)
    for x, names in failed.items():
        colour = styles[min(names)]["color"] if len(names) == 1 else _GREY
        across = panel.get_xaxis_transform()
        panel.plot([x], [0.05], transform=across, color=colour, **_CROSS)


def _draw_key(
    figure: Any,
    styles: Mapping[str, Mapping[str, Any]],
    signs: Mapping[str, Mapping[str, Any]],
) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=name, **style) for name, style in styles.items()]
    handles += [Line2D([], [], label=name, color=_GREY, **look) for name, look in signs.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=7.5, frameon=False)
