"""Candidates: backend x route for a subject.

A subject is what candidates compete at: a descriptor from features to final norm, or one operation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Self

from ..errors import InvalidInput
from . import routes
from .cases import Case
from .operations import OPERATIONS
from .routes import Route
from .vocabulary import DESCRIPTORS, TIMED_BACKENDS, Backend, Descriptor


class _Pair(NamedTuple):
    backend: Backend
    route: str


class Candidate(_Pair):
    """Written ``torch:cpu/dense+fft``."""

    __slots__ = ()

    def __new__(cls, backend: str, route: str) -> Self:
        return super().__new__(cls, Backend(backend), route)

    def __str__(self) -> str:
        return f"{self.backend}/{self.route}"

    @classmethod
    def found_in(cls, text: str) -> Self | None:
        """The candidate of that name; None if it is no candidate's."""
        backend, _, route = text.partition("/")
        return cls(backend, route) if backend and route else None

    @classmethod
    def parse(cls, text: str) -> Self:
        found = cls.found_in(text)
        if found is None:
            raise InvalidInput(
                f"candidate must be backend/route, as in numpy:cpu/dense; got {text!r}."
            )
        return found


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
        return {**routes.steps_of(self.name, route), "normalize": "direct"}

    def candidates(self, backends: tuple[str, ...] = TIMED_BACKENDS) -> tuple[Candidate, ...]:
        """All of them, the same whatever is installed. A route that some libraries have is no
        candidate of others."""
        every = (Candidate(backend, route) for backend in backends for route in self.routes())
        return tuple(c for c in every if all(r.is_for(c.backend) for r in self._known(c.route)))

    def is_raced(self, route: str) -> bool:
        """By ``choose`` without being named."""
        return all(known.is_raced for known in self._known(route))

    def _known(self, route: str) -> list[Route]:
        found = [routes.find(*step) for step in self.steps(route).items()]
        return [known for known in found if not isinstance(known, str)]

    def output_shape(self, case: Case) -> tuple[int, ...]:
        """Of the result, batch included."""
        if self.kind == "descriptor":
            return (case.batch, replace(case, descriptor=Descriptor(self.name)).length)
        return (case.batch, *OPERATIONS[self.name].shape(case))

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the array arguments, in order."""
        return ("X",) if self.kind == "descriptor" else OPERATIONS[self.name].arrays


SUBJECTS = (
    *(Subject("descriptor", name) for name in DESCRIPTORS),
    *(Subject("operation", name) for name in OPERATIONS),
)
