"""The routes: one algorithm for an operation, with its domain. The same for every backend.

Which backend has which route is in the capability table (:mod:`demopool.contract.capabilities`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from ..errors import InvalidInput, Unsupported
from .parameters import validated
from .vocabulary import Descriptor


class Sizes(NamedTuple):
    """What a domain may depend on; None is unknown and never excludes a route."""

    n: int | None = None
    d: int | None = None
    p: float | None = None


@dataclass(frozen=True)
class Domain:
    """Where a route holds: ``text`` for people, ``excludes(sizes)`` for the code."""

    text: str
    excludes: Callable[[Sizes], str]


def _nothing(sizes: Sizes) -> str:
    return ""


def _other_powers(sizes: Sizes) -> str:
    return f"it computes p = 0.5 only, not p = {sizes.p:g}" if sizes.p not in (None, 0.5) else ""


def _singular(sizes: Sizes) -> str:
    if sizes.n is not None and sizes.d is not None and sizes.n < sizes.d:
        return f"it inverts A, which is singular for n = {sizes.n} < d = {sizes.d}"
    return ""


EVERYWHERE = Domain("", _nothing)
SQUARE_ROOT = Domain("p = 1/2", _other_powers)
FULL_RANK_ROOT = Domain("p = 1/2, n >= d", lambda s: _other_powers(s) or _singular(s))


@dataclass(frozen=True)
class Route:
    """One way to compute an operation. ``by_name_only``: kept as a baseline, never picked."""

    operation: str
    name: str
    orders: tuple[int, ...] = (2,)
    domain: Domain = EVERYWHERE
    by_name_only: bool = False


_POWERS_OF_A = (
    ("eigh", EVERYWHERE, False),
    ("newton", FULL_RANK_ROOT, True),
    ("newton-schulz", SQUARE_ROOT, False),
    ("polar", SQUARE_ROOT, False),
)
_POWERS_OF_X = (*_POWERS_OF_A, ("gram", EVERYWHERE, False), ("svd", EVERYWHERE, False))
_FACTORED = ("eigh", "gram", "svd")

ROUTES: tuple[Route, ...] = (
    Route("weights", "dense", orders=(1, 2)),
    # (K v)_i = x_i^T (X^T diag(v) X) x_i is false for order 1 once one dot product is negative.
    Route("weights", "matrix-free"),
    Route("pool", "direct", orders=(1, 2)),
    Route("sketch", "fft"),
    Route("pool_sketch", "fft"),
    Route("pool_sketch", "moment"),
    *(Route("power", name, (2,), domain, rare) for name, domain, rare in _POWERS_OF_X),
    *(Route("matrix_power", name, (2,), domain, rare) for name, domain, rare in _POWERS_OF_A),
    # The eigenvectors are sketched one by one (fft), or A^p is formed and scattered (moment).
    *(Route("power_sketch", f"{name}+fft") for name in _FACTORED),
    *(
        Route("power_sketch", f"{name}+moment", (2,), domain, rare)
        for name, domain, rare in _POWERS_OF_X
    ),
    Route("normalize", "direct", orders=(1, 2)),
)

_BY_NAME = {(route.operation, route.name): route for route in ROUTES}


def routes_of(operation: str) -> tuple[Route, ...]:
    """All routes of an operation."""
    return tuple(route for route in ROUTES if route.operation == operation)


def find(operation: str, name: str) -> Route | str:
    """The route, or why this operation cannot have it; a name nobody knows is invalid input."""
    route = _BY_NAME.get((operation, name))
    if route is not None:
        return route
    own = ", ".join(route.name for route in routes_of(operation))
    if any(route.name == name for route in ROUTES):
        reason = f"{name} is not a route of {operation}"
        if operation == "matrix_power" and name in ("gram", "svd"):
            reason = f"{name} needs the features X, not A"
        return f"{reason}; its routes are {own}"
    raise InvalidInput(f"route must be auto or one of {own} for {operation}; got {name!r}.")


def descriptor_routes(descriptor: str) -> tuple[str, ...]:
    """Every route of a descriptor: its operations' routes joined by ``+`` in the order of work."""
    steps = _routed_steps(validated(descriptor=descriptor))
    choices = [[route.name for route in routes_of(operation)] for operation in steps]
    return tuple("+".join(names) for names in product(*choices))


def split(descriptor: str, route: str) -> dict[str, str]:
    """A descriptor's route as the route of each of its operations; ``auto`` is auto for each."""
    steps = _routed_steps(descriptor)
    if route == "auto":
        return dict.fromkeys(steps, "auto")
    if len(steps) == 1:
        return {steps[0]: route}
    names = route.split("+")
    if len(names) != len(steps):
        raise InvalidInput(
            f"route must be auto or one of {', '.join(descriptor_routes(descriptor))} "
            f"for {descriptor}; got {route!r}."
        )
    return dict(zip(steps, names, strict=True))


def demand(descriptor: str, route: str) -> dict[str, str]:
    """As :func:`split`; a route that the descriptor does not have is an error."""
    chosen = split(descriptor, route)
    for operation, name in chosen.items():
        known = None if name == "auto" else find(operation, name)
        if isinstance(known, str):
            raise Unsupported(f"{descriptor} by {route}", known)
    return chosen


def join(descriptor: str, chosen: dict[str, str]) -> str:
    """The way back from :func:`split`."""
    return "+".join(chosen[operation] for operation in _routed_steps(descriptor))


def _routed_steps(descriptor: str) -> tuple[str, ...]:
    """The steps that have a choice; plain pooling is named (``direct``) only when it is all."""
    steps = Descriptor(descriptor).operations
    return tuple(step for step in steps if step != "pool") or steps
