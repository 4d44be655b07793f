"""Finished steps of a report, a JSON file each in its folder: the same command goes on from there.

What was found by other code, another machine or other software is not used, and is found again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..common.files import UNREADABLE, read_text, write_text
from ..errors import InvalidInput
from ..machine import fingerprint
from ..measurement.code_identity import code_key


def digest(*parts: object) -> str:
    """Short, of values whose text says all of them."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class Kept:
    """In a folder, made if there is none. ``fresh`` forgets what was there."""

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if fresh:
                for file in folder.glob("*.json"):
                    file.unlink()
        except OSError as problem:
            raise InvalidInput(f"{folder} cannot be written: {problem.strerror}.") from None
        self._machine = fingerprint.key(fingerprint.fingerprint())

    def get(self, name: str, *depends: object) -> Any:
        """What was stored under this name, of the same machine and settings; else None."""
        try:
            stored = json.loads(read_text(self._file(name)))
            return stored["found"] if stored["of"] == self._of(depends) else None
        except (InvalidInput, *UNREADABLE):
            return None

    def put(self, name: str, found: Any, *depends: object) -> None:
        """``found`` is plain values, for JSON."""
        text = json.dumps({"of": self._of(depends), "found": found}, indent=1, allow_nan=False)
        write_text(self._file(name), text + "\n")

    def or_found(self, name: str, find: Callable[[], Any], *depends: object) -> Any:
        """What was stored, or what is found now. That is stored unless one of its rows has a reason
        why nothing was found: the next run tries it again."""
        known = self.get(name, *depends)
        if known is None:
            known = find()
            rows = known if isinstance(known, list) else [known]
            if not any(row.get("reason") for row in rows):
                self.put(name, known, *depends)
        return known

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _of(self, depends: tuple[object, ...]) -> str:
        return digest(self._machine, *depends)


def code_of(*backends: str) -> tuple[str, ...]:
    """What results of these backends depend on."""
    return tuple(code_key(backend) for backend in backends)
