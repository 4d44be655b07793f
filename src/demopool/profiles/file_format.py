"""The file of a profile: validated when read, changed by one process at a time, written whole.

Reading never raises, whatever a file holds. Invalid rows (a negative time, an unknown route) are
left out; the file is then kept as ``.damaged``, and the valid rows are used. Versions of the file:

    1   ``failed``: candidates without a time, whatever the cause
    2   ``untimed``: the same with their state, and what a call took or needed at least
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from ..common.files import UNREADABLE, locked, write_text
from ..common.program import __version__
from ..errors import InvalidInput
from ..machine import fingerprint
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import DTYPES, State, Verdict
from . import costs
from .records import Decided, Measured, Profile, Untimed

SCHEMA = 2

_LARGEST_FILE = 64 * 2**20
_SECONDS = (1e-9, 1e9)
"""A call that is over in less than a nanosecond was not timed, nor one of thirty years."""

_warned: set[str] = set()


class Newer(InvalidInput):
    """A file of a later version: to be left as it is."""


def read(path: Path, *, is_locked: bool = False) -> Profile:
    """The profile in a file; empty if there is none, or nothing in it can be used."""
    aside = partial(_set_aside, path, is_locked=is_locked)
    text: str | None = None
    try:
        text = _text_of(path)
        found, left_out = ({}, 0) if text is None else _profile(text, path.stem)
    except Newer as problem:
        _warn_once(f"The profile {path.name} is not used: {problem}")
        return Profile()
    except OSError as problem:
        _warn_once(f"The profile {path.name} is not used: {problem.strerror}.")
        return Profile()
    except UNREADABLE as problem:
        aside(text, Profile(), f"it cannot be used ({_short(problem)})")
        return Profile()
    profile = Profile(**found)
    if left_out:
        of = left_out + len(profile.decided)
        aside(text, profile, f"{left_out} of its {of} parts cannot be used")
    return profile


def is_time(seconds: float) -> bool:
    """Whether a file may have it."""
    return _SECONDS[0] <= seconds <= _SECONDS[1]


def check_replaceable(path: Path) -> None:
    """Raises :class:`Newer` for a file that only a later version understands."""
    try:
        _profile(_text_of(path) or "", path.stem)
    except Newer:
        raise
    except (OSError, *UNREADABLE):
        return


def write(path: Path, profile: Profile) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, as_text(profile, path.stem))


def as_text(profile: Profile, key: str) -> str:
    """A profile as its file has it."""
    stored = {
        "schema": SCHEMA,
        "demopool": __version__,
        "fingerprint": key,
        "machine": fingerprint.machine(),
        **asdict(profile),
    }
    return json.dumps(stored, indent=1, allow_nan=False) + "\n"


def _text_of(path: Path) -> str | None:
    if not path.exists():
        return None
    if not path.is_file():  # a pipe would never end
        raise OSError(0, "it is not a file")
    if path.stat().st_size > _LARGEST_FILE:
        raise ValueError("it is too large")
    return path.read_text(encoding="utf-8")


def _set_aside(path: Path, text: str | None, good: Profile, why: str, *, is_locked: bool) -> None:
    """Keep a file beside, go on with what is good of it, and say so once."""
    damaged = path.with_name(path.name + ".damaged")
    where = f"It is kept as {damaged.name}, and what is good of it goes on."
    try:
        with nullcontext() if is_locked else locked(path):
            # Another process may have done it since.
            if text is None or _text_of(path) == text:
                os.replace(path, damaged)
                if good.decided:
                    write(path, good)
    except (OSError, *UNREADABLE):
        where = "It is passed over."
    _warn_once(f"The profile {path.name} is damaged: {why}. {where}")


def _warn_once(sentence: str) -> None:
    if sentence not in _warned:
        _warned.add(sentence)
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)


def _short(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"[:120]


# --- what it may say ---


def _profile(text: str, key: str) -> tuple[dict[str, Any], int]:
    """The fields of a profile, and how many rows were left out."""
    stored = json.loads(text)
    schema = stored["schema"]
    if isinstance(schema, int) and schema > SCHEMA:
        raise Newer(f"it is of a later version (schema {schema}, this one has {SCHEMA}).")
    if schema not in (1, SCHEMA):
        raise ValueError("no such schema")
    if stored["fingerprint"] != key:
        raise ValueError("it is of another machine")
    rows = _list(stored["decided"])
    decided = tuple(_readable(partial(_decided, schema=schema), rows))
    coefficients: dict[str, dict[str, dict[str, float]]] = {}
    tables = [(b, d, table) for b, of in stored["coefficients"].items() for d, table in of.items()]
    known = tuple(_readable(_coefficients, tables))
    for backend, dtype, table in known:
        coefficients.setdefault(backend, {})[dtype] = table
    left_out = len(rows) - len(decided) + len(tables) - len(known)
    return {"decided": decided, "coefficients": coefficients}, left_out


def _readable(parse: Callable[[Any], Any], rows: list[Any]) -> Iterator[Any]:
    for row in rows:
        try:
            yield parse(row)
        except UNREADABLE:
            continue


def _decided(row: dict[str, Any], schema: int) -> Decided:
    case = Case(**row["case"])
    if case.batch < 1:
        raise ValueError("a case without images")
    measured = tuple(_measured(m, case) for m in _list(row["candidates"]))
    if schema == 1:
        untimed = tuple(_untimed(_from_1(f), case) for f in _list(row.get("failed", [])))
    else:
        untimed = tuple(_untimed(u, case) for u in _list(row["untimed"]))
    recommended = _text(row["backend"]), _text(row["route"])
    if any(recommended):
        _candidate(*recommended, case)
    return Decided(
        case,
        _threads(row["threads"]),
        str(Verdict(row["state"])),
        *recommended,
        measured,
        _text(row.get("measured_at", "")),
        _boolean(row.get("whole", True)) and any(recommended),
        untimed,
    )


def _measured(row: dict[str, Any], case: Case) -> Measured:
    first, error = row.get("first_call_s"), row.get("error")
    return Measured(
        *_candidate(row["backend"], row["route"], case),
        _seconds(row["seconds"]),
        str(Verdict(row["verdict"])),
        _text(row.get("code", "")),
        None if first is None else _seconds(first),
        None if error is None else _number(error, 0.0, 1e18),
    )


def _untimed(row: dict[str, Any], case: Case) -> Untimed:
    seconds, memory = row.get("at_least_s"), row.get("at_least_bytes")
    return Untimed(
        *_candidate(row["backend"], row["route"], case),
        str(State(row["state"])),
        _text(row["reason"]),
        None if seconds is None else _seconds(seconds),
        None if memory is None else _number(memory, 0.0, 1e18),
        _text(row.get("code", "")),
        None if row.get("case") is None else Case(**row["case"]),
    )


def _from_1(row: dict[str, Any]) -> dict[str, Any]:
    """Version 1 told how one failed, and after how long, in its sentence only."""
    reason = _text(row["reason"])
    late = re.search(r"gave no answer within ([0-9.]+) s", reason)
    if reason.startswith("its error is"):
        state = State.WRONG
    elif late or reason.startswith("predicted to take"):
        state = State.TIMEOUT
    else:
        state = State.ERROR
    return {**row, "state": state, "at_least_s": float(late[1]) if late else None}


def _coefficients(table: tuple[str, str, Any]) -> tuple[str, str, dict[str, float]]:
    backend, dtype, by_kind = table
    if dtype not in DTYPES:
        raise ValueError("no such dtype")
    return _text(backend), dtype, {k: _number(by_kind[k], 0.0, 1e3) for k in costs.KINDS}


def _candidate(backend: Any, route: Any, case: Case) -> Candidate:
    """The backend may be a plug-in's that has gone; a route is one of the descriptor's."""
    if route not in Subject("descriptor", case.descriptor).routes():
        raise ValueError("no such route")
    return Candidate.parse(f"{_text(backend)}/{route}")


def _seconds(value: Any) -> float:
    return _number(value, *_SECONDS)


def _number(value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    number = float(value)
    if not (isfinite(number) and low <= number <= high):
        raise ValueError("out of range")
    return number


def _threads(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**20:
        raise ValueError("no number of threads")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not true or false")
    return value


def _text(value: Any) -> str:
    """A line that a terminal can show."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return "".join(c if c.isprintable() else " " for c in value[:1000])


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value
