"""The candidates that ``auto`` can take for a job, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass

from ..contract import registry
from ..machine.system import usual_threads
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.routes import find, split
from ..problem.vocabulary import State
from . import estimates, forks
from .eligibility import unsupported
from .learnt import Decided, Profile

DEFAULT = "numpy:cpu"


@dataclass(frozen=True)
class Option:
    """One candidate: what was predicted and measured, or why it does not come into question.

    at_least_s   a call was seen to take longer, here or on a smaller case
    state        of what speaks against it: ``unsupported``, ``wrong``, ``error``, ``out-of-memory``
    """

    backend: str
    route: str
    predicted_s: float | None = None
    measured_s: float | None = None
    at_least_s: float | None = None
    needed_bytes: float | None = None
    state: State = State.OK
    reason: str = ""

    @property
    def estimated_s(self) -> float:
        return self.measured_s or self.predicted_s or 0.0

    @property
    def name(self) -> str:
        return f"{self.backend} by {self.route}"


def options_for(
    case: Case,
    home: str,
    backend: str,
    route: str,
    subject: Subject,
    profile: Profile,
    known: Decided | None,
) -> tuple[Option, ...]:
    """Every candidate of the backends that come into question; ``known``: of the very case."""
    chosen = home if backend == "auto" else backend  # by the user: auto does not interfere
    return tuple(
        _option(case, Candidate(name, each), subject, profile, known, route, chosen)
        for name in _backends(profile, home, backend, case.data)
        for each in Subject("descriptor", case.descriptor).routes()
        if _matches(case.descriptor, each, route)
    )


def _backends(profile: Profile, home: str, backend: str, data: str) -> tuple[str, ...]:
    """Those that come into question: the one named, or home, and who was right when measured."""
    if backend != "auto":
        return (backend,)
    if data == "device" or home != DEFAULT:
        return (home,)
    known = registry.names()  # a plug-in may have gone since
    return tuple(dict.fromkeys((home, *(name for name in profile.backends if name in known))))


def _matches(descriptor: str, candidate_route: str, wanted: str) -> bool:
    """Whether a route is one that was asked for; parts may be ``auto``."""
    asked, has = split(descriptor, wanted), split(descriptor, candidate_route)
    return all(name in ("auto", has[operation]) for operation, name in asked.items())


def _option(
    case: Case,
    candidate: Candidate,
    subject: Subject,
    profile: Profile,
    known: Decided | None,
    asked: str,
    chosen: str,
) -> Option:
    obstacle = _obstacle(case, candidate, subject, asked)
    if not obstacle and candidate.backend != chosen:  # else its operations are at hand
        obstacle = _absence(candidate.backend) or forks.obstacle(candidate.backend)
    if obstacle:
        return Option(*candidate, state=State.UNSUPPORTED, reason=obstacle)
    of_case = known.candidates if known else ()
    times = [m.seconds for m in of_case if (m.backend, m.route) == tuple(candidate)]
    state, reason = profile.bar(case, candidate) or (State.OK, "")
    return Option(
        *candidate,
        estimates.seconds(candidate, case, profile),
        times[0] if times else None,
        profile.at_least_seconds(case, candidate, usual_threads()) or None,
        estimates.bytes_needed(subject, candidate, case, profile),
        state,
        reason,
    )


def _absence(backend: str) -> str:
    probe = registry.probe(backend)
    return "" if probe.state is State.OK else probe.reason


def _obstacle(case: Case, candidate: Candidate, subject: Subject, asked: str) -> str:
    for operation, name in subject.steps(candidate.route).items():
        route = find(operation, name)
        if not isinstance(route, str) and route.by_name_only and "auto" in asked:
            return "kept as a baseline, never picked by auto"
    return unsupported(subject, candidate, case)
