"""May this candidate run on this case? Capability, domain, memory and time are asked here only.

The answer is None, or an :class:`Ineligible` with a state and a reason. Nothing here needs a
backend to be installed, unless a ``package`` is asked: that is the demopool being measured, which
may be another version than the one asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from ..common.units import readable
from ..contract.capabilities import NOT_THERE, supports
from ..measurement import memory
from ..problem import routes
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.routes import Sizes
from ..problem.vocabulary import Backend, State
from . import costs

MEMORY_SHARE = 0.5
"""Maximum share of the free memory: predictions err, and other processes need some."""


class Ineligible(NamedTuple):
    """Why a candidate may not run: a state other than ``ok``, and a reason."""

    state: State
    reason: str


class CallLimits(NamedTuple):
    """Maximum time and memory of one call; None is no limit."""

    seconds: float | None = None
    bytes: float | None = None


NO_LIMITS = CallLimits()


def limits_here(backend: str, seconds: float | None = None) -> CallLimits:
    """Half of the memory that is free where a backend works, and a time.

    How much is free on a device that nobody has a cost model of is not known either.
    """
    if not costs.is_modelled(backend):
        return CallLimits(seconds)
    on_gpu = Backend(backend).on_gpu
    free = memory.available_device_bytes() if on_gpu else memory.available_host_bytes()
    return CallLimits(seconds, None if free is None else MEMORY_SHARE * free)


def predicted_seconds(
    subject: Subject, candidate: Candidate, case: Case, prices: Mapping[str, float] | None = None
) -> float:
    """Time of one call by the cost model, without transfers; ``prices`` replace those shipped."""
    steps, backend = subject.steps(candidate.route), candidate.backend
    return sum(costs.seconds(backend, op, route, case, prices) for op, route in steps.items())


def predicted_bytes(subject: Subject, candidate: Candidate, case: Case) -> float:
    """Memory of one call by the cost model, input and output included."""
    steps = subject.steps(candidate.route)
    held = max(costs.peak_bytes(candidate.backend, op, route, case) for op, route in steps.items())
    size = case.dtype.result.bytes
    elements = case.batch * case.n * case.d + prod(subject.output_shape(case))
    return held + float(elements * size)


def ineligible(
    subject: Subject,
    candidate: Candidate,
    case: Case,
    limits: CallLimits = NO_LIMITS,
    *,
    package: Any = None,
) -> Ineligible | None:
    """Why the candidate may not run on the case; None if it may.

    Without a ``package`` the capability table answers, and nothing is loaded.
    """
    steps, sizes = subject.steps(candidate.route), Sizes(case.n, case.d, case.p)
    if package is None:
        found = unsupported(candidate.backend, steps, case.dtype, case.order, sizes)
    else:
        found = _outside_domain(steps, sizes) or _refused(package, candidate.backend, steps, case)
    return found or _too_much(subject, candidate, case, limits)


def unsupported(
    backend: str, steps: Mapping[str, str], dtype: str, order: int, sizes: Sizes
) -> Ineligible | None:
    """What the capability table has against operations by their routes (``auto``: any route)."""
    for operation, route in steps.items():
        supported = supports(backend, operation, route=route, dtype=dtype, order=order, sizes=sizes)
        if not supported:
            state, reason = supported
            if reason == NOT_THERE:
                reason = f"{backend} has no {operation} by {route}"
                if operation == "normalize":
                    reason += ", with which every descriptor ends"
            return Ineligible(state, reason)
    return None


def too_large(needed: float, limit: float | None) -> Ineligible | None:
    """Whether a call that needs so many bytes exceeds the limit."""
    if limit is None or needed <= limit:
        return None
    reason = f"predicted to need {readable(needed, 'memory')}"
    return Ineligible(State.OUT_OF_MEMORY, f"{reason}, may use {readable(limit, 'memory')}")


def too_inaccurate(error: float | None, limit: float | None) -> Ineligible | None:
    """Whether an error, if it is known, exceeds the limit."""
    if limit is None or error is None or error <= limit:
        return None
    return Ineligible(State.INACCURATE, f"off by about {error:.1e}, allowed is {limit:.1e}")


def _outside_domain(steps: Mapping[str, str], sizes: Sizes) -> Ineligible | None:
    for operation, name in steps.items():
        route = routes.find(operation, name)
        reason = route if isinstance(route, str) else route.domain.excludes(sizes)
        if reason:
            return Ineligible(State.UNSUPPORTED, reason)
    return None


def _refused(package: Any, backend: str, steps: Mapping[str, str], case: Case) -> Ineligible | None:
    """What the package that is measured has against it."""
    try:
        ops = package.backend(backend)
        for operation, route in steps.items():
            if not hasattr(ops, operation):
                return Ineligible(State.UNSUPPORTED, f"this version has no operation {operation}")
            supported = ops.supports(operation, route=route, dtype=case.dtype, order=case.order)
            if not supported:
                return Ineligible(State.UNSUPPORTED, supported.reason)
    except package.BackendUnavailable as problem:
        return Ineligible(State.UNAVAILABLE, problem.reason)
    except (package.InvalidInput, KeyError) as problem:
        # An older version that has never heard of the backend, the operation or the route.
        return Ineligible(State.UNSUPPORTED, f"this version does not know it: {problem}")
    return None


def _too_much(
    subject: Subject, candidate: Candidate, case: Case, limits: CallLimits
) -> Ineligible | None:
    """Memory, or time, by prediction; of a device without a cost model nothing is predicted."""
    if not costs.is_modelled(candidate.backend):
        return None
    if limits.bytes is not None:
        found = too_large(predicted_bytes(subject, candidate, case), limits.bytes)
        if found:
            return found
    if limits.seconds is not None:
        seconds = predicted_seconds(subject, candidate, case)
        if seconds > limits.seconds:
            reason = f"predicted to take {readable(seconds, 'time')}"
            return Ineligible(
                State.TIMEOUT, f"{reason}, may take {readable(limits.seconds, 'time')}"
            )
    return None
