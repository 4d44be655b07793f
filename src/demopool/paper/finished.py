"""What an interrupted run has measured of the accuracy table, in a file: the next one goes on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..common.files import UNREADABLE, read_text, write_text
from ..common.program import __version__
from ..datasets.images import Images
from ..errors import InvalidInput
from .labels import Labelled
from .svm import Fitted

NAME = "accuracy.partial.json"


class Finished:
    """Fitted SVMs by the names of their rows. ``run`` tells which run they are of: those of another
    one, and a file that cannot be read, count for nothing."""

    def __init__(self, path: Path, run: str) -> None:
        self.path, self._run = path, run
        self._rows: dict[str, Any] = {}
        try:
            stored = json.loads(read_text(path)) if path.exists() else {}
            if stored.get("run") == run:
                self._rows = {name: _fitted(row) and row for name, row in stored["rows"].items()}
        except (InvalidInput, *UNREADABLE):
            self._rows = {}

    def get(self, *names: str) -> Fitted | None:
        row = self._rows.get(" / ".join(names))
        return None if row is None else _fitted(row)

    def add(self, fitted: Fitted, *names: str) -> None:
        right = "".join("01"[int(one)] for one in fitted.right)
        row = {"C": fitted.C, "validated": fitted.validated, "right": right}
        self._rows[" / ".join(names)] = row
        write_text(self.path, json.dumps({"run": self._run, "rows": self._rows}))


def identity(images: Images, given: Labelled, protocol: str, seed: int) -> str:
    """Changes with the files, the labels, the parts, the protocol and the version."""
    every = (given.rows, given.labels, given.test.tolist(), protocol, seed, __version__)
    return hashlib.sha256(f"{images.digest()} {every!r}".encode()).hexdigest()


def _fitted(row: dict[str, Any]) -> Fitted:
    right = np.array([one == "1" for one in row["right"]])
    return Fitted(float(row["C"]), float(row["validated"]), right)
