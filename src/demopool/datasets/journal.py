"""The journal beside an output that is not whole: how it was begun, and which units are finished.

``OUT.journal`` is JSON Lines. The first line has the settings, a digest of the inputs, the code and
the plan. A line is appended for a unit, and is on the disk, after the rows of the unit are. A last
line that was cut off is a unit that is not finished; if it is the first, nothing is begun. The file
is locked while somebody works.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..common.files import UNREADABLE
from ..common.program import __version__
from ..errors import InvalidInput, Unfinished
from ..measurement.code_identity import code_key
from ..problem import hashing
from .output import beside
from .planning import Plan
from .settings import Settings
from .units import Record

SCHEMA = 1


def identity(settings: Settings, inputs: str, files: int, plan: Plan) -> dict[str, Any]:
    """What must not change between the runs that make one output."""
    found = {"settings": asdict(settings), "inputs": inputs, "files": files}
    return found | {"code": code_of(plan)}


def code_of(plan: Plan) -> dict[str, Any]:
    """Versions of all code that a plan's descriptors depend on."""
    backends = sorted({decision.backend for decision in plan.decisions})
    found = {"demopool": __version__, "hashes": hashing.VERSION}
    return found | {name: code_key(name) for name in backends}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In words, why an output cannot be gone on with; empty if it can."""
    old, new = before["settings"], now["settings"]
    changed = [name for name in new if old.get(name) != new[name]]
    if changed:
        then = ", ".join(f"{name}={old.get(name)!r}" for name in changed)
        this = ", ".join(f"{name}={new[name]!r}" for name in changed)
        return f"it was begun with {then}, and this is {this}"
    if before["inputs"] != now["inputs"]:
        files = f" ({before['files']} files then, {now['files']} now)"
        return "the input has changed" + files * (before["files"] != now["files"])
    if before["code"] != now["code"]:
        return "the code of demopool has changed"
    return ""


def other_than(path: Path, reason: str) -> InvalidInput:
    """The error to raise for an output of something else."""
    return InvalidInput(
        f"{path} is of another run: {reason}. --fresh (fresh=True) overwrites it, or give another "
        "output."
    )


def damaged(path: Path) -> InvalidInput:
    """The error to raise for what is left of a run, if it cannot be gone on with."""
    return InvalidInput(f"{path} is damaged or gone: --fresh (fresh=True) begins again.")


class Journal:
    """Open for one process at a time; ``finished`` has the record of every finished unit."""

    def __init__(self, path: Path) -> None:
        self.path = beside(path, "journal")
        self.begun: dict[str, Any] = {}
        self.finished: dict[int, Record] = {}
        self._output = path
        self._handle: int | None = None

    def exists(self) -> bool:
        return self.path.exists()

    def clear(self) -> None:
        """An empty one, in place of any other: nothing is begun, and nobody else may begin."""
        self.lock(os.O_CREAT)
        assert self._handle is not None
        os.ftruncate(self._handle, 0)
        self.begun, self.finished = {}, {}

    def begin(self, identity: Mapping[str, Any], plan: Plan) -> None:
        """How the output is made; to be called once there is one, after ``clear``."""
        self.begun = {"schema": SCHEMA, **identity, "plan": plan.as_stored()}
        self._write(self.begun)

    def open(self) -> None:
        """Read what is there, and be ready to append; ``begun`` is empty if nothing was."""
        self.lock()
        try:
            self._read()
        except UNREADABLE:
            raise damaged(self.path) from None

    def lock(self, flags: int = 0) -> None:
        """Nobody else may be at work on this output."""
        self.close()
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o666)
        except OSError as problem:
            raise Unfinished(f"{self.path} cannot be written: {problem.strerror}.") from None
        self._lock()
        if not self.path.exists() or not os.path.samestat(self.path.stat(), os.fstat(self._handle)):
            raise self._taken()  # and finished or begun anew since it was opened

    def plan(self) -> Plan:
        return Plan.from_stored(self.begun["plan"])

    def append(self, record: Record) -> None:
        """On the disk when this returns; the rows of the unit must be there already."""
        self._write(asdict(record))
        self.finished[record.unit] = record

    def _write(self, content: Mapping[str, Any]) -> None:
        assert self._handle is not None
        line = json.dumps(content).encode() + b"\n"
        try:
            if os.write(self._handle, line) != len(line):
                raise OSError(None, "the disk is full")
            os.fsync(self._handle)
        except OSError as problem:
            raise Unfinished(
                f"{self.path} cannot be written: {problem.strerror}. What was finished is kept, "
                "and the same command goes on from there."
            ) from None

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None

    def _read(self) -> None:
        assert self._handle is not None
        with open(self.path, "rb") as file:
            content = file.read()
        whole = content.rfind(b"\n") + 1
        os.ftruncate(self._handle, whole)
        self.begun, self.finished = {}, {}
        if not whole:
            return
        first, *lines = content[:whole].splitlines()
        self.begun = json.loads(first)
        if self.begun["schema"] != SCHEMA:
            raise ValueError
        for line in lines:
            record = Record(**json.loads(line))
            record.failed = {int(row): why for row, why in record.failed.items()}
            self.finished[record.unit] = record

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not a Unix
            return
        assert self._handle is not None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._taken() from None
        except OSError:
            pass  # a file system without locks

    def _taken(self) -> Unfinished:
        self.close()
        return Unfinished(f"another process is writing {self._output}.")
