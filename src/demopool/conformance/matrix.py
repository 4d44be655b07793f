"""All cells of the capability table: what ``demopool check`` shows.

Every backend is judged in a process of its own (``cells.py``), and what was found is kept for
``choose`` (``verdicts.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..contract import capabilities, registry
from ..errors import InvalidInput
from ..machine import system
from ..pooling.operations import backend as operations_of
from ..problem.parameters import validated
from ..problem.routes import find
from ..problem.vocabulary import Backend
from . import verdicts
from .cells import Cell, CellProcess, absent
from .engine import LAW_FEATURES, Outcome, Target, answer, laws_of, try_law
from .examples import examples
from .features import make

Progress = Callable[[int, int, str], None]
"""Called with (cells done, cells in all, what is next)."""
Finished = Callable[[Cell], None]


def check(
    backends: str | Sequence[str] = (),
    *,
    operations: str | Sequence[str] = (),
    routes: str | Sequence[str] = (),
    dtypes: str | Sequence[str] = (),
    quick: bool = False,
    threads: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    finished: Finished | None = None,
    known: Sequence[Cell] = (),
) -> list[Cell]:
    """Judge backends (all usable ones by default) against the reference, each in a process.

    GPU code executed on the CPU (``cupy:ptx``, ``numba:ptx``, ``triton:interpreter``) takes
    minutes, and is judged when it is named.

    A backend asked for by name, or required by the environment, must be there; holes in the
    capability table are rows of their own with the reason, but for routes that name other
    libraries. ``operations``, ``routes`` and ``dtypes`` narrow it. ``threads`` is for every
    library, by default as many as it would use; ``seconds`` the maximum for the first call of a
    cell, and for the rest of it. ``finished`` gets every cell as soon as it is judged; given back
    as ``known``, it is not judged again.
    """
    backends = (backends,) if isinstance(backends, str) else tuple(backends)
    for backend in (*backends, *registry.required()):
        registry.demand(backend)
    usable = tuple(name for name in registry.available() if Backend(name).is_timed)
    chosen = tuple(dict.fromkeys(backends)) or usable
    rows = rows_of(chosen, operations, routes, dtypes)
    cells = []
    judged = {cell.key: cell for cell in known}
    with CellProcess(threads or system.usual_threads()) as processes:
        for done, (row, dtype) in enumerate(rows):
            key = (row.operation, row.route, row.order, row.backend, dtype)
            if key in judged:
                cells.append(judged[key])
                continue
            if progress:
                progress(done, len(rows), f"{row.backend} {row.operation} {row.route}")
            cell = absent(row) if dtype is None else processes.judge(row, dtype, quick, seconds)
            cells.append(cell)
            verdicts.keep(cell, quick=quick)
            if finished:
                finished(cell)
    if progress:
        progress(len(rows), len(rows), "")
    return cells


def rows_of(
    backends: Sequence[str],
    operations: str | Sequence[str] = (),
    routes: str | Sequence[str] = (),
    dtypes: str | Sequence[str] = (),
) -> list[tuple[capabilities.CapabilityRow, str | None]]:
    """Rows of the capability table, each with a dtype, or None if it is a hole."""
    operations, routes, dtypes = (
        (given,) if isinstance(given, str) else tuple(given)
        for given in (operations, routes, dtypes)
    )
    for operation in operations:
        validated(operation=operation)
    dtypes = tuple(validated(dtype=dtype) for dtype in dtypes)
    table = capabilities.table(tuple(backends))
    for route in routes:
        if route not in {row.route for row in table}:
            names = ", ".join(sorted({row.route for row in table}))
            raise InvalidInput(f"route must be one of {names}; got {route!r}.")
    rows = [
        (row, dtype)
        for row in table
        for dtype in row.dtypes or (None,)
        if not operations or row.operation in operations
        if row.route in routes or (not routes and _matters(row))
        if not dtypes or dtype in dtypes
    ]
    if not rows:
        raise InvalidInput("Nothing is left to check: no such cell is in the capability table.")
    return rows


def _matters(row: capabilities.CapabilityRow) -> bool:
    known = find(row.operation, row.route)
    return bool(row.dtypes) or isinstance(known, str) or known.is_for(Backend(row.backend))


def reproduce(
    backend: str, operation: str, route: str, *, dtype: str, order: int = 2, example: str
) -> Outcome:
    """Run one example again, to look at ``.result``, ``.expected``, ``.error``, ``.tolerance``.

    A law (``"law: scale, on n>d"``) has only an error and a tolerance.
    """
    operation, route, dtype = validated(operation=operation, route=route, dtype=dtype)
    known = find(operation, route)
    if isinstance(known, str):
        raise InvalidInput(f"route must be one of {operation}: {known}.")
    target = Target(operations_of(backend), operation, route, validated(order=order), dtype)
    if example.startswith("law: "):
        name, _, where = example.removeprefix("law: ").partition(", on ")
        if name not in laws_of(target) or where not in LAW_FEATURES:
            raise InvalidInput(f"example must be a law of {operation}; got {example!r}.")
        claim = try_law(target, name, make(where, dtype)[0])
        nothing = np.empty(0)
        return Outcome(example, claim.error, claim.allowed, nothing, nothing)
    for candidate in examples(operation, route):
        if candidate.name == example:
            return answer(target, candidate)
    raise InvalidInput(f"example must be one of those of {operation} by {route}; got {example!r}.")
