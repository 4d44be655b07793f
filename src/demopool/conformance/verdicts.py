"""Verdicts on cells, kept with the identity of what was judged, for ``check`` and ``choose``.

One file of JSON Lines for a backend and an identity: machine and software, the backend's code, the
versions that it reports, and the examples themselves. The last line about a cell counts, except
that passing the quick examples does not clear a failure at all of them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .. import reference
from ..common import places
from ..common.files import UNREADABLE, read_text
from ..errors import InvalidInput
from ..machine import fingerprint
from ..measurement.code_identity import code_key
from ..problem.vocabulary import Backend, State
from .cells import Cell

SCHEMA = 1
LASTING = (State.OK, State.WRONG, State.ERROR)
"""A lack of time or memory may have been that of a moment."""


class CellKey(NamedTuple):
    """Of the cells of one backend."""

    operation: str
    route: str
    order: int
    dtype: str | None


class _Verdict(NamedTuple):
    cell: Cell
    quick: bool


def known(backend: str) -> dict[CellKey, Cell]:
    """The verdicts on cells of a backend as it is now."""
    file = _file(backend)
    found: dict[CellKey, _Verdict] = {}
    try:
        lines = read_text(file).splitlines()
    except InvalidInput:  # there is none yet
        lines = []
    for line in (*lines, *_unwritten.get(file, ())):
        try:
            _add(found, _parsed(line))
        except UNREADABLE:
            continue  # half a line, as a crash leaves it
    return {key: verdict.cell for key, verdict in found.items()}


def keep(cell: Cell, *, quick: bool, save: bool = True) -> None:
    """For the next time; only for this process if it is not to be, or cannot be, written."""
    if cell.dtype is None or cell.state not in LASTING:
        return
    file = _file(cell.backend)
    line = json.dumps({"schema": SCHEMA, "quick": quick, **cell.as_row()}, allow_nan=False)
    try:
        if not save:
            raise OSError("not to be written")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")
    except OSError:
        _unwritten.setdefault(file, []).append(line)


def key_of(cell: Cell) -> CellKey:
    return CellKey(cell.operation, cell.route, cell.order, cell.dtype)


_unwritten: dict[Path, list[str]] = {}


def _add(found: dict[CellKey, _Verdict], new: _Verdict) -> None:
    key = key_of(new.cell)
    old = found.get(key)
    weaker = old is not None and new.quick and not old.quick
    if not (weaker and old is not None and old.cell.state != State.OK):
        found[key] = new


def _parsed(line: str) -> _Verdict:
    row = json.loads(line)
    if row["schema"] != SCHEMA or State(row["state"]) not in LASTING:
        raise ValueError("not a verdict")
    return _Verdict(Cell(**{name: row[name] for name in _FIELDS}), bool(row["quick"]))


_FIELDS = tuple(field.name for field in fields(Cell))


def _file(backend: str) -> Path:
    code = f"{_surroundings()}-{code_key(backend)}"
    name = Backend(backend)
    return places.cache_folder() / "conformance" / f"{name.library}-{name.device}-{code}.jsonl"


@cache
def _surroundings() -> str:
    """The machine with its software, and the code that judges."""
    digest = hashlib.sha256(fingerprint.key(fingerprint.fingerprint()).encode())
    for folder in (Path(__file__).parent, *map(Path, reference.__path__)):
        for file in sorted(folder.glob("*.py")):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
