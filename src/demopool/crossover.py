"""The crossover map: which candidate wins at which n and d; as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import pictures
from .answers import Choice
from .errors import InvalidInput
from .vocabulary import Verdict

MARKS = {Verdict.FASTEST: "", Verdict.TIE: "=", Verdict.UNKNOWN: "?"}
"""Before a winner's name: it is one of several that are equal, or only probably the best."""


@dataclass(frozen=True)
class Cell:
    """The answer at one n and d; ``lead`` is how many times faster than the next other one."""

    n: int
    d: int
    state: Verdict
    backend: str | None
    route: str | None
    lead: float | None

    @property
    def name(self) -> str:
        return "nothing" if self.backend is None else f"{self.backend} {self.route}"

    @property
    def label(self) -> str:
        if self.state is Verdict.FASTEST and self.lead is not None:
            return f"{self.name} {self.lead:.1f}x"
        return f"{MARKS[self.state]} {self.name}".strip()


def parse(text: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``n=49,196 d=64,512`` in either order."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text:
        name, _, values = part.partition("=")
        try:
            sizes = tuple(sorted({int(value) for value in values.split(",")}))
        except ValueError:
            sizes = ()
        if name not in ("n", "d") or not sizes or sizes[0] < 1:
            raise InvalidInput(f"--sweep must be like n=49,196 d=64,512; got {' '.join(text)!r}.")
        found[name] = sizes
    if set(found) != {"n", "d"}:
        raise InvalidInput(f"--sweep must be like n=49,196 d=64,512; got {' '.join(text)!r}.")
    return found["n"], found["d"]


def cell(choice: Choice) -> Cell:
    ratios = [
        row.ratio
        for row in choice.rows
        if row.ratio is not None and (row.backend, row.route) != (choice.backend, choice.route)
    ]
    case = choice.case
    lead = min(ratios) if ratios else None
    return Cell(case.n, case.d, choice.state, choice.backend, choice.route, lead)


def text(cells: Sequence[Cell], width: int) -> Iterator[str]:
    """A table of n by d where it fits the width, else a line for every cell; then the legend."""
    ns, ds = sorted({c.n for c in cells}), sorted({c.d for c in cells})
    labels = {(c.n, c.d): c.label for c in cells}
    rows = [["n", *(f"d={d}" for d in ds)]]
    rows += [[str(n), *(labels.get((n, d), "-") for d in ds)] for n in ns]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 2 * len(ds) <= width:
        for row in rows:
            yield "  ".join(v.ljust(w) for v, w in zip(row, widths, strict=True)).rstrip()
    else:
        for (n, d), label in labels.items():
            yield f"n={n} d={d}: {label}"
    yield "1.3x: so many times faster than the next; =: a tie, recommended; ?: probably."


def draw(cells: Sequence[Cell], title: str, *, size: tuple[float, float] | None = None) -> Any:
    """A coloured map; ties are hatched, unknowns pale, and every cell says by how much.

    With a ``size``, in inches, it has no legend: whoever asks for one has a legend beside it.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    ns, ds = sorted({c.n for c in cells}), sorted({c.d for c in cells})
    names = sorted({c.name for c in cells})
    colours = {name: pictures.look(name).colour for name in names}
    usual = (2.2 + 1.7 * len(ds), 2.0 + 0.75 * len(ns))
    figure = Figure(figsize=size or usual, layout="constrained", dpi=160 if size else 100)
    axes = figure.add_subplot()
    for c in cells:
        x, y = ds.index(c.d), ns.index(c.n)
        unknown = c.state is Verdict.UNKNOWN
        axes.add_patch(
            Rectangle(
                (x, y),
                1,
                1,
                facecolor=colours[c.name],
                alpha=0.25 if unknown else 0.75,
                hatch="//" if c.state is Verdict.TIE else None,
                edgecolor=pictures.INK if c.state is Verdict.TIE else "none",
                linewidth=2,
            )
        )
        short = "tie" if c.state is Verdict.TIE else "unknown" if unknown else ""
        if c.state is Verdict.FASTEST and c.lead is not None:
            short = f"{c.lead:.1f}x"
        axes.text(x + 0.5, y + 0.5, short, ha="center", va="center", fontsize=9 if size else 11)
    axes.set(xlim=(0, len(ds)), ylim=(0, len(ns)), xlabel="d", ylabel="n")
    axes.set_xticks([i + 0.5 for i in range(len(ds))], [str(d) for d in ds])
    axes.set_yticks([i + 0.5 for i in range(len(ns))], [str(n) for n in ns])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    if title:
        axes.set_title(title, fontsize=11)
    if size:
        return figure
    handles = [Patch(facecolor=colours[name], alpha=0.75, label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure
