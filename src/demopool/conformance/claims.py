"""What a law claims, and how far it is from holding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from .features import Array

BOTH_SIDES = 2.0


class Distance(NamedTuple):
    """A law on some features: the distance from holding, and what rounding allows."""

    error: float
    allowed: float


class Run(Protocol):
    """Calls the route under test; ``arrays`` by name, in the order of the operation's arguments.

    order      1 or 2
    describe   the same backend and route by ``demopool.describe``, of one or two streams
    """

    @property
    def order(self) -> int: ...

    def __call__(self, X: Array, a: Array | None = None, **options: Any) -> Array: ...

    def describe(self, *streams: Array, **options: Any) -> Array: ...


Law = Callable[[Run, Array, str], Distance]


def distance(found: Array, wanted: Array, allowed: Array, *, entrywise: bool = False) -> Distance:
    """Relative to the largest entry, or to every entry."""
    if entrywise:
        scale = np.where(wanted != 0, np.abs(wanted), 1.0)
        error = float((np.abs(found - wanted) / scale).max(initial=0.0))
    else:
        largest = float(np.abs(wanted).max(initial=0.0))
        error = float(np.abs(found - wanted).max(initial=0.0)) / (largest or 1.0)
    return Distance(error, BOTH_SIDES * float(np.max(allowed, initial=0.0)))


def excess(claim: Distance) -> float:
    return claim.error / claim.allowed if claim.allowed else claim.error
