"""Docstrings of this project list parameters and fields in two columns; Sphinx wants a list.

    gamma       0 equalises all contributions, 1 is sum pooling
    k, seed     length of the sketch,
                and which hashes

reads well with ``help()``. For the pages it becomes a definition list. And |x| is a norm in them,
where Sphinx would look for a substitution of that name.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_ENTRY = re.compile(r"(?P<names>\w[\w.]*(?:, \w+)*) {2,}(?P<text>\S.*)")
_RULER = re.compile(r"=+( +=+)+")
_LITERAL_OR_BAR = re.compile(r"`[^`]*`|\|")


def as_restructured_text(lines: list[str]) -> list[str]:
    """Runs of entries, and what continues them, as definitions; tables stay."""
    found: list[str] = []
    at, in_table = 0, False
    while at < len(lines):
        if _RULER.fullmatch(lines[at]):
            in_table = not in_table
        entries, end = ([], at) if in_table else _run(lines, at)
        if not entries:
            found.append(_escaped(lines[at]))
            at += 1
            continue
        found.append("")
        for names, text in entries:
            terms = ", ".join(f"``{name}``" for name in names.split(", "))
            found += [terms, f"    {_escaped(text)}", ""]
        at = end
    return found


def _run(lines: list[str], start: int) -> tuple[list[tuple[str, str]], int]:
    """The entries from a line on, and where they end."""
    entries: list[tuple[str, str]] = []
    column, at = 0, start
    while at < len(lines):
        entry = _ENTRY.fullmatch(lines[at])
        if entry and column in (0, entry.start("text")):
            column = entry.start("text")
            entries.append((entry["names"], entry["text"]))
        elif entries and lines[at].startswith(" " * column) and lines[at].strip():
            names, text = entries[-1]
            entries[-1] = (names, f"{text} {lines[at].strip()}")
        else:
            break
        at += 1
    return entries, at


def _escaped(line: str) -> str:
    return _LITERAL_OR_BAR.sub(lambda m: r"\|" if m[0] == "|" else m[0], line)


def _process(
    app: Sphinx, what: str, name: str, of: Any, options: Any, lines: list[str], *rest: Any
) -> None:
    lines[:] = as_restructured_text(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
