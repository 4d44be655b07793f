"""What all pictures share: colours, and being written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from .files import write_bytes

COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999"),
    *("#004466", "#8a5f00", "#005f45", "#7a4a65"),
)
"""Told apart by most colour-blind people too; the first eight are those of Okabe and Ito."""


def png(figure: Any) -> bytes:
    """A Matplotlib figure as the content of a PNG file."""
    _without_formulas(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _without_formulas(figure: Any) -> None:
    """Names from files of results are no TeX, which would be set, or fail to be, between dollars.

    Labels of ticks are made while drawing, by Matplotlib itself.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if "\\mathdefault" not in text.get_text():
            text.set_parse_math(False)


def save(figure: Any, path: Path) -> None:
    write_bytes(path, png(figure))
