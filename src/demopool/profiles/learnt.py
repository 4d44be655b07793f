"""What was learnt of jobs on a machine, as plain values: times, bounds, and who was wrong or died.

Only *wrong* and *crashed* speak against a candidate. A call that was given up, or did not fit, only
tells how long it takes at least, or how much memory it needs at least if that was seen, from that
size on. Times are of a number of threads: those of another count only where there are no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.operations import OPERATIONS, PARAMETERS
from ..problem.vocabulary import State

# What the time of a case does not depend on, or hardly: gamma, tau and p.
_IRRELEVANT = tuple(name for name in PARAMETERS if name not in ("iterations", "order"))

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
    at_least_bytes   a call was seen to need as much
    case             of who was wrong: with its gamma, tau and p, which the time hardly depends on
    """

    backend: str
    route: str
    state: str
    reason: str
    at_least_s: float | None = None
    at_least_bytes: float | None = None
    code: str = ""
    case: Case | None = None


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
        """The record of the very case, if it is an answer for ``auto``."""
        found = self.record(case, threads)
        return found if found and found.whole else None

    def record(self, case: Case, threads: int | None = None) -> Decided | None:
        """What is known of the very case, whatever gamma, tau and p, be it an answer or not.

        That of so many threads, if there is one; else the latest, an answer rather than none.
        """
        wanted = identity(case)
        found = [d for d in reversed(self.decided) if identity(d.case) == wanted]
        return min(found, key=lambda d: (d.threads != threads, not d.whole), default=None)

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that were right, and measured, at least once."""
        found = (m.backend for decided in self.decided for m in decided.candidates)
        return tuple(dict.fromkeys(found))

    def bar(self, case: Case, candidate: Candidate) -> tuple[State, str] | None:
        """Why a candidate is not to be used for such a case: it was wrong, or crashed.

        Who was wrong is not trusted with that descriptor and dtype at any size, as far as it was as
        hard: of a power with that p or a smaller one, of weights with that gamma and tau. A crash
        is taken to come from the size: it bars that case and larger ones, except where the
        candidate was since seen to do as much.
        """
        found = None
        for decided, untimed in self._untimed(case, candidate):
            if untimed.state == State.WRONG and _is_as_hard(case, untimed.case or decided.case):
                return State.WRONG, untimed.reason
            if untimed.state != State.ERROR:
                continue
            if identity(decided.case) == identity(case) or (
                is_at_least(case, decided.case)
                and not any(is_at_least(d.case, case) for d, _ in self._times(case, candidate))
            ):
                found = State.ERROR, untimed.reason
        return found

    def at_least_seconds(
        self, case: Case, candidate: Candidate, threads: int | None = None
    ) -> float:
        """What a call takes at least, because it was seen to take longer on no larger a case."""
        found = (
            bound
            for smaller, bound in self.time_bounds(case, candidate, threads)
            if is_at_least(case, smaller)
        )
        return max(found, default=0.0)

    def time_bounds(
        self, case: Case, candidate: Candidate, threads: int | None = None
    ) -> Iterator[tuple[Case, float]]:
        """Cases of the same kind where a call was given up, and after how long.

        Left out are those that the candidate has disproved on a case at least as large. Only of so
        many threads, where anything is known of them.
        """
        times, late = self._clocked(case, candidate, threads)
        for decided, untimed in late:
            bound = untimed.at_least_s or 0.0
            if not any(m.seconds < bound and is_at_least(d.case, decided.case) for d, m in times):
                yield decided.case, bound

    def at_least_bytes(self, case: Case, candidate: Candidate) -> float:
        """What a call needs at least, because no larger a case was seen not to fit.

        Until the candidate is timed on a case at least as large as that.
        """
        done = [d.case for d, _ in self._times(case, candidate)]
        found = (
            untimed.at_least_bytes
            for decided, untimed in self._untimed(case, candidate)
            if untimed.at_least_bytes is not None
            and is_at_least(case, decided.case)
            and not any(is_at_least(other, decided.case) for other in done)
        )
        return max(found, default=0.0)

    def times(
        self, case: Case, candidate: Candidate, threads: int | None = None
    ) -> list[tuple[Decided, Measured]]:
        """Of the candidate on all cases of the same kind, whatever their sizes.

        Only of so many threads, where anything is known of them.
        """
        return self._clocked(case, candidate, threads)[0]

    def _clocked(
        self, case: Case, candidate: Candidate, threads: int | None
    ) -> tuple[list[tuple[Decided, Measured]], list[tuple[Decided, Untimed]]]:
        """Times, and calls that were given up: of so many threads if there are any, else all."""
        times = list(self._times(case, candidate))
        late = [(d, u) for d, u in self._untimed(case, candidate) if u.at_least_s is not None]
        if any(d.threads == threads for d, _ in (*times, *late)):
            times = [(d, m) for d, m in times if d.threads == threads]
            late = [(d, u) for d, u in late if d.threads == threads]
        return times, late

    def _times(self, case: Case, candidate: Candidate) -> Iterator[tuple[Decided, Measured]]:
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
    if case.descriptor.is_sketched:
        found.append("k")
    if case.descriptor.method == "democratic":
        found.append("iterations")
    return tuple(found)


def is_at_least(case: Case, other: Case) -> bool:
    """Of the same kind, and no size smaller: takes no less time, and no less memory."""
    return all(_equal(case, other, name) for name in SAME) and all(
        getattr(case, name) >= getattr(other, name) for name in sizes(case)
    )


def _equal(case: Case, other: Case, name: str) -> bool:
    return bool(getattr(case, name) == getattr(other, name))


def parameters(case: Case) -> tuple[float, ...]:
    """Those of gamma, tau and p that the descriptor has: a result depends on them."""
    given = case.parameters_of(*(OPERATIONS[step] for step in case.descriptor.operations))
    return tuple(value for name, value in given.items() if name in _IRRELEVANT)


def _is_as_hard(case: Case, other: Case) -> bool:
    """Of one descriptor: small powers lose the most digits; gamma and tau have no such order."""
    if case.descriptor.method == "power":
        return case.p <= other.p
    return parameters(case) == parameters(other)
