"""The routes: one algorithm for an operation, with its domain. The same for every backend.

Which backend has which route is in the capability table (:mod:`demopool.contract.capabilities`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from ..errors import InvalidInput, Unsupported
from .parameters import validated
from .vocabulary import Backend, Descriptor


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
    """One way to compute an operation.

    by_name_only   why it is never picked; empty if it may be
    is_raced       by ``choose`` without being named
    libraries      those that have it so far; all of them if none is named
    products       how its products are made, where that is not the usual way of a backend
    is_variant     of another route: left out where a descriptor joins several routes, because
                   their combinations would be many
    """

    operation: str
    name: str
    orders: tuple[int, ...] = (2,)
    domain: Domain = EVERYWHERE
    by_name_only: str = ""
    is_raced: bool = True
    libraries: tuple[str, ...] = ()
    products: str = ""
    is_variant: bool = False

    def is_for(self, backend: Backend) -> bool:
        """False if it names other libraries only."""
        return not self.libraries or backend.library in self.libraries


class _Power(NamedTuple):
    """A way to a matrix power. ``is_factored``: by eigenvectors, which can be sketched alone."""

    name: str
    domain: Domain = EVERYWHERE
    is_factored: bool = False
    by_name_only: str = ""
    libraries: tuple[str, ...] = ()

    def route(self, operation: str, ending: str = "") -> Route:
        return Route(
            operation,
            self.name + ending,
            domain=self.domain,
            by_name_only=self.by_name_only,
            libraries=self.libraries,
        )


class _Products(NamedTuple):
    """A way to multiply: the ending of a route of weights, and a route of pooling."""

    name: str
    libraries: tuple[str, ...]
    by_name_only: str = ""

    def routes(self) -> tuple[Route, Route]:
        return self._route("weights", f"dense-{self.name}"), self._route("pool", self.name)

    def _route(self, operation: str, name: str) -> Route:
        return Route(
            operation,
            name,
            by_name_only=self.by_name_only,
            is_raced=not self.by_name_only,
            libraries=self.libraries,
            products=self.name,
            is_variant=True,
        )


_OF_A = (
    _Power("eigh", is_factored=True),
    _Power("newton", FULL_RANK_ROOT, by_name_only="kept as a baseline, never picked by auto"),
    _Power("newton-schulz", SQUARE_ROOT),
    _Power("polar", SQUARE_ROOT),
)
_OF_X = (*_OF_A, _Power("gram", is_factored=True), _Power("svd", is_factored=True))

# By a library, the full product of every image and half of it; by our kernels, in tiles of 128 and,
# in float32, as three products of TF32.
_PRODUCTS = tuple(
    made.routes()
    for made in (
        _Products("cublas", ("cupy",)),
        _Products("syrk", ("cupy",)),
        _Products("128", ("cupy", "triton")),
        _Products(
            "tf32", ("cupy", "triton"), "it multiplies in TF32, and must be asked for by its name"
        ),
    )
)
LEFT_OUT = {"tf32": 88 * 2.0**-24}
"""By how products are made: their error beyond that of float32, at most, in units of the sum of
|x y|. ``conformance/tolerance.py`` derives it."""

ROUTES: tuple[Route, ...] = (
    Route("weights", "dense", orders=(1, 2)),
    # (K v)_i = x_i^T (X^T diag(v) X) x_i is false for order 1 once one dot product is negative.
    Route("weights", "matrix-free"),
    *(of_weights for of_weights, _ in _PRODUCTS),
    # All iterations in one launch, with K in the shared memory of many multiprocessors.
    Route("weights", "dense-resident", libraries=("cupy",), is_variant=True),
    Route("pool", "direct", orders=(1, 2)),
    *(of_pool for _, of_pool in _PRODUCTS),
    Route("sketch", "fft"),
    Route("pool_sketch", "fft"),
    Route("pool_sketch", "moment"),
    *(power.route("power") for power in _OF_X),
    *(power.route("matrix_power") for power in _OF_A),
    # The eigenvectors are sketched one by one (fft), or A^p is formed and scattered (moment).
    *(power.route("power_sketch", "+fft") for power in _OF_X if power.is_factored),
    *(power.route("power_sketch", "+moment") for power in _OF_X),
    Route("normalize", "direct", orders=(1, 2)),
)

DESCRIPTOR_OF = {
    "weights": "democratic",
    "pool": "sum",
    "pool_sketch": "sketched-sum",
    "power": "power",
    "matrix_power": "power",
    "power_sketch": "sketched-power",
}
"""The descriptor whose routes an operation shares: what is known of one holds for the other. The
other steps of the descriptor cost every route the same."""

_BY_NAME = {(route.operation, route.name): route for route in ROUTES}


def routes_of(operation: str) -> tuple[Route, ...]:
    """All routes of an operation."""
    return tuple(route for route in ROUTES if route.operation == operation)


def routes_for(library: str) -> tuple[Route, ...]:
    """Those that our backends of a library have, or have a reason not to have."""
    return tuple(route for route in ROUTES if library in (route.libraries or (library,)))


def find(operation: str, name: str) -> Route | str:
    """The route, or why this operation cannot have it; a name nobody knows is invalid input."""
    route = _BY_NAME.get((operation, name))
    if route is not None:
        return route
    own = ", ".join(route.name for route in routes_of(operation))
    if any(route.name == name for route in ROUTES):
        reason = f"{name} is not a route of {operation}"
        if operation == "matrix_power" and ("power", name) in _BY_NAME:
            reason = f"{name} needs the features X, not A"
        return f"{reason}; its routes are {own}"
    raise InvalidInput(f"route must be auto or one of {own} for {operation}; got {name!r}.")


def descriptor_routes(descriptor: str) -> tuple[str, ...]:
    """Every route of a descriptor: its operations' routes joined by ``+`` in the order of work."""
    steps = _routed_steps(validated(descriptor=descriptor))
    choices = [
        [route.name for route in routes_of(operation) if not (route.is_variant and len(steps) > 1)]
        for operation in steps
    ]
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
        if known is not None and known.is_variant and len(chosen) > 1:
            raise Unsupported(f"{descriptor} by {route}", f"{name} is for sum and democratic alone")
    return chosen


def left_out(route: str) -> float:
    """What the products of a route of weights, of pooling, or of a descriptor leave out."""
    return LEFT_OUT.get(route.rpartition("-")[2], 0.0)


def steps_of(descriptor: str, route: str) -> dict[str, str]:
    """Every operation with its route, in the order of work. Plain pooling, where it has no name of
    its own, multiplies as the weights before it do."""
    chosen = split(descriptor, route)
    before = _BY_NAME.get(("weights", chosen.get("weights", "")))
    pooling = before.products if before and before.products else "direct"
    return {step: chosen.get(step, pooling) for step in Descriptor(descriptor).operations}


def left_to(accuracy: Any, route: str) -> str | float:
    """The accuracy that was asked for; with a route that leaves nothing to pick it is an error."""
    wanted: str | float = validated(accuracy=accuracy)
    if wanted != "fast" and "auto" not in route:
        raise InvalidInput(
            f"accuracy picks the route: give one of the two; got accuracy={accuracy!r} and "
            f"route={route!r}."
        )
    return wanted


def join(descriptor: str, chosen: dict[str, str]) -> str:
    """The way back from :func:`split`."""
    return "+".join(chosen[operation] for operation in _routed_steps(descriptor))


def _routed_steps(descriptor: str) -> tuple[str, ...]:
    """The steps that have a choice; plain pooling is named only when it is all."""
    steps = Descriptor(descriptor).operations
    return tuple(step for step in steps if step != "pool") or steps
