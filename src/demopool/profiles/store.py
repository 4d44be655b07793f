"""Profiles: what ``choose`` found on this machine, for ``backend="auto"`` and ``explain``.

One readable JSON file per machine and software, named by the key of its fingerprint, in the user's
cache directory. It holds what is known of every case, and coefficients of the cost model fitted to
what was measured. What a value means is in ``learnt.py``, the file's own rules in
``profile_files.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common import places
from ..common.files import locked
from ..errors import InvalidInput
from ..machine import fingerprint, system
from ..measurement.code_identity import code_key
from ..problem.cases import Case
from ..problem.vocabulary import Backend, State, Verdict
from . import file_format
from .fitting import fit
from .records import Decided, Measured, Profile, Untimed, identity, parameters

if TYPE_CHECKING:
    from ..choosing.choice import Choice

LOOK_SECONDS = 1.0
"""How soon a process sees what another has learnt. Looking costs two microseconds, asking none."""

_UNTIMED = (State.WRONG, State.ERROR, State.TIMEOUT, State.OUT_OF_MEMORY)


def here() -> Profile:
    """Of this machine and its software, as far as the code is still that which was measured."""
    return _current(*version_of_here(), system.usual_threads())


def path_here() -> Path:
    """The file of this machine's profile; there may be none."""
    return _path(_key())


def version_of_here() -> tuple[Path, Any]:
    """Changes when the profile does, by this process or another."""
    path = path_here()
    looked_at, stamp = _seen.get(path, (-LOOK_SECONDS, None))
    now = time.monotonic()
    if now - looked_at >= LOOK_SECONDS:
        stamp = _stamp(path)
        _seen[path] = now, stamp
    return path, stamp


def remember(choice: Choice) -> str:
    """Add what a race has shown to the profile of its machine; a sentence if it cannot be.

    What others have written meanwhile is read again and kept, also what is known of the same case:
    an answer does not make way for less, and no time is forgotten for a race that has none.
    """
    found = _found(choice)
    if not (found.candidates or found.untimed):
        return ""
    path = _path(choice.fingerprint or _key())
    try:
        with locked(path):
            file_format.check_replaceable(path)
            before = _still_true(file_format.read(path, is_locked=True).decided)
            decided = _with(before, found)
            file_format.write(path, Profile(decided, fit(decided, choice.threads)))
    except OSError as problem:
        return f"the profile could not be saved, so auto does not know of it: {problem.strerror}"
    except InvalidInput as problem:
        return f"the profile could not be saved, so auto does not know of it: {problem}"
    forget()
    return ""


def reset() -> int:
    """Forget all that was learnt on this machine; returns of how many cases."""
    path = path_here()
    with locked(path):
        known = len(file_format.read(path, is_locked=True).decided)
        path.unlink(missing_ok=True)
    forget()
    return known


def forget() -> None:
    """Read the profile again the next time it is asked for."""
    _seen.clear()


# --- what a race has shown ---


def _found(choice: Choice) -> Decided:
    measured = tuple(
        Measured(
            row.backend,
            row.route,
            row.median_s,
            str(row.verdict or Verdict.UNKNOWN),
            choice.codes.get(row.backend, ""),
        )
        for row in choice.rows
        if row.state is State.OK and row.median_s and file_format.is_time(row.median_s)
    )
    return Decided(
        choice.case,
        choice.threads,
        str(choice.state),
        choice.backend or "",
        choice.route or "",
        measured,
        datetime.now(UTC).isoformat(timespec="seconds"),
        choice.whole and choice.backend is not None and bool(measured),
        tuple(_untimed(choice)),
    )


def _untimed(choice: Choice) -> Iterator[Untimed]:
    """Who failed when it was tried; who was left out, by plan or prediction, has shown nothing."""
    for row in choice.rows:
        if row.state not in _UNTIMED or not row.route:
            continue
        if row.reason.startswith("the worker could not be started"):
            continue  # which says nothing of the candidate
        bound = row.at_least_s
        if row.state is State.TIMEOUT and bound is None:
            continue
        if row.state is State.OUT_OF_MEMORY and row.reason.startswith("predicted"):
            continue  # no field of a row tells
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
    """What was known, and what is new; of the same case and threads they become one."""
    kept, merged = [], new
    for old in before:
        if identity(old.case) == identity(new.case) and old.threads == new.threads:
            merged = _merged(old, merged, new.case)
        else:
            kept.append(old)
    return (*kept, merged)


def _merged(old: Decided, new: Decided, checked: Case) -> Decided:
    """The better answer; of each candidate the latest time, and why it has none.

    Who was timed again has made good what he failed at; who was wrong, only if he was ``checked``
    with the same gamma, tau and p. Who failed keeps the time he had: it was measured, and a call
    that took too long on a loaded machine does not undo it.
    """
    answer = old if _is_better(old, new) else new
    times = {(m.backend, m.route): m for m in (*old.candidates, *new.candidates)}
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


def _fault(of: Untimed) -> tuple[Any, ...]:
    """What a later one replaces; a lack of time or memory does not excuse who crashed."""
    return of.backend, of.route, parameters(of.case) if of.case else None


def _is_better(old: Decided, new: Decided) -> bool:
    """An answer does not make way for less: for that of a restricted race, or for a doubt."""
    if old.whole != new.whole:
        return old.whole
    return new.state == Verdict.UNKNOWN and old.state != Verdict.UNKNOWN


# --- what is still true ---


def _still_true(decided: tuple[Decided, ...]) -> tuple[Decided, ...]:
    """Without what was measured of code that is not there any more."""
    found = []
    for answer in decided:
        measured = tuple(m for m in answer.candidates if _is_current(m))
        untimed = tuple(u for u in answer.untimed if _is_current(u))
        recommended = any((m.backend, m.route) == (answer.backend, answer.route) for m in measured)
        # An answer counts as one only if all who competed for it are what they were.
        whole = answer.whole and recommended and len(measured) == len(answer.candidates)
        if measured or untimed:
            found.append(replace(answer, candidates=measured, untimed=untimed, whole=whole))
    return tuple(found)


def _is_current(of: Measured | Untimed) -> bool:
    return not of.code or of.code == code_key(of.backend)


# --- the file ---

_seen: dict[Path, tuple[float, Any]] = {}


def _stamp(path: Path) -> Any:
    """Every writing makes a new file, so its number, time and size tell."""
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
    "path_here",
    "remember",
    "reset",
    "version_of_here",
]
