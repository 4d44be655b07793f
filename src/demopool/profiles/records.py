"""What is known of the jobs measured on a machine: times, bounds and failures, as plain values.

Only wrong results and crashes rule a candidate out. A call that was given up, or that did not fit,
gives a lower bound of its time, or of its memory if that was seen, from that size on. Times belong
to a number of threads; those with another number count only where there are no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.operations import OPERATIONS, PARAMETERS
from ..problem.vocabulary import State
from .eligibility import Ineligible

# What the time of a case hardly depends on: gamma, tau and p.
_IRRELEVANT = tuple(name for name in PARAMETERS if name not in ("iterations", "order"))

SAME = ("descriptor", "dtype", "order", "data")
"""What cases must share for the time of one to say anything about the other's."""


@dataclass(frozen=True)
class Measured:
    """One candidate of one case; ``error`` is of its gamma, tau and p."""

    backend: str
    route: str
    seconds: float
    verdict: str
    code: str = ""
    first_call_s: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class Untimed:
    """A candidate of one case that has no time, and why.

    at_least_s       a call was seen to take longer
    at_least_bytes   a call was seen to need this much
    case             where a result was wrong: the case with its gamma, tau and p
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
    """What is known of one case; ``backend`` and ``route`` are recommended, if any.

    whole    all candidates could compete. A restricted race recommends nothing to ``auto``, but its
             times are measurements all the same
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

    def record(self, case: Case, threads: int | None = None) -> Decided | None:
        """What is known of this case; gamma, tau and p are ignored.

        Of several records, the one with this number of threads; else the latest, preferably one
        with a recommendation.
        """
        wanted = identity(case)
        found = [d for d in reversed(self.decided) if identity(d.case) == wanted]
        return min(found, key=lambda d: (d.threads != threads, not d.whole), default=None)

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that conformed and were timed at least once."""
        found = (m.backend for decided in self.decided for m in decided.candidates)
        return tuple(dict.fromkeys(found))

    def error(self, case: Case, candidate: Candidate) -> float | None:
        """The largest that was measured on this case, with the same gamma, tau and p."""
        found = (
            m.error
            for d, m in self._times(case, candidate)
            if m.error is not None
            and all(_equal(d.case, case, name) for name in sizes(case))
            and parameters(d.case) == parameters(case)
        )
        return max(found, default=None)

    def failure(self, case: Case, candidate: Candidate) -> Ineligible | None:
        """Why a candidate is not to be used for such a case: it was wrong, or it crashed.

        A wrong result counts for that descriptor and dtype at every size, for parameters that are
        at least as hard: a power with that p or a smaller one, weights with that gamma and tau. A
        crash is taken to come from the size: it counts for that case and larger ones, except where
        the candidate has since been timed on a case as large.
        """
        found = None
        for decided, untimed in self._untimed(case, candidate):
            if untimed.state == State.WRONG and _is_as_hard(case, untimed.case or decided.case):
                return Ineligible(State.WRONG, untimed.reason)
            if untimed.state != State.ERROR:
                continue
            if identity(decided.case) == identity(case) or (
                is_at_least(case, decided.case)
                and not any(is_at_least(d.case, case) for d, _ in self._times(case, candidate))
            ):
                found = Ineligible(State.ERROR, untimed.reason)
        return found

    def at_least_seconds(
        self, case: Case, candidate: Candidate, threads: int | None = None
    ) -> float:
        """The lower bound of a call's time: it took longer on this case or a smaller one."""
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

        Without those that the candidate has disproved on a case at least as large. Only with this
        number of threads, if anything is known of it.
        """
        times, late = self._clocked(case, candidate, threads)
        for decided, untimed in late:
            bound = untimed.at_least_s or 0.0
            if not any(m.seconds < bound and is_at_least(d.case, decided.case) for d, m in times):
                yield decided.case, bound

    def at_least_bytes(self, case: Case, candidate: Candidate) -> float:
        """The lower bound of a call's memory: this case or a smaller one was seen not to fit.

        It holds until the candidate is timed on a case at least as large as that.
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
        """Times of the candidate on all cases of the same kind, of any size.

        Only with this number of threads, if anything is known of it.
        """
        return self._clocked(case, candidate, threads)[0]

    def _clocked(
        self, case: Case, candidate: Candidate, threads: int | None
    ) -> tuple[list[tuple[Decided, Measured]], list[tuple[Decided, Untimed]]]:
        """Times, and calls that were given up: with this number of threads if any, else all."""
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
    """The sizes that a case has: only sketches have k, only weights have iterations."""
    found = ["batch", "n", "d"]
    if case.descriptor.is_sketched:
        found.append("k")
    if case.descriptor.method == "democratic":
        found.append("iterations")
    return tuple(found)


def is_at_least(case: Case, other: Case) -> bool:
    """Of the same kind, and no size smaller: it takes no less time and no less memory."""
    return all(_equal(case, other, name) for name in SAME) and all(
        getattr(case, name) >= getattr(other, name) for name in sizes(case)
    )


def _equal(case: Case, other: Case, name: str) -> bool:
    return bool(getattr(case, name) == getattr(other, name))


def parameters(case: Case) -> tuple[float, ...]:
    """Those of gamma, tau and p that the descriptor has; its result depends on them."""
    given = case.parameters_of(*(OPERATIONS[step] for step in case.descriptor.operations))
    return tuple(value for name, value in given.items() if name in _IRRELEVANT)


def _is_as_hard(case: Case, other: Case) -> bool:
    """Of one descriptor: small powers lose the most digits; gamma and tau have no such order."""
    if case.descriptor.method == "power":
        return case.p <= other.p
    return parameters(case) == parameters(other)
