"""What was learnt of jobs on a machine, as plain values: times, bounds, and who was wrong or died.

Only *wrong* and *crashed* speak against a candidate. A call that was given up, or did not fit, only
tells how long it takes at least, or how much memory it needs at least, from that size on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from .candidates import Candidate
from .cases import Case
from .vocabulary import State

# What the time of a case does not depend on, or hardly.
_IRRELEVANT = ("gamma", "tau", "p")

SAME = ("descriptor", "dtype", "order", "data")
"""What cases must share to tell anything about each other's time."""


@dataclass(frozen=True)
class Measured:
    """One candidate of one case."""

    backend: str
    route: str
    seconds: float
    verdict: str
    code: str = ""


@dataclass(frozen=True)
class Untimed:
    """A candidate of one case without a time, and why.

    at_least_s       a call was seen to take longer
    at_least_bytes   so much was free when a call was seen to need more
    """

    backend: str
    route: str
    state: str
    reason: str
    at_least_s: float | None = None
    at_least_bytes: float | None = None
    code: str = ""


@dataclass(frozen=True)
class Decided:
    """What is known of one case; ``backend`` and ``route`` are the recommended ones, if any.

    whole    all candidates could compete; what a restricted race found is no answer for ``auto``,
             its times are still measurements
    """

    case: Case
    threads: int
    state: str
    backend: str
    route: str
    candidates: tuple[Measured, ...]
    measured_at: str = ""
    whole: bool = True
    untimed: tuple[Untimed, ...] = ()


@dataclass(frozen=True)
class Profile:
    """``coefficients``: backend -> dtype -> seconds per unit of each kind of work."""

    decided: tuple[Decided, ...] = ()
    coefficients: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def of(self, case: Case, threads: int | None = None) -> Decided | None:
        """The answer for the very case, whatever gamma, tau and p; for so many threads if known."""
        return _of_threads([d for d in self._same(case) if d.whole], threads)

    def record(self, case: Case, threads: int | None = None) -> Decided | None:
        """All that is known of the very case, be it an answer or not."""
        return _of_threads(list(self._same(case)), threads)

    def _same(self, case: Case) -> Iterator[Decided]:
        """The latest first."""
        wanted = identity(case)
        return (d for d in reversed(self.decided) if identity(d.case) == wanted)

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that were right, and measured, at least once."""
        found = (m.backend for decided in self.decided for m in decided.candidates)
        return tuple(dict.fromkeys(found))

    def bar(self, case: Case, candidate: Candidate) -> tuple[State, str] | None:
        """Why a candidate is not to be used for such a case: it was wrong, or crashed.

        Who was wrong is not trusted with that descriptor and dtype at any size. A crash is taken to
        come from the size: it bars that case and larger ones, except where the candidate was since
        seen to do as much.
        """
        found = None
        for decided, untimed in self._untimed(case, candidate):
            if untimed.state == State.WRONG:
                return State.WRONG, untimed.reason
            if untimed.state != State.ERROR:
                continue
            if identity(decided.case) == identity(case) or (
                is_at_least(case, decided.case)
                and not any(is_at_least(d.case, case) for d, _ in self.times(case, candidate))
            ):
                found = State.ERROR, untimed.reason
        return found

    def at_least_seconds(self, case: Case, candidate: Candidate) -> float:
        """What a call takes at least, because it was seen to take longer on no larger a case."""
        found = (
            bound
            for smaller, bound in self.time_bounds(case, candidate)
            if is_at_least(case, smaller)
        )
        return max(found, default=0.0)

    def time_bounds(self, case: Case, candidate: Candidate) -> Iterator[tuple[Case, float]]:
        """Cases of the same kind where a call was given up, and after how long.

        Left out are those that the candidate has disproved on a case at least as large.
        """
        for decided, untimed in self._untimed(case, candidate):
            bound = untimed.at_least_s
            if bound is not None and not any(
                m.seconds < bound and is_at_least(d.case, decided.case)
                for d, m in self.times(case, candidate)
            ):
                yield decided.case, bound

    def at_least_bytes(self, case: Case, candidate: Candidate) -> float:
        """What a call needs at least, because no larger a case was seen not to fit."""
        found = (
            untimed.at_least_bytes
            for decided, untimed in self._untimed(case, candidate)
            if untimed.at_least_bytes is not None and is_at_least(case, decided.case)
        )
        return max(found, default=0.0)

    def times(self, case: Case, candidate: Candidate) -> Iterator[tuple[Decided, Measured]]:
        """Of the candidate on all cases of the same kind, whatever their sizes."""
        for decided in self._alike(case):
            for m in decided.candidates:
                if (m.backend, m.route) == tuple(candidate):
                    yield decided, m

    def _untimed(self, case: Case, candidate: Candidate) -> Iterator[tuple[Decided, Untimed]]:
        for decided in self._alike(case):
            for u in decided.untimed:
                if (u.backend, u.route) == tuple(candidate):
                    yield decided, u

    def _alike(self, case: Case) -> Iterator[Decided]:
        return (d for d in self.decided if all(_equal(d.case, case, name) for name in SAME))


def identity(case: Case) -> tuple[Any, ...]:
    """What the time of a case depends on."""
    described = {k: v for k, v in asdict(case).items() if k not in _IRRELEVANT}
    for name in {"k", "iterations"} - set(sizes(case)):
        del described[name]
    return tuple(sorted(described.items()))


def sizes(case: Case) -> tuple[str, ...]:
    """The sizes that a case has: no sketch without a length, no iterations but of weights."""
    found = ["batch", "n", "d"]
    if case.descriptor.startswith("sketched-"):
        found.append("k")
    if case.descriptor.endswith("democratic"):
        found.append("iterations")
    return tuple(found)


def is_at_least(case: Case, other: Case) -> bool:
    """Of the same kind, and no size smaller: takes no less time, and no less memory."""
    return all(_equal(case, other, name) for name in SAME) and all(
        getattr(case, name) >= getattr(other, name) for name in sizes(case)
    )


def _equal(case: Case, other: Case, name: str) -> bool:
    return bool(getattr(case, name) == getattr(other, name))


def _of_threads(found: list[Decided], threads: int | None) -> Decided | None:
    return next((d for d in found if d.threads == threads), found[0] if found else None)
