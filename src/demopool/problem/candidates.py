"""Candidates: backend x route for a subject.

A subject is what candidates compete at: a descriptor from features to final norm, or one operation.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InvalidInput
from . import routes
from .cases import Case
from .routes import STEPS
from .vocabulary import BACKENDS, DESCRIPTORS, OPERATIONS

TIMED_BACKENDS = tuple(name for name in BACKENDS if not name.endswith(":ptx"))
"""PTX executed on the CPU proves results and has no time of its own."""


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
