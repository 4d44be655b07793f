"""Candidates: backend x route for a subject, and why one cannot be tried on a case.

A subject is what candidates compete at: a descriptor from features to final norm, or one operation.
Nothing here needs a backend to be installed; :func:`obstacle` asks the package that is measured,
which may be another version than the one asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from . import costs, routes
from .capabilities import supports
from .cases import DTYPE_BYTES, Case
from .errors import InvalidInput
from .measurement import memory
from .routes import STEPS, Sizes
from .units import readable
from .vocabulary import BACKENDS, DESCRIPTORS, OPERATIONS, State, result_dtype

TIMED_BACKENDS = tuple(name for name in BACKENDS if not name.endswith(":ptx"))
"""PTX executed on the CPU proves results and has no time of its own."""

MEMORY_SHARE = 0.5
"""Predicted memory may be at most this share of what is free: predictions err, others need some."""


class Candidate(NamedTuple):
    """Written ``torch:cpu/dense+fft``."""

    backend: str
    route: str

    def __str__(self) -> str:
        return f"{self.backend}/{self.route}"

    @classmethod
    def parse(cls, text: str) -> Candidate:
        backend, slash, route = text.partition("/")
        if not (backend and slash and route):
            raise InvalidInput(
                f"candidate must be backend/route, as in numpy:cpu/dense; got {text!r}."
            )
        return cls(backend, route)


class Subject(NamedTuple):
    """``kind`` is needed: ``power`` is a descriptor and an operation."""

    kind: str
    name: str

    def routes(self) -> tuple[str, ...]:
        """Every route, whatever a backend has."""
        if self.kind == "descriptor":
            return routes.descriptor_routes(self.name)
        return tuple(route.name for route in routes.routes_of(self.name))

    def steps(self, route: str) -> dict[str, str]:
        """The operations it takes, in the order of work, each with its route."""
        if self.kind == "operation":
            return {self.name: route}
        chosen = routes.split(self.name, route)
        steps = {operation: chosen.get(operation, "direct") for operation in STEPS[self.name]}
        return {**steps, "normalize": "direct"}

    def candidates(self, backends: tuple[str, ...] = TIMED_BACKENDS) -> tuple[Candidate, ...]:
        """All of them, the same whatever is installed."""
        return tuple(Candidate(b, route) for b in backends for route in self.routes())

    def output_shape(self, case: Case) -> tuple[int, ...]:
        """Of the result, batch included."""
        if self.kind == "descriptor":
            return (case.batch, case.k if "sketch" in self.name else case.d**case.order)
        last = {
            "weights": (case.n,),
            "sketch": (case.n, case.k),
            "pool_sketch": (case.k,),
            "power_sketch": (case.k,),
            "normalize": (case.d**case.order,),
        }
        return (case.batch, *last.get(self.name, (case.d,) * case.order))


SUBJECTS = (
    *(Subject("descriptor", name) for name in DESCRIPTORS),
    *(Subject("operation", name) for name in OPERATIONS),
)


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
    on_gpu = backend.endswith(":cuda")
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
    size = DTYPE_BYTES[result_dtype(case.dtype)]
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
