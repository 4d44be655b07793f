"""The numbers behind a figure, as rows that a page, a CSV file and JSON all show."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

Value = str | int | float | None
"""None where there is none; never NaN or infinity, which JSON has not."""


class Table(NamedTuple):
    """``name`` is that of its figure and its file."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def table(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Numbers with six digits, which is more than any of them has a meaning."""
    return Table(name, title, tuple(columns), tuple(tuple(map(_value, row)) for row in rows))


def _value(given: object) -> Value:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, int):
        return given
    number = float(given)  # type: ignore[arg-type]
    return float(f"{number:.6g}") if isfinite(number) else None
