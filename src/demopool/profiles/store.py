"""Profiles: what ``choose`` found on this machine, for ``backend="auto"`` and ``explain``.

One readable JSON file per machine and software, named by the key of its fingerprint, in the user's
cache directory. It holds what is known of every case, and coefficients of the cost model fitted to
the measurements. ``records.py`` says what the values mean, ``file_format.py`` how they are stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..common import places
from ..common.files import locked, write_bytes
from ..errors import InvalidInput
from ..machine import fingerprint, system
from ..measurement.code_identity import code_key
from ..problem.cases import Case
from ..problem.vocabulary import Backend, State, Verdict
from . import file_format
from .fitting import fit
from .records import Decided, Measured, Profile, Untimed, identity, parameters

if TYPE_CHECKING:
    from ..choosing.answer_types import Choice

LOOK_SECONDS = 1.0
"""How soon a process sees that its profile or its surroundings have changed. A small image is
described in little more time than it takes to look."""


class Version(NamedTuple):
    """What is known here depends on: the file of the profile, its state, and usual threads."""

    path: Path
    stamp: Any
    threads: int


_UNTIMED = (State.WRONG, State.ERROR, State.TIMEOUT, State.OUT_OF_MEMORY)


def here() -> Profile:
    """The profile of this machine and software, without measurements of code that has changed."""
    return _current(*version_of_here())


def path_here() -> Path:
    """The file of this machine's profile; it may not exist."""
    return _path(_key())


def version_of_here() -> Version:
    """A value that changes when this process or another changes the profile."""
    global _seen
    now, seen = time.monotonic(), _seen  # which another thread may forget meanwhile
    if seen is None or now - seen[0] >= LOOK_SECONDS:
        path = path_here()
        _seen = seen = now, Version(path, _stamp(path), system.usual_threads())
    return seen[1]


def remember(choice: Choice) -> str:
    """Add the results of a race to the profile of its machine; returns why it cannot, or nothing.

    What other processes have written meanwhile is kept, also on the same case: a recommendation is
    not replaced by less, and a time is not lost to a race without one. Races with cold caches say
    nothing about the calls that ``auto`` makes, and are not added.
    """
    if choice.case.is_cold:
        return ""
    found = _found(choice)
    if not (found.candidates or found.untimed):
        return ""
    path = _path(choice.fingerprint or _key())
    try:
        with locked(path):
            file_format.check_replaceable(path)
            stored = file_format.read(path, is_locked=True).decided
            before = _still_true(stored)
            if len(before) < len(stored):
                write_bytes(path.with_name(path.name + ".before"), path.read_bytes())
            decided = _with(before, found)
            file_format.write(path, Profile(decided, fit(decided, choice.threads)))
    except OSError as problem:
        return f"the profile could not be saved, so auto does not know of it: {problem.strerror}"
    except InvalidInput as problem:
        return f"the profile could not be saved, so auto does not know of it: {problem}"
    forget()
    return ""


def outdated() -> int:
    """How many cases of this machine's profile were measured with code that has changed since."""
    return len(file_format.read(path_here()).decided) - len(here().decided)


def reset() -> int:
    """Forget everything measured on this machine; returns the number of cases."""
    path = path_here()
    with locked(path):
        known = len(file_format.read(path, is_locked=True).decided)
        path.unlink(missing_ok=True)
    forget()
    return known


def forget() -> None:
    """Look again when the profile is next asked for."""
    global _seen
    _seen = None


# --- what a race has shown ---


def _found(choice: Choice) -> Decided:
    by_call = choice.calls is None  # a total says nothing about who is fastest after the first call
    measured = tuple(
        Measured(
            row.backend,
            row.route,
            row.median_s,
            str((by_call and row.verdict) or Verdict.UNKNOWN),
            choice.codes.get(row.backend, ""),
            row.first_call_s if row.first_call_s and row.first_call_s > 0 else None,
            row.error,
        )
        for row in choice.rows
        if row.state is State.OK and row.median_s and file_format.is_time(row.median_s)
    )
    return Decided(
        choice.case,
        choice.threads,
        str(choice.state if by_call else Verdict.UNKNOWN),
        (by_call and choice.backend) or "",
        (by_call and choice.route) or "",
        measured,
        datetime.now(UTC).isoformat(timespec="seconds"),
        choice.whole and choice.backend is not None and bool(measured),
        tuple(_untimed(choice)),
    )


def _untimed(choice: Choice) -> Iterator[Untimed]:
    """Candidates that failed when tried; those left out, by plan or prediction, showed nothing."""
    for row in choice.rows:
        if row.state not in _UNTIMED or row.untried or not row.route:
            continue
        bound = row.at_least_s
        if row.state is State.TIMEOUT and bound is None:
            continue
        on_gpu = Backend(row.backend).on_gpu
        peak = row.peak_device_bytes if on_gpu else row.peak_host_bytes
        yield Untimed(
            row.backend,
            row.route,
            str(row.state),
            row.reason,
            bound if bound and file_format.is_time(bound) else None,
            peak if row.state is State.OUT_OF_MEMORY else None,
            code_key(row.backend),
            choice.case if row.state is State.WRONG else None,
        )


def _with(before: Iterable[Decided], new: Decided) -> tuple[Decided, ...]:
    """The known records and the new one, merged if of the same case and number of threads."""
    kept, merged = [], new
    for old in before:
        if identity(old.case) == identity(new.case) and old.threads == new.threads:
            merged = _merged(old, merged, new.case)
        else:
            kept.append(old)
    return (*kept, merged)


def _merged(old: Decided, new: Decided, checked: Case) -> Decided:
    """The better recommendation; of each candidate the latest time, or why it has none.

    A time clears an earlier failure of the candidate; a wrong result is cleared only if it was
    ``checked`` with the same gamma, tau and p. A failure does not clear an earlier time: a call
    that takes too long on a loaded machine does not undo a measurement.
    """
    answer = old if _is_better(old, new) else new
    times = {
        (m.backend, m.route): m
        for of in (old, new)
        for m in (of.candidates if _same(of, answer) else _without_errors(of.candidates))
    }
    again = {(m.backend, m.route) for m in new.candidates}
    without: dict[tuple[Any, ...], Untimed] = {}
    for u in old.untimed:
        u = replace(u, case=u.case or old.case) if u.state == State.WRONG else u
        same = u.case is None or parameters(u.case) == parameters(checked)
        if not (same and (u.backend, u.route) in again):
            without[_fault(u)] = u
    for u in new.untimed:
        before = without.get(_fault(u))
        crashed = before is not None and before.state == State.ERROR != u.state
        without[_fault(u)] = before if before and crashed else u
    return replace(
        answer,
        candidates=tuple(times.values()),
        untimed=tuple(without.values()),
        measured_at=new.measured_at,
    )


def _same(of: Decided, answer: Decided) -> bool:
    return parameters(of.case) == parameters(answer.case)


def _without_errors(measured: Iterable[Measured]) -> Iterator[Measured]:
    """Their times hold for another gamma, tau or p."""
    return (replace(m, error=None) for m in measured)


def _fault(of: Untimed) -> tuple[Any, ...]:
    """What a later failure replaces, except that running out of time or memory clears no crash."""
    return of.backend, of.route, parameters(of.case) if of.case else None


def _is_better(old: Decided, new: Decided) -> bool:
    """Whether the old recommendation stays: the new race was restricted, or undecided."""
    if old.whole != new.whole:
        return old.whole
    return new.state == Verdict.UNKNOWN and old.state != Verdict.UNKNOWN


# --- what is still true ---


def _still_true(decided: tuple[Decided, ...]) -> tuple[Decided, ...]:
    """Without measurements of code that has changed since."""
    found = []
    for answer in decided:
        measured = tuple(m for m in answer.candidates if _is_current(m))
        untimed = tuple(u for u in answer.untimed if _is_current(u))
        recommended = any((m.backend, m.route) == (answer.backend, answer.route) for m in measured)
        # A recommendation stands only if every candidate of its race is unchanged.
        whole = answer.whole and recommended and len(measured) == len(answer.candidates)
        if measured or untimed:
            found.append(replace(answer, candidates=measured, untimed=untimed, whole=whole))
    return tuple(found)


def _is_current(of: Measured | Untimed) -> bool:
    return not of.code or of.code == code_key(of.backend)


# --- the file ---

_seen: tuple[float, Version] | None = None


def _stamp(path: Path) -> Any:
    """Every write makes a new file, so inode, time and size identify it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _path(key: str) -> Path:
    return _file(places.cache_folder(), key)


@lru_cache(maxsize=8)
def _file(folder: Path, key: str) -> Path:
    return folder / "profiles" / f"{key}.json"


@cache
def _key() -> str:
    return fingerprint.key(fingerprint.fingerprint())


@lru_cache(maxsize=8)
def _current(path: Path, stamp: Any, threads: int) -> Profile:
    stored = file_format.read(path)
    decided = _still_true(stored.decided)
    # The file has coefficients for the threads of the race that wrote it.
    if decided == stored.decided and len({d.threads for d in decided}) <= 1:
        return stored
    return Profile(decided, fit(decided, threads) if stored.coefficients else {})


__all__ = [
    "Decided",
    "Measured",
    "Profile",
    "Untimed",
    "fit",
    "forget",
    "here",
    "outdated",
    "path_here",
    "remember",
    "reset",
    "version_of_here",
]
