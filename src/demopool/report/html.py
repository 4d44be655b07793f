"""Pieces of HTML: everything that comes from outside is escaped here and nowhere else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files as resources
from typing import NamedTuple

from .panels import Figure


def document(title: str, body: Iterable[str]) -> str:
    """A whole page: its style and its script are inside, and nothing comes from elsewhere."""
    inside = resources("demopool.report")
    style = inside.joinpath("style.css").read_text(encoding="utf-8")
    script = inside.joinpath("script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        # Whatever is not inside the page, a browser refuses and complains about.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style></head><body>",
        *body,
        f"<script>{script}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


class TableCell(NamedTuple):
    """Text; ``order`` is what to sort by, ``kind`` a class of the style sheet."""

    text: str
    order: float | str | None = None
    kind: str = ""


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[TableCell | str]],
    *,
    numbers: Sequence[int] = (),
    sortable: bool = True,
) -> str:
    """Rows become blocks with their headings where the page is narrow."""
    head = "".join(
        f"<th{_kind('number' if i in numbers else '')}>{escape(heading)}</th>"
        for i, heading in enumerate(headings)
    )
    body = []
    for row in rows:
        cells = []
        for i, (heading, given) in enumerate(zip(headings, row, strict=True)):
            cell = given if isinstance(given, TableCell) else TableCell(given)
            kinds = " ".join(filter(None, ("number" if i in numbers else "", cell.kind)))
            order = "" if cell.order is None else f' data-order="{escape(str(cell.order))}"'
            label = f' data-label="{escape(heading)}"' if heading else ""
            cells.append(f"<td{_kind(kinds)}{label}{order}>{escape(printable(cell.text))}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    kind = "stacked sortable" if sortable and len(rows) > 1 else "stacked"
    return (
        f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody>'
        "</table>"
    )


def _kind(kinds: str) -> str:
    return f' class="{kinds}"' if kinds else ""


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{_kind(kind)}>{escape(printable(text))}</p>"


def bullets(texts: Sequence[str], kind: str = "") -> str:
    """Nothing if there are none."""
    items = "".join(f"<li>{escape(printable(text))}</li>" for text in texts)
    return f"<ul{_kind(kind)}>{items}</ul>" if items else ""


def printable(text: str) -> str:
    """Without control characters: a page may be shown by a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def picture(figure: Figure, *, heading: bool = True) -> str:
    """Drawn in the page's own colours; the legend is text below it."""
    keys = "".join(
        f'<li><span style="color: {look.colour}">{look.mark}</span> {escape(printable(words))}</li>'
        for look, words in figure.legend
    )
    legend = f'<ul class="legend">{keys}</ul>' if keys else ""
    title = f"<b>{escape(printable(figure.title))}.</b> " if heading else ""
    return (
        f"<figure>{figure.svg()}{legend}"
        f"<figcaption>{title}{escape(printable(figure.says))}</figcaption></figure>"
    )
