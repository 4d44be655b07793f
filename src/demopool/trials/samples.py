"""A sample: one measured value of one candidate on one case. The schema, and the file it goes to.

A file of samples is JSON Lines: a row is appended and flushed the moment it is measured, so what an
interrupted command has measured is on disk. A half-written last line, left by a machine that lost
power, is passed over by the reader; so is any other line that cannot be meant, with a sentence.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from ..common.files import UNREADABLE, read_text
from ..errors import InvalidInput
from ..problem.cases import Case
from ..problem.vocabulary import State

SCHEMA = 1
"""Raised when a field changes its meaning or goes; rows of another schema are not read."""

FOLDER = Path(".demopool") / "samples"
"""Where files of samples lie by default: in the project's folder, or else the current one."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Sample:
    """One value, with everything needed to know later what it is.

    backend, route   the candidate
    case             the job, descriptor and sizes included
    measure          ``call_s``, ``first_call_s``, ``with_transfer_s``, ``peak_host_bytes``,
                     ``peak_device_bytes`` or ``error``; of a race ``lowest_s`` and ``mean_s`` of a
                     round, and ``calls`` per block
    value            seconds, bytes or relative error; None unless the state is ``ok``
    device_s         the same call by the device's own events, where it has them
    round            which round of interleaved turns it belongs to, from 1 on
    session          which race the round belongs to
    threads          of BLAS, OpenMP and Numba in the worker
    fingerprint      the key of the machine and its software
    code             what identifies the candidate's own code
    """

    backend: str
    route: str
    case: Case
    measure: str
    value: float | None
    state: State = State.OK
    reason: str = ""
    device_s: float | None = None
    round: int = 0
    session: str = ""
    threads: int = 1
    fingerprint: str = ""
    code: str = ""
    measured_at: str = field(default_factory=_now)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", State(self.state))
        known = self.value is not None and isfinite(self.value)
        if known != (self.state is State.OK):
            raise InvalidInput(
                f"value must be a finite number exactly when the state is ok; got {self.value!r} "
                f"with state {self.state}."
            )
        if self.state is not State.OK and not self.reason:
            raise InvalidInput(f"reason must be given for the state {self.state}.")


def append(path: Path, samples: Iterable[Sample]) -> None:
    """Add rows to a file, made if there is none, each flushed as it is written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            if _ends_in_half_a_line(path):
                file.write(b"\n")
            for sample in samples:
                row = json.dumps(asdict(sample), allow_nan=False)
                file.write(row.encode() + b"\n")
                file.flush()
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None


def read(path: Path, tell: Callable[[str], object] | None = None) -> Iterator[Sample]:
    """The rows of a file in order; those of another schema and broken lines are passed over.

    The sentence on broken lines goes to ``tell``, or else is a warning, once per file.
    """
    lines = read_text(path).splitlines()
    broken = 0
    for line in lines:
        try:
            row = _parsed(line)
        except UNREADABLE as problem:
            half = isinstance(problem, json.JSONDecodeError) and line[:1] in ("", "{")
            broken += not half
            continue
        if row is not None:
            yield row
    if not broken:
        return
    lost = f"{broken} of {len(lines)} lines cannot be meant and are passed over"
    sentence = f"The samples {path.name} are damaged: {lost}."
    if tell:
        tell(sentence)
    elif path not in _told:
        _told.add(path)
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)


_told: set[Path] = set()


def _parsed(line: str) -> Sample | None:
    """None is a row of another version, or one of the notes beside asv's results: no damage."""
    row: dict[str, Any] = json.loads(line)
    if row["schema"] != SCHEMA or "measure" not in row:
        return None
    row["case"] = Case(**row["case"])
    known = {field.name for field in fields(Sample)}
    found = Sample(**{name: value for name, value in row.items() if name in known})
    for name in ("backend", "route", "measure", "session", "fingerprint", "code", "reason"):
        if not isinstance(getattr(found, name), str):
            raise TypeError(f"{name} is not a text")
    for name in ("round", "threads"):
        number = getattr(found, name)
        if isinstance(number, bool) or not isinstance(number, int) or abs(number) >= 2**31:
            raise TypeError(f"{name} is no such number")
    for number in (found.value, found.device_s):
        if number is not None and (isinstance(number, bool) or not isfinite(number) or number < 0):
            raise ValueError("not a time, size or error")
    least = _OF_A_RACE.get(found.measure)
    if least is not None and not least <= (found.value or 0.0) <= 1e9:
        raise ValueError("not of a race")
    return found


_OF_A_RACE = {"lowest_s": 1e-9, "mean_s": 1e-9, "calls": 1}
"""What is put into a race again must be such as a race measures: no time is 0, or thirty years."""


def _ends_in_half_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"
