"""The page: what was found of every statement, then the figures with their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version

from ..report.html import TableCell, bullets, document, paragraph, picture, table
from .accuracy import PROTOCOL
from .analysis import Findings
from .figures import Shown
from .statements import FAILS, HOLDS, LEVEL, OPEN, Statement
from .tables import Table

MAX_ROWS = 120
"""Of a table in the page; longer ones are only in their file."""

LIBRARIES = ("numpy", "scipy", "scikit-learn", "matplotlib")

_KINDS = {HOLDS: "holds", FAILS: "fails", OPEN: "soft"}
_ABOUT = (
    'T.-Y. Lin, S. Maji, P. Koniusz: "Second-order Democratic Aggregation" (ECCV 2018). Every '
    "verdict is computed from the numbers below it. A statement about images in general is judged "
    f"by a sign test over the images, two-sided, {LEVEL:.0%}, without correction for the number "
    "of statements; an inequality fails by one image. Time and memory are judged by "
    "`demopool report --claims`. What does not hold here was not necessarily wrong on the "
    "paper's data."
)


def render(
    found: Findings,
    statements: Sequence[Statement],
    shown: Sequence[Shown],
    extra: Iterable[str] = (),
) -> str:
    """``extra`` is HTML between the statements and the figures."""
    n = sorted(set(found.n))
    sizes = f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"
    counts = ", ".join(
        f"{sum(s.verdict == verdict for s in statements)} {words}"
        for verdict, words in ((HOLDS, "hold"), (FAILS, "do not"), (OPEN, "cannot be said"))
    )
    parts = [
        "<h1>Does the paper hold on these features?</h1>",
        paragraph(f"{found.sample.sentence} {sizes}, d = {found.d}.", "soft"),
        paragraph(made(), "soft"),
        bullets(found.notes, "warnings"),
        f'<h2 id="statements">{len(statements)} statements: {escape(counts)}</h2>',
        table(
            ("where", "the paper says", "read as", "found", "verdict"),
            [
                (s.where, s.text, s.reading, s.found, TableCell(s.verdict, None, _KINDS[s.verdict]))
                for s in statements
            ],
            sortable=False,
        ),
        paragraph(_ABOUT, "note"),
        *extra,
        '<h2 id="figures">Figures</h2>',
        '<div class="grid">',
        *(picture(one.figure) for one in shown),
        "</div>",
        '<h2 id="tables">Tables</h2>',
        *(as_details(one.table) for one in shown if one.table.name != "accuracy"),
    ]
    return document("demopool paper", parts)


def accuracy(measured: Table, sentence: str) -> Iterable[str]:
    yield '<h2 id="accuracy">Accuracy</h2>'
    yield paragraph(PROTOCOL)
    yield paragraph(f"{sentence} {measured.title}.")
    yield as_table(measured)


def made() -> str:
    """When, and by what."""
    found = []
    for name in ("demopool", *LIBRARIES):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"Made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by {', '.join(found)}."


def as_details(one: Table) -> str:
    """Behind a line to click."""
    if len(one.rows) > MAX_ROWS:
        return paragraph(f"{one.title}: {len(one.rows)} rows, in {one.name}.csv", "note")
    summary = f"<summary>{escape(one.title)} ({escape(one.name)}.csv)</summary>"
    return f"<details>{summary}{as_table(one)}</details>"


def as_table(one: Table) -> str:
    numbers = [
        i for i in range(len(one.columns)) if all(not isinstance(row[i], str) for row in one.rows)
    ]
    rows = [[_cell(value) for value in row] for row in one.rows]
    return table(one.columns, rows, numbers=numbers)


def _cell(value: str | int | float | None) -> TableCell:
    if value is None or isinstance(value, str):
        return TableCell(value or "-")
    return TableCell(f"{value:.4g}", value)
