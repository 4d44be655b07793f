"""What all pictures share: a look for every candidate, dark mode, and files written whole."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from html import escape
from math import cos, radians, sin
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from ..common.files import write_bytes
from ..problem import routes
from ..problem.candidates import Candidate
from ..problem.vocabulary import DESCRIPTORS

INK, GRID, SOFT = "#1c1d1f", "#dcdde0", "#65676b"
"""Of letters and axes, of grids, and of what stands back; in a page they follow its colours."""

_VARIABLES = {INK: "currentColor", GRID: "var(--line)", SOFT: "var(--soft)"}

# A hue for every backend, in degrees of Oklab, where equal numbers look equally light; the routes
# of a backend differ in lightness, a little in hue, and in their marks. None is too light for white
# paper, nor too dark for a dark page.
_HUES = {
    "numpy:cpu": 250.0,
    "numba:cpu": 62.0,
    "torch:cpu": 165.0,
    "torch:cuda": 350.0,
    "cupy:cuda": 25.0,
    "numba:cuda": 105.0,
    "triton:cuda": 205.0,
    "numba:ptx": 295.0,
    "cupy:ptx": 320.0,
    "triton:interpreter": 275.0,
}
_LIGHTNESS, _CHROMA = (0.60, 0.73, 0.48), 0.125
_SHIFTS = (0.0, 18.0, -18.0)
MARKS = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼", "P": "✚", "X": "✖", "*": "★", "h": "⬢"}
_STROKES = ("-", "--", ":")
_OTHERS = 24
"""Hues for names that are no candidate of ours."""

_IDENTIFIER = re.compile(r' id="[a-zA-Z0-9]+_\d+"')
_PREAMBLE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>|<style[^>]*>.*?</style>", re.DOTALL)


class Look(NamedTuple):
    """Of one candidate, the same in every picture."""

    colour: str
    marker: str
    stroke: str

    @property
    def mark(self) -> str:
        """The marker as a letter, for a legend in text."""
        return MARKS[self.marker]

    @property
    def line(self) -> dict[str, Any]:
        """As Matplotlib's arguments."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.stroke}


@cache
def look(name: str) -> Look:
    """Of a candidate; of any other name too, but not one for each."""
    candidate = Candidate.found_in(name)
    place = _places().get(candidate.route) if candidate else None
    markers = list(MARKS)
    if candidate is None or place is None or candidate.backend not in _HUES:
        number = crc32(name.encode(errors="replace"))
        hue, place = 360.0 * (number % _OTHERS) / _OTHERS, number // _OTHERS % len(markers)
    else:
        hue = _HUES[candidate.backend]
    shift, light = divmod(place, len(_LIGHTNESS))
    colour = _srgb(_LIGHTNESS[light], _CHROMA, hue + _SHIFTS[shift])
    return Look(colour, markers[place], _STROKES[light])


def _srgb(lightness: float, chroma: float, hue: float) -> str:
    """From Oklab's polar coordinates (Ottosson, 2020); what a screen cannot show is clipped."""
    a, b = chroma * cos(radians(hue)), chroma * sin(radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    parts = (
        12.92 * x if x <= 0.0031308 else 1.055 * x ** (1 / 2.4) - 0.055
        for x in (min(max(x, 0.0), 1.0) for x in linear)
    )
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


@cache
def _places() -> dict[str, int]:
    """Of every route among those of its descriptor."""
    return {
        route: place
        for descriptor in DESCRIPTORS
        for place, route in enumerate(routes.descriptor_routes(descriptor))
    }


@contextmanager
def drawing() -> Iterator[None]:
    """While drawing: text that stays text in SVG, in colours that a page can replace.

    Names from files of results may have letters that the font lacks, which are boxes then, or be
    longer than the picture: neither is worth a warning.
    """
    import matplotlib

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": SOFT,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": GRID,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        for message in ("Glyph .* missing from", "constrained_layout not applied"):
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        yield


def png(figure: Any) -> bytes:
    """A Matplotlib figure as the content of a PNG file."""
    _without_formulas(figure)
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def svg(figure: Any, title: str) -> str:
    """As an element of an HTML page whose colours it takes: ``color``, ``--line``, ``--soft``."""
    _without_formulas(figure)
    buffer = io.StringIO()
    with drawing():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = _METADATA.sub("", _PREAMBLE.sub("", buffer.getvalue()))
    for fixed, variable in _VARIABLES.items():
        text = text.replace(fixed, variable)
    # Elements are named by their number in their picture; a page has many pictures.
    text = _IDENTIFIER.sub("", text)
    text = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", text, count=1)
    # Without a document type of its own there is no xlink prefix to declare; HTML knows it.
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def svg_document(figure: Any) -> str:
    """As the content of an SVG file."""
    _without_formulas(figure)
    buffer = io.StringIO()
    with drawing():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
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
