"""The capability table: the one place that says which backend has which route for which dtype.

Tests, benchmarks, the command line and the support matrix all read it, and nothing else
decides what is skipped. It is made of the routes (:mod:`demopool.problem.routes`) and the rows that
each backend's specification brings, ours and the plug-ins'.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from ..problem.routes import ROUTES, Sizes, find
from ..problem.vocabulary import State
from . import registry

NOT_THERE = "this backend does not have it"
"""The reason for a route that a specification does not list."""


class Support(NamedTuple):
    """Whether a route exists: a state, with the reason for every state but ``ok``."""

    state: State
    reason: str = ""

    def __bool__(self) -> bool:
        return self.state is State.OK


@dataclass(frozen=True)
class CapabilityRow:
    """One line of the table for one backend."""

    operation: str
    route: str
    order: int
    backend: str
    dtypes: tuple[str, ...]
    state: State
    reason: str
    domain: str
    not_executed: str


def table(backends: tuple[str, ...] | None = None) -> tuple[CapabilityRow, ...]:
    """Every operation, route and order for each backend, holes included."""
    chosen = registry.names() if backends is None else backends
    return tuple(row for backend in chosen for row in _rows(backend).values())


@cache
def _rows(backend: str) -> dict[tuple[str, str, int], CapabilityRow]:
    listed = registry.entry(backend)
    brought = {
        (row.operation, row.route, order): row
        for row in listed.capabilities
        for order in row.orders
    }
    rows = {}
    for route in ROUTES:
        for order in route.orders:
            key = (route.operation, route.name, order)
            row = brought.get(key)
            reason = row.reason if row else listed.reason or NOT_THERE
            rows[key] = CapabilityRow(
                *key,
                backend=backend,
                dtypes=row.dtypes if row and not reason else (),
                state=State.UNSUPPORTED if reason else State.OK,
                reason=reason,
                domain=route.domain.text,
                not_executed=row.not_executed if row else "",
            )
    return rows


@lru_cache(maxsize=4096)
def supports(
    backend: str,
    operation: str,
    *,
    route: str = "auto",
    dtype: str | None = None,
    order: int = 2,
    sizes: Sizes | None = None,
) -> Support:
    """Whether a backend has a route (``auto``: any) for this dtype, order and these sizes."""
    if route == "auto":
        found = usable_routes(backend, operation, dtype=dtype, order=order, sizes=sizes)
        if found:
            return Support(State.OK)
        refused = [
            supports(backend, operation, route=r.name, dtype=dtype, order=order, sizes=sizes)
            for r in ROUTES
            if r.operation == operation
        ]
        return refused[0]
    known = find(operation, route)
    if isinstance(known, str):
        return Support(State.UNSUPPORTED, known)
    if order not in known.orders:
        return Support(State.UNSUPPORTED, f"it exists for order {known.orders[0]} only")
    outside = known.domain.excludes(sizes or Sizes())
    if outside:
        return Support(State.UNSUPPORTED, outside)
    row = _rows(backend)[operation, route, order]
    if row.state is not State.OK:
        return Support(row.state, row.reason)
    if dtype is not None and dtype not in row.dtypes:
        return Support(State.UNSUPPORTED, f"{backend} takes {', '.join(row.dtypes)}, not {dtype}")
    return Support(State.OK)


@lru_cache(maxsize=4096)
def usable_routes(
    backend: str,
    operation: str,
    *,
    dtype: str | None = None,
    order: int = 2,
    sizes: Sizes | None = None,
) -> tuple[str, ...]:
    """The routes ``auto`` may pick from."""
    return tuple(
        route.name
        for route in ROUTES
        if route.operation == operation
        and not route.by_name_only
        and supports(backend, operation, route=route.name, dtype=dtype, order=order, sizes=sizes)
    )
