"""All cells of the capability table: what ``demopool check`` shows.

Every backend is judged in a process of its own. Whatever its kernels do there, exit, crash or hang,
is the result of a cell, and the next cell gets a new process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Self

import numpy as np

from ..contract import capabilities, registry
from ..errors import InvalidInput
from ..machine import system
from ..measurement.worker import SETUP_SECONDS, Answer, Worker
from ..pooling.operations import backend as operations_of
from ..problem.parameters import validated
from ..problem.routes import find
from ..problem.vocabulary import Backend, State
from .engine import (
    LAW_FEATURES,
    Outcome,
    Target,
    answer,
    check_cell,
    first_calls,
    laws_of,
    try_law,
)
from .examples import examples
from .features import make

CELL_SECONDS = 300.0
"""Maximum for one cell, after its first call, which loads and compiles and has SETUP_SECONDS."""
EMULATED_CELL_SECONDS = 3600.0
"""For either of them where GPU code is executed on the CPU."""


@dataclass(frozen=True)
class Cell:
    """One route of one backend in one dtype and order, judged.

    ``worst_error`` and ``tolerance`` are those of the example that used most of its tolerance.
    ``seconds`` is what judging took; ``first_call_s`` what its first call took before, and
    ``compile_s`` how much longer that was than the second. None where nothing was run.
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
    seconds: float | None = None
    first_call_s: float | None = None
    compile_s: float | None = None

    @property
    def key(self) -> tuple[str, str, int, str, str | None]:
        return self.operation, self.route, self.order, self.backend, self.dtype

    def as_row(self) -> dict[str, Any]:
        """For JSON, which has no infinity: such an error is null, and the reason tells."""
        row = asdict(self)
        for name in ("worst_error", "tolerance"):
            if row[name] is not None and not isfinite(row[name]):
                row[name] = None
        return row


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
    known: Sequence[Cell] = (),
    progress: Progress | None = None,
    finished: Finished | None = None,
) -> list[Cell]:
    """Judge backends (all usable ones by default) against the reference, each in a process.

    GPU code executed from its PTX (``cupy:ptx``, ``numba:ptx``) takes minutes, and is judged when
    it is named.

    A backend asked for by name, or required by the environment, must be there; holes in the
    capability table are rows of their own with the reason. ``operations``, ``routes`` and
    ``dtypes`` narrow it. ``threads`` is for every library, by default as many as it would use;
    ``seconds`` the maximum for the first call of a cell, and for the rest of it. ``finished`` gets
    every cell as soon as it is judged; given back as ``known``, it is not judged again.
    """
    backends, operations, routes, dtypes = (
        (given,) if isinstance(given, str) else tuple(given)
        for given in (backends, operations, routes, dtypes)
    )
    for operation in operations:
        validated(operation=operation)
    dtypes = tuple(validated(dtype=dtype) for dtype in dtypes)
    for backend in (*backends, *registry.required()):
        registry.demand(backend)
    usable = tuple(name for name in registry.available() if Backend(name).is_timed)
    chosen = tuple(dict.fromkeys(backends)) or usable
    table = capabilities.table(chosen)
    for route in routes:
        if route not in {row.route for row in table}:
            names = ", ".join(sorted({row.route for row in table}))
            raise InvalidInput(f"route must be one of {names}; got {route!r}.")
    rows = [
        (row, dtype)
        for row in table
        for dtype in row.dtypes or (None,)
        if not operations or row.operation in operations
        if not routes or row.route in routes
        if not dtypes or dtype in dtypes
    ]
    if not rows:
        raise InvalidInput("Nothing is left to check: no such cell is in the capability table.")
    cells = []
    judged = {cell.key: cell for cell in known}
    with _Processes(threads or system.usual_threads()) as processes:
        for done, (row, dtype) in enumerate(rows):
            key = (row.operation, row.route, row.order, row.backend, dtype)
            if key in judged:
                cells.append(judged[key])
                continue
            if progress:
                progress(done, len(rows), f"{row.backend} {row.operation} {row.route}")
            cell = _absent(row) if dtype is None else processes.judge(row, dtype, quick, seconds)
            cells.append(cell)
            if finished:
                finished(cell)
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


class _Processes:
    """One worker at a time, of the backend that is being judged."""

    def __init__(self, threads: int) -> None:
        self._worker = Worker(threads)
        self._backend = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._worker.close()

    def judge(
        self, row: capabilities.CapabilityRow, dtype: str, quick: bool, seconds: float | None
    ) -> Cell:
        """What the worker says of a cell, or what became of the worker."""
        if row.backend != self._backend:
            self._worker.close()
            self._backend = row.backend
        emulated = Backend(row.backend).is_emulated
        usual = (EMULATED_CELL_SECONDS,) * 2 if emulated else (SETUP_SECONDS, CELL_SECONDS)
        to_compile, to_judge = (seconds, seconds) if seconds else usual
        cell = (row.backend, row.operation, row.route, row.order, dtype)
        began = time.monotonic()

        def ask(function: Callable[..., Any], timeout: float, words: str) -> Answer:
            return self._worker.ask(function, *cell, quick=quick, timeout=timeout, words=words)

        answered = ask(compile_cell, to_compile, "its first call")
        if answered.state is State.OK:
            first, second = answered.value
            answered = ask(judge, to_judge, "this cell")
        if answered.state is State.OK:
            judged: Cell = answered.value
            return replace(judged, first_call_s=first, compile_s=max(first - second, 0.0))
        lost = replace(_absent(row), dtype=dtype, seconds=time.monotonic() - began)
        return replace(lost, state=_lost(answered.state), reason=answered.reason)


def _lost(state: State) -> str:
    """A backend that was there when it was probed and cannot be loaded is in error."""
    return str(State.ERROR if state is State.UNAVAILABLE else state)


def compile_cell(
    backend: str, operation: str, route: str, order: int, dtype: str, *, quick: bool
) -> tuple[float, float]:
    """In the worker: load the library, and the first two calls of a cell."""
    target = Target(operations_of(backend), operation, route, order, dtype)
    return first_calls(target, quick=quick)


def judge(backend: str, operation: str, route: str, order: int, dtype: str, *, quick: bool) -> Cell:
    """One cell, in this process. The worker runs it; only what can be pickled goes back."""
    ops = operations_of(backend)
    target = Target(ops, operation, route, order, dtype)
    began = time.perf_counter()
    verdict = check_cell(target, quick=quick)
    worst = verdict.worst
    return Cell(
        operation=operation,
        route=route,
        order=order,
        backend=backend,
        dtype=dtype,
        state=str(verdict.state),
        worst_error=worst.error if worst else None,
        tolerance=worst.tolerance if worst else None,
        worst_case=verdict.where or None,
        reason=verdict.reason or None,
        seconds=time.perf_counter() - began,
    )


def _absent(row: capabilities.CapabilityRow) -> Cell:
    """A route that was not run."""
    return Cell(
        operation=row.operation,
        route=row.route,
        order=row.order,
        backend=row.backend,
        dtype=None,
        state=str(row.state),
        worst_error=None,
        tolerance=None,
        worst_case=None,
        reason=row.reason or None,
    )


def failed(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that make a check fail; a hole with its reason is not one."""
    return [cell for cell in cells if cell.state not in (State.OK, State.UNSUPPORTED)]
