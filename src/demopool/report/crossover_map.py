"""The crossover map as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..choosing.crossover import MapCell
from ..problem.vocabulary import Verdict
from . import pictures


def draw(cells: Sequence[MapCell], title: str, *, size: tuple[float, float] | None = None) -> Any:
    """A coloured map; ties are hatched, unknowns pale, and every cell says by how much.

    With a ``size``, in inches, it has no legend: the caller has one beside it.
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
