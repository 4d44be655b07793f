"""Whether a candidate may run on a case, and why not: capability, domain, memory, time.

Nothing here needs a backend to be installed; :func:`obstacle` asks the package that is measured,
which may be another version than the one asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from ..common.units import readable
from ..contract.capabilities import supports
from ..measurement import memory
from ..problem import routes
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.routes import Sizes
from ..problem.vocabulary import Backend, State
from . import costs

MEMORY_SHARE = 0.5
"""Predicted memory may be at most this share of what is free: predictions err, others need some."""


class Obstacle(NamedTuple):
    """Why a candidate is not tried: a state other than ``ok``, and a sentence."""

    state: State
    reason: str


class Limits(NamedTuple):
    """What one call may take; None is no limit."""

    seconds: float | None = None
    bytes: float | None = None


NO_LIMITS = Limits()


def limits_here(backend: str, seconds: float | None = None) -> Limits:
    """The memory that is free where a backend works, the better part of it, and a time."""
    on_gpu = Backend(backend).on_gpu
    free = memory.available_device_bytes() if on_gpu else memory.available_host_bytes()
    return Limits(seconds, None if free is None else MEMORY_SHARE * free)


def predicted_seconds(
    subject: Subject, candidate: Candidate, case: Case, prices: Mapping[str, float] | None = None
) -> float:
    """Time of one call by the cost model, transfers left out; ``prices``: not those shipped."""
    steps, backend = subject.steps(candidate.route), candidate.backend
    return sum(costs.seconds(backend, op, route, case, prices) for op, route in steps.items())


def predicted_bytes(subject: Subject, candidate: Candidate, case: Case) -> float:
    """Memory of one call by the cost model, input and output included."""
    steps = subject.steps(candidate.route)
    held = max(costs.peak_bytes(candidate.backend, op, route, case) for op, route in steps.items())
    size = case.dtype.result.bytes
    elements = case.batch * case.n * case.d + prod(subject.output_shape(case))
    return held + float(elements * size)


def unsupported(subject: Subject, candidate: Candidate, case: Case) -> str:
    """Why a backend cannot do a case by a route, from the capability table; empty if it can."""
    for operation, route in subject.steps(candidate.route).items():
        supported = supports(
            candidate.backend,
            operation,
            route=route,
            dtype=case.dtype,
            order=case.order,
            sizes=Sizes(case.n, case.d, case.p),
        )
        if not supported:
            return supported.reason
    return ""


def obstacle(
    package: Any, subject: Subject, candidate: Candidate, case: Case, limits: Limits = NO_LIMITS
) -> Obstacle | None:
    """Why ``package``, a demopool, cannot run the candidate on the case; None if it can."""
    steps = subject.steps(candidate.route)
    outside = outside_domain(subject, candidate, case)
    if outside:
        return outside
    try:
        ops = package.backend(candidate.backend)
        for operation, name in steps.items():
            if not hasattr(ops, operation):
                return Obstacle(State.UNSUPPORTED, f"this version has no operation {operation}")
            supported = ops.supports(operation, route=name, dtype=case.dtype, order=case.order)
            if not supported:
                return Obstacle(State.UNSUPPORTED, supported.reason)
    except package.BackendUnavailable as problem:
        return Obstacle(State.UNAVAILABLE, problem.reason)
    except (package.InvalidInput, KeyError) as problem:
        # An older version that has never heard of the backend, the operation or the route.
        return Obstacle(State.UNSUPPORTED, f"this version does not know it: {problem}")
    return too_much(subject, candidate, case, limits)


def outside_domain(subject: Subject, candidate: Candidate, case: Case) -> Obstacle | None:
    """What can be told without asking the backend: a route that does not exist for these sizes."""
    for operation, name in subject.steps(candidate.route).items():
        route = routes.find(operation, name)
        if isinstance(route, str):
            return Obstacle(State.UNSUPPORTED, route)
        outside = route.domain.excludes(Sizes(case.n, case.d, case.p))
        if outside:
            return Obstacle(State.UNSUPPORTED, outside)
    return None


def too_much(subject: Subject, candidate: Candidate, case: Case, limits: Limits) -> Obstacle | None:
    """Of memory, or of time, by prediction."""
    needed = predicted_bytes(subject, candidate, case)
    if limits.bytes is not None and needed > limits.bytes:
        return Obstacle(
            State.OUT_OF_MEMORY,
            f"predicted to need {readable(needed, 'memory')}, "
            f"may use {readable(limits.bytes, 'memory')}",
        )
    seconds = predicted_seconds(subject, candidate, case)
    if limits.seconds is not None and seconds > limits.seconds:
        return Obstacle(
            State.TIMEOUT,
            f"predicted to take {readable(seconds, 'time')}, "
            f"may take {readable(limits.seconds, 'time')}",
        )
    return None
