"""Profiles: what ``choose`` found on this machine, for ``backend="auto"`` and ``explain``.

One readable JSON file per machine and software, named by the key of its fingerprint, in the user's
cache directory. It holds the answer for every case, and coefficients of the cost model fitted to
what was measured. A file that is damaged, or of another schema, is passed over with a warning.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import costs, places
from .candidates import Candidate, Subject
from .cases import Case
from .codes import code_key
from .errors import InvalidInput
from .files import write_text
from .measurement import fingerprint
from .vocabulary import State, Verdict, result_dtype

if TYPE_CHECKING:
    from .answers import Choice

SCHEMA = 1

# How much a coefficient may be trusted before anything is measured: a measured ratio of 1 + x
# weighs as much as a coefficient that is off by x / _PRIOR from what is shipped.
_PRIOR = 0.1

_changes = 0

_FAILURES = (State.WRONG, State.ERROR, State.TIMEOUT)

# What the time of a case does not depend on, or hardly.
_IRRELEVANT = ("gamma", "tau", "p")


@dataclass(frozen=True)
class Measured:
    """One candidate of one case."""

    backend: str
    route: str
    seconds: float
    verdict: str
    code: str = ""


@dataclass(frozen=True)
class Failed:
    """A candidate that is not to be used for such a case, and why."""

    backend: str
    route: str
    reason: str
    code: str = ""


@dataclass(frozen=True)
class Decided:
    """The answer for one case; ``backend`` and ``route`` are the recommended ones.

    whole    all candidates could compete; what a restricted race found is no answer for ``auto``,
             its times are still measurements
    failed   candidates that were wrong, or did not survive
    """

    case: Case
    threads: int
    state: str
    backend: str
    route: str
    candidates: tuple[Measured, ...]
    measured_at: str = ""
    whole: bool = True
    failed: tuple[Failed, ...] = ()


@dataclass(frozen=True)
class Profile:
    """``coefficients``: backend -> dtype -> seconds per unit of each kind of work."""

    decided: tuple[Decided, ...] = ()
    coefficients: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def of(self, case: Case, threads: int | None = None) -> Decided | None:
        """The answer for the very case, whatever gamma, tau and p; for so many threads if known."""
        wanted = _identity(case)
        same = [d for d in reversed(self.decided) if d.whole and _identity(d.case) == wanted]
        return next((d for d in same if d.threads == threads), same[0] if same else None)

    def failure(self, case: Case, candidate: Candidate) -> str:
        """Why a candidate is not to be used for such a case; empty if nothing is known."""
        for decided in self.decided:
            if (decided.case.descriptor, decided.case.dtype) == (case.descriptor, case.dtype):
                for failed in decided.failed:
                    if (failed.backend, failed.route) == tuple(candidate):
                        return failed.reason
        return ""

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that were right, and measured, at least once."""
        found = (m.backend for decided in self.decided for m in decided.candidates)
        return tuple(dict.fromkeys(found))


def here() -> Profile:
    """Of this machine and its software, as far as the code is still that which was measured."""
    return _current(_path(_key()))


def version_of_here() -> tuple[Path, int]:
    """Changes whenever this process sees another profile."""
    return _path(_key()), _changes


def remember(choice: Choice) -> str:
    """Add an answer to the profile of the machine it was measured on; a sentence if it cannot be.

    Written whole or not at all: of two that write at once the last one wins, and nothing breaks.
    """
    if choice.backend is None or choice.route is None or not choice.fingerprint:
        return ""
    measured = tuple(
        Measured(
            row.backend,
            row.route,
            row.median_s,
            str(row.verdict),
            choice.codes.get(row.backend, ""),
        )
        for row in choice.rows
        if row.state is State.OK and row.median_s is not None
    )
    if not measured:
        return ""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    failed = tuple(
        Failed(row.backend, row.route, row.reason, code_key(row.backend))
        for row in choice.rows
        if row.state in _FAILURES and row.route
    )
    answer = Decided(
        choice.case,
        choice.threads,
        choice.state,
        choice.backend,
        choice.route,
        measured,
        now,
        choice.whole,
        failed,
    )
    path = _path(choice.fingerprint)
    before = _still_true(_read(path).decided)
    same = [
        d
        for d in before
        if _identity(d.case) == _identity(choice.case) and d.threads == choice.threads
    ]
    if any(_is_better(old, answer) for old in same):
        return ""
    kept = [d for d in before if d not in same]
    profile = Profile((*kept, answer), {})
    profile = Profile(profile.decided, fit(profile.decided))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, _text(profile, choice.fingerprint))
    except (OSError, InvalidInput) as problem:
        return f"the profile could not be saved, so auto does not know of it: {problem}"
    global _changes
    _changes += 1
    forget()
    return ""


def forget() -> None:
    """Read the profile again the next time it is asked for."""
    _read.cache_clear()
    _current.cache_clear()


def _is_better(old: Decided, new: Decided) -> bool:
    """An answer does not make way for less: for that of a restricted race, or for a doubt."""
    if old.whole != new.whole:
        return old.whole
    return new.state == Verdict.UNKNOWN and old.state != Verdict.UNKNOWN


def _still_true(decided: tuple[Decided, ...]) -> tuple[Decided, ...]:
    """Without what was measured of code that is not there any more."""
    found = []
    for answer in decided:
        measured = tuple(m for m in answer.candidates if _is_current(m))
        failed = tuple(f for f in answer.failed if _is_current(f))
        recommended = any((m.backend, m.route) == (answer.backend, answer.route) for m in measured)
        # An answer counts as one only if all who competed for it are what they were.
        whole = answer.whole and recommended and len(measured) == len(answer.candidates)
        if measured or failed:
            found.append(replace(answer, candidates=measured, failed=failed, whole=whole))
    return tuple(found)


def _is_current(of: Measured | Failed) -> bool:
    return not of.code or of.code == code_key(of.backend)


def fit(decided: tuple[Decided, ...]) -> dict[str, dict[str, dict[str, float]]]:
    """Coefficients for every backend and dtype that was measured: those shipped, moved as far as
    the measurements ask for.

    Least squares of (predicted / measured - 1), and of (coefficient / shipped - 1) with a small
    weight: kinds of work that no measurement shows keep what was shipped.
    """
    rows: dict[tuple[str, str], list[tuple[dict[str, float], float]]] = {}
    for answer in decided:
        subject = Subject("descriptor", answer.case.descriptor)
        dtype = result_dtype(answer.case.dtype)
        for m in answer.candidates:
            counts = costs.counts_of(m.backend, subject.steps(m.route), answer.case)
            rows.setdefault((m.backend, dtype), []).append((counts, m.seconds))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (backend, dtype), measured in rows.items():
        found.setdefault(backend, {})[dtype] = _solve(costs.coefficients(backend, dtype), measured)
    return found


def _solve(
    shipped: dict[str, float], measured: list[tuple[dict[str, float], float]]
) -> dict[str, float]:
    from scipy.optimize import nnls

    kinds = [kind for kind in costs.KINDS if shipped[kind] > 0]
    # Unknowns are factors of what was shipped.
    ratios = np.array(
        [[counts.get(kind, 0.0) * shipped[kind] / s for kind in kinds] for counts, s in measured]
    )
    matrix = np.vstack([ratios, _PRIOR * np.eye(len(kinds))])
    target = np.concatenate([np.ones(len(measured)), np.full(len(kinds), _PRIOR)])
    factors, _ = nnls(matrix, target)
    return {**shipped, **{k: float(f * shipped[k]) for k, f in zip(kinds, factors, strict=True)}}


def _identity(case: Case) -> tuple[Any, ...]:
    """What the time of a case depends on."""
    described = {k: v for k, v in asdict(case).items() if k not in _IRRELEVANT}
    if not case.descriptor.startswith("sketched-"):
        del described["k"]
    if not case.descriptor.endswith("democratic"):
        del described["iterations"]
    return tuple(sorted(described.items()))


def _path(key: str) -> Path:
    return places.cache_folder() / "profiles" / f"{key}.json"


@cache
def _key() -> str:
    return fingerprint.key(fingerprint.fingerprint())


@cache
def _current(path: Path) -> Profile:
    stored = _read(path)
    decided = _still_true(stored.decided)
    if decided == stored.decided:
        return stored
    return Profile(decided, fit(decided) if stored.coefficients else {})


@cache
def _read(path: Path) -> Profile:
    """Once in a process: asking must cost nothing."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Profile()
    except (OSError, UnicodeDecodeError) as problem:
        return _ignored(path, str(problem))
    try:
        stored = json.loads(text)
        if stored["schema"] != SCHEMA:
            return _ignored(path, f"its schema is {stored['schema']}, this version's {SCHEMA}")
        if f"{stored['fingerprint']}.json" != path.name:
            return _ignored(path, "it is of another machine")
        return Profile(
            tuple(_decided(row) for row in stored["decided"]),
            {
                backend: {
                    dtype: {kind: float(by_kind[kind]) for kind in costs.KINDS}
                    for dtype, by_kind in of.items()
                }
                for backend, of in stored["coefficients"].items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        return _ignored(path, f"it is damaged ({type(problem).__name__}: {problem})")


def _ignored(path: Path, why: str) -> Profile:
    warnings.warn(
        f"The profile {path.name} is not used: {why}. `demopool choose` makes a new one.",
        RuntimeWarning,
        stacklevel=3,
    )
    return Profile()


def _decided(row: dict[str, Any]) -> Decided:
    measured = tuple(Measured(**m) for m in row["candidates"])
    failed = tuple(Failed(**f) for f in row.get("failed", ()))
    for m in measured:
        Candidate.parse(f"{m.backend}/{m.route}")
        if not m.seconds > 0:
            raise ValueError("a time is not positive")
    known = {**row, "case": Case(**row["case"]), "candidates": measured, "failed": failed}
    Verdict(known["state"])
    return Decided(**known)


def _text(profile: Profile, key: str) -> str:
    stored = {
        "schema": SCHEMA,
        "demopool": version("demopool"),
        "fingerprint": key,
        "machine": fingerprint.machine(),
        **asdict(profile),
    }
    return json.dumps(stored, indent=1, allow_nan=False) + "\n"
