"""A figure with its words, and the axes that all pictures begin with."""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

from . import pictures
from .pictures import GRID, SOFT

WIDTH, HEIGHT = 3.7, 2.9
"""Inches: letters of 8 points can be read where a page is 390 pixels wide."""


class Figure(NamedTuple):
    """``legend`` has a look and words for every candidate; ``made`` is of Matplotlib."""

    name: str
    title: str
    says: str
    made: Any
    legend: tuple[tuple[pictures.Look, str], ...] = ()

    def svg(self) -> str:
        with pictures.drawing():
            return pictures.svg(self.made, self.title)

    def png(self) -> bytes:
        """With the title and the legend that the page has as text."""
        self._complete()
        return pictures.png(self.made)

    def svg_document(self) -> str:
        """As a file of its own, with the same."""
        self._complete()
        return pictures.svg_document(self.made)

    def _complete(self) -> None:
        from matplotlib.lines import Line2D

        with pictures.drawing():
            if not self.made.get_suptitle():
                self.made.suptitle(self.title, fontsize=9)
            if self.legend and not self.made.legends:
                width, height = self.made.get_size_inches()
                self.made.set_size_inches(width, height + 0.17 * len(self.legend))
                handles = [
                    Line2D([], [], lw=1.4, ms=5, label=words, **own.line)
                    for own, words in self.legend
                ]
                place = {"loc": "outside lower left", "frameon": False, "fontsize": 7}
                self.made.legend(handles=handles, **place)


def panel(height: float = HEIGHT) -> tuple[Any, Any]:
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=(WIDTH, height), layout="constrained", dpi=160)
    axes = figure.add_subplot()
    axes.grid(True, which="major", color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(8)
    axes.yaxis.label.set_fontsize(8)
    return figure, axes


def logarithmic(axes: Any, which: str = "xy") -> None:
    """Plain numbers at the ticks; between powers of ten only where there are few of those."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for letter in which:
        axis = getattr(axes, f"{letter}axis")
        axes.set(**{f"{letter}scale": "log"})
        low, high = axis.get_view_interval()
        decades = log(high / low, 10)
        subs = (1.0,) if decades > 2 else (1.0, 2.0, 5.0)
        locator = LogLocator(subs=subs, numticks=8) if decades > 0.8 else MaxNLocator(nbins=4)
        axis.set_major_locator(locator)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
