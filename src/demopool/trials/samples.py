"""A sample: one measured value of one candidate on one case. The schema, and the file it goes to.

A file of samples is JSON Lines: a row is appended and flushed the moment it is measured, so what an
interrupted command has measured is on disk. A half-written last line, left by a machine that lost
power, is passed over by the reader; so is any other invalid line, with a warning.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any

from ..common import places
from ..common.files import UNREADABLE, is_name, read_text
from ..errors import InvalidInput
from ..problem.cases import Case
from ..problem.vocabulary import State

SCHEMA = 2
"""Raised when a field changes its meaning or goes. Rows of schema 1 are read and converted; rows of
an unknown schema are not read."""

OLD_FOLDER = Path(".demopool") / "samples"
"""In a project's folder: nothing writes there any more, and what lies there is still read."""


def folder() -> Path:
    """Where ``choose`` and ``report --claims`` write samples, and ``results.read`` finds them."""
    return places.cache_folder() / "samples"


class Phase(StrEnum):
    """When a value was measured.

    once         outside the rounds: a property of the candidate, or of its entry into a race
    round        in a round of a race
    confirming   in a round that confirms the winner in new processes
    """

    ONCE = "once"
    ROUND = "round"
    CONFIRMING = "confirming"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Sample:
    """One value, with everything needed to know later what it is.

    backend, route   the candidate
    case             the job, descriptor and sizes included
    measure          a name of ``measures.MEASURES``
    value            in the unit of the measure; None unless the state is ``ok``
    device_s         the same call by the device's own events, where it has them
    phase            ``once``, ``round`` or ``confirming``
    round            its number within the phase, from 1; 0 of what is measured once
    session          which race it belongs to
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
    phase: Phase = Phase.ONCE
    round: int = 0
    session: str = ""
    threads: int = 1
    fingerprint: str = ""
    code: str = ""
    measured_at: str = field(default_factory=_now)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", State(self.state))
        object.__setattr__(self, "phase", Phase(self.phase))
        known = self.value is not None and isfinite(self.value)
        if known != (self.state is State.OK):
            raise InvalidInput(
                f"value must be a finite number exactly when the state is ok; got {self.value!r} "
                f"with state {self.state}."
            )
        if self.state is not State.OK and not self.reason:
            raise InvalidInput(f"reason must be given for the state {self.state}.")
        if (self.phase is Phase.ONCE) != (self.round == 0):
            raise InvalidInput(
                f"round must be 0 exactly in the phase once; got {self.round} in {self.phase}."
            )


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


def read(path: Path, warn: Callable[[str], object] | None = None) -> Iterator[Sample]:
    """The rows of a file in order; those of another schema and broken lines are passed over.

    So are values of a candidate that was wrong later in the same session: a time of something that
    does not do the work is no time. The sentence on broken lines goes to ``warn``, or else is a
    warning, once per file.
    """
    lines = read_text(path).splitlines()
    broken = 0
    rows: list[Sample] = []
    for line in lines:
        try:
            row = _parsed(line)
        except UNREADABLE as problem:
            half = isinstance(problem, json.JSONDecodeError) and line[:1] in ("", "{")
            broken += not half
            continue
        if row is not None:
            rows.append(row)
    wrong = {_candidate(row) for row in rows if row.state is State.WRONG and row.session}
    yield from (row for row in rows if row.value is None or _candidate(row) not in wrong)
    if not broken:
        return
    lost = f"{broken} of {len(lines)} lines are invalid and are passed over"
    sentence = f"The samples {path.name} are damaged: {lost}."
    if warn:
        warn(sentence)
    elif path not in _warned:
        _warned.add(path)
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)


def _candidate(row: Sample) -> tuple[Any, ...]:
    return row.session, row.backend, row.route, row.case


_warned: set[Path] = set()


def _parsed(line: str) -> Sample | None:
    """None is a row of another version, or one of the notes beside asv's results: no damage."""
    row: dict[str, Any] = json.loads(line)
    if row["schema"] not in (1, SCHEMA) or "measure" not in row:
        return None
    if row["schema"] == 1:
        row = _from_schema_1(row)
    row["case"] = Case(**row["case"])
    known = {field.name for field in fields(Sample)}
    found = Sample(**{name: value for name, value in row.items() if name in known})
    if not isinstance(found.reason, str):
        raise TypeError("reason is not a text")
    optional = [text for text in (found.session, found.fingerprint, found.code) if text != ""]
    if not all(map(is_name, (found.backend, found.route, found.measure, *optional))):
        raise ValueError("not a name")
    moment = datetime.fromisoformat(found.measured_at)
    if not 1970 < moment.year < 2262:  # what fits nanoseconds since 1970
        raise ValueError("not a date of a measurement")
    for name, least in (("round", 0), ("threads", 1)):
        number = getattr(found, name)
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number < 2**31:
            raise TypeError(f"{name} is no such number")
    for number in (found.value, found.device_s):
        if number is not None and (isinstance(number, bool) or not isfinite(number) or number < 0):
            raise ValueError("not a time, size or error")
    lowest = _OF_A_RACE.get(found.measure)
    if lowest is not None and not lowest <= (found.value or 0.0) <= 1e9:
        raise ValueError("not of a race")
    return found


def _from_schema_1(row: dict[str, Any]) -> dict[str, Any]:
    """The sign of the round was its phase."""
    number = row.get("round", 0)
    phase = Phase.CONFIRMING if number < 0 else Phase.ROUND if number else Phase.ONCE
    return {**row, "schema": SCHEMA, "phase": phase, "round": abs(number)}


_OF_A_RACE = {"lowest_s": 1e-9, "mean_s": 1e-9, "calls": 1}
"""What is put into a race again must be such as a race measures: no time is 0, or thirty years."""


def _ends_in_half_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"
