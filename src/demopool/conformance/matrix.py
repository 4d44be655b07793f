"""All cells of the capability table: what ``demopool check`` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..contract import capabilities, registry
from ..errors import BackendUnavailable, InvalidInput
from ..pooling.operations import Operations
from ..pooling.operations import backend as operations_of
from ..problem.parameters import validated
from ..problem.routes import find
from ..problem.vocabulary import Backend, State
from .engine import LAW_FEATURES, CellResult, Outcome, Target, answer, check_cell, laws_of, try_law
from .examples import examples
from .features import make


@dataclass(frozen=True)
class Cell:
    """One route of one backend in one dtype and order, judged.

    ``worst_error`` and ``tolerance`` are those of the example that used most of its tolerance.
    """

    operation: str
    route: str
    order: int
    backend: str
    dtype: str | None
    state: str
    worst_error: float | None
    tolerance: float | None
    worst_case: str | None
    reason: str | None

    def as_row(self) -> dict[str, Any]:
        """For JSON, which has no infinity: such an error is null, and the reason tells."""
        row = asdict(self)
        for name in ("worst_error", "tolerance"):
            if row[name] is not None and not isfinite(row[name]):
                row[name] = None
        return row


Progress = Callable[[int, int, str], None]
"""Called with (cells done, cells in all, what is next)."""


def check(
    backends: str | Sequence[str] = (),
    *,
    operations: str | Sequence[str] = (),
    quick: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Cell]:
    """Judge backends (all usable ones by default) against the reference.

    GPU code executed from its PTX (``cupy:ptx``, ``numba:ptx``) takes minutes, and is judged when
    it is named.

    A backend asked for by name, or required by the environment, must be there; holes in the
    capability table are rows of their own with the reason. ``threads`` limits those of BLAS while
    it runs (in the whole process); None leaves them alone.
    """
    backends = (backends,) if isinstance(backends, str) else backends
    operations = (operations,) if isinstance(operations, str) else operations
    for operation in operations:
        validated(operation=operation)
    for backend in (*backends, *registry.required()):
        registry.demand(backend)
    usable = tuple(name for name in registry.available() if Backend(name).is_timed)
    chosen = tuple(dict.fromkeys(backends)) or usable
    rows = [
        (row, dtype)
        for row in capabilities.table(chosen)
        for dtype in row.dtypes or (None,)
        if not operations or row.operation in operations
    ]
    for backend in chosen:
        _loaded(backend)  # only what is loaded can be limited
    cells = []
    with threadpool_limits(threads):
        for done, (row, dtype) in enumerate(rows):
            if progress:
                progress(done, len(rows), f"{row.backend} {row.operation} {row.route}")
            cells.append(_judge(row, dtype, quick))
    if progress:
        progress(len(rows), len(rows), "")
    return cells


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


def _loaded(backend: str) -> Operations | str:
    """The operations, or why they cannot be loaded although the backend said it was there."""
    try:
        return operations_of(backend)
    except BackendUnavailable as problem:
        return problem.reason


def _judge(row: capabilities.CapabilityRow, dtype: str | None, quick: bool) -> Cell:
    ops = _loaded(row.backend)
    if dtype is None:
        verdict = CellResult(row.state, None, "", row.reason)
    elif isinstance(ops, str):
        verdict = CellResult(State.ERROR, None, "", ops)
    else:
        target = Target(ops, row.operation, row.route, row.order, dtype)
        verdict = check_cell(target, quick=quick)
    worst = verdict.worst
    return Cell(
        operation=row.operation,
        route=row.route,
        order=row.order,
        backend=row.backend,
        dtype=dtype,
        state=str(verdict.state),
        worst_error=worst.error if worst else None,
        tolerance=worst.tolerance if worst else None,
        worst_case=verdict.where or None,
        reason=verdict.reason or None,
    )


def failed(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that make a check fail; a hole with its reason is not one."""
    return [cell for cell in cells if cell.state not in (State.OK, State.UNSUPPORTED)]
