"""The candidates that ``auto`` can take for a job, and what is known about each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from ..contract import registry
from ..machine.system import usual_threads
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.routes import find, split
from ..problem.vocabulary import Backend, State
from . import costs, estimates, forks
from .accuracy import known_error
from .eligibility import ineligible, too_inaccurate
from .records import Decided, Profile

DEFAULT = "numpy:cpu"


class AutoQuestion(NamedTuple):
    """What ``auto`` is asked.

    home             the backend that the array belongs to
    backend, route   as the user gave them; a route, or a part of one, may be ``auto``
    subject          what runs: the descriptor of the case, or one operation that has its routes
    among            the only routes to take, if not all
    accuracy         ``fast``: any that conforms; ``accurate``: the least known error; or its limit
    """

    case: Case
    home: str
    backend: str
    route: str
    subject: Subject
    among: tuple[str, ...] | None = None
    accuracy: str | float = "fast"

    @property
    def fixed_backend(self) -> str:
        """The one the user has decided on: its operations are at hand, ``auto`` does not ask."""
        return self.home if self.backend == "auto" else self.backend


@dataclass(frozen=True)
class Option:
    """One candidate: what was predicted and measured, or why it is ruled out.

    predicted_s     None where there is no cost model: of other devices before they are measured
    at_least_s      a call was seen to take longer, on this case or a smaller one
    state, reason   why it is ruled out: ``unsupported``, ``wrong``, ``error``, ``out-of-memory``,
                    ``inaccurate``
    first_call_s    measured on this case
    error           expected, or measured on this case if that is more
    """

    backend: str
    route: str
    predicted_s: float | None = None
    measured_s: float | None = None
    at_least_s: float | None = None
    needed_bytes: float | None = None
    state: State = State.OK
    reason: str = ""
    first_call_s: float | None = None
    error: float | None = None

    @property
    def estimated_s(self) -> float:
        """The measured time, else the predicted; anything may be faster than what has neither."""
        return self.measured_s or self.predicted_s or (inf if self.state is State.OK else 0.0)

    @property
    def candidate(self) -> Candidate:
        """Backend and route."""
        return Candidate(self.backend, self.route)


def options_for(
    question: AutoQuestion, profile: Profile, known: Decided | None
) -> tuple[Option, ...]:
    """Every candidate that the question allows; ``known`` is the record of this very case."""
    found = tuple(
        _option(question, candidate, profile, known)
        for candidate in Subject("descriptor", question.case.descriptor).candidates(
            _backends(question, profile)
        )
        if _is_asked_for(question, candidate.route)
    )
    # Where nothing is known of times, the first of them is taken: that with the least arithmetic.
    found = tuple(sorted(found, key=lambda option: _flops(question, option)))
    if question.accuracy == "fast":
        return found
    errors = (option.error for option in found if option.state is State.OK)
    least = min((error for error in errors if error is not None), default=None)
    limit = least if isinstance(question.accuracy, str) else question.accuracy
    return tuple(_within(option, limit) for option in found)


def _flops(question: AutoQuestion, option: Option) -> float:
    """Of a route, where that is all that can be said about its time."""
    if option.predicted_s is not None or option.state is not State.OK:
        return 0.0
    steps = question.subject.steps(option.route)
    return sum(costs.flops(operation, route, question.case) for operation, route in steps.items())


def _within(option: Option, limit: float | None) -> Option:
    """The option, ruled out if its error is too large, unless it already is for another reason."""
    refusal = too_inaccurate(option.error, limit) if option.state is State.OK else None
    return replace(option, **refusal._asdict()) if refusal else option


def _backends(question: AutoQuestion, profile: Profile) -> tuple[str, ...]:
    """The one that was named; else home, and those measured and not wrong: any for NumPy arrays,
    for others those that work on the same arrays, as triton:cuda does on torch's."""
    if question.backend != "auto":
        return (question.backend,)
    known = registry.names()  # a plug-in may have gone since
    measured = [Backend(name) for name in profile.backends if name in known]
    if question.case.data == "device" or question.home != DEFAULT:
        own = Backend(question.home).arrays
        measured = [backend for backend in measured if backend.arrays == own]
    return tuple(dict.fromkeys((question.home, *measured)))


def _is_asked_for(question: AutoQuestion, route: str) -> bool:
    if question.among is not None and route not in question.among:
        return False
    descriptor = question.case.descriptor
    asked, has = split(descriptor, question.route), split(descriptor, route)
    return all(name in ("auto", has[operation]) for operation, name in asked.items())


def _option(
    question: AutoQuestion, candidate: Candidate, profile: Profile, known: Decided | None
) -> Option:
    own = (
        m for m in (known.candidates if known else ()) if (m.backend, m.route) == tuple(candidate)
    )
    measured = next(own, None)
    reason = _reason_against(question, candidate, measured is not None, profile)
    if reason:
        return Option(*candidate, state=State.UNSUPPORTED, reason=reason)
    case, subject = question.case, question.subject
    failure = profile.failure(case, candidate)
    can_predict = estimates.can_predict(candidate.backend, case.dtype, profile)
    needed = estimates.bytes_needed(subject, candidate, case, profile)
    return Option(
        *candidate,
        estimates.seconds(candidate, case, profile) if can_predict else None,
        measured.seconds if measured else None,
        profile.at_least_seconds(case, candidate, usual_threads()) or None,
        needed if can_predict else None,
        *(failure or (State.OK, "")),
        measured.first_call_s if measured else None,
        known_error(candidate, case, profile),
    )


def _reason_against(
    question: AutoQuestion, candidate: Candidate, was_measured: bool, profile: Profile
) -> str:
    """Why ``auto`` cannot take a candidate in this process; empty if it can.

    Features of the host are not taken to a library that would compile for their shape, unless
    ``choose`` has timed it there: nobody knows how many calls of the shape will come.
    """
    for operation, name in question.subject.steps(candidate.route).items():
        route = find(operation, name)
        if not isinstance(route, str) and "auto" in question.route and route.by_name_only:
            return route.by_name_only
    refusal = ineligible(question.subject, candidate, question.case)
    if refusal:
        return refusal.reason
    if candidate.backend == question.fixed_backend:
        return ""
    if registry.compiles_per(candidate.backend) == "shape" and not was_measured:
        return "it compiles for every new shape, and was not timed with this one"
    if not was_measured and not estimates.can_predict(
        candidate.backend, question.case.dtype, profile
    ):
        return "not measured yet in this dtype, and there is no cost model of its device"
    probe = registry.probe(candidate.backend)
    return probe.reason if probe.state is not State.OK else forks.reason_against(candidate.backend)
