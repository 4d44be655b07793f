"""One cell of the capability table, judged in a process of its own.

Whatever a kernel does there, exit, crash or hang, is the result of its cell, and the next cell gets
a new process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Self

from ..contract import capabilities, registry
from ..measurement.worker import SETUP_SECONDS, Answer, Worker
from ..pooling.operations import backend as operations_of
from ..problem.vocabulary import Backend, State
from .engine import Target, check_cell, first_calls

CELL_SECONDS = 300.0
"""Maximum for one cell, after its first call, which compiles and has SETUP_SECONDS, as has the
loading of a library before."""
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

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.backend} {self.operation} by {self.route}, order {self.order}, {self.dtype}"

    @property
    def again(self) -> str:
        """The lines of Python that run its worst example again."""
        return (
            "from demopool.conformance import reproduce\n"
            f"reproduce({self.backend!r}, {self.operation!r}, {self.route!r}, "
            f"dtype={self.dtype!r},\n          order={self.order}, example={self.worst_case!r})"
        )


class CellProcess:
    """One worker at a time, of the backend that is being judged.

    What a library compiles for the many shapes of a cell stays in the process, until there is no
    room for more code; so each cell of one that compiles for every shape has a process of its own.
    """

    def __init__(self, threads: int) -> None:
        self._worker = Worker(threads)
        self._backend = ""
        self._not_loaded: Answer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._worker.close()

    def judge(
        self, row: capabilities.CapabilityRow, dtype: str, quick: bool, seconds: float | None
    ) -> Cell:
        """What the worker says of a cell, or what became of the worker."""
        if row.backend != self._backend:
            self._not_loaded = None
        if row.backend != self._backend or registry.compiles_per(row.backend) == "shape":
            self._worker.close()
        self._backend = row.backend
        emulated = Backend(row.backend).is_emulated
        usual = (EMULATED_CELL_SECONDS,) * 2 if emulated else (SETUP_SECONDS, CELL_SECONDS)
        to_compile, to_judge = (seconds, seconds) if seconds else usual
        cell = (row.backend, row.operation, row.route, row.order, dtype)
        began = time.monotonic()

        def ask(function: Callable[..., Any], timeout: float, words: str) -> Answer:
            return self._worker.ask(function, *cell, quick=quick, timeout=timeout, words=words)

        answered = self._loaded(row.backend, EMULATED_CELL_SECONDS if emulated else SETUP_SECONDS)
        if answered.state is State.OK:
            answered = ask(compile_cell, to_compile, "its first call")
        if answered.state is State.OK:
            first, second = answered.value
            answered = ask(judge, to_judge, "this cell")
        if answered.state is State.OK:
            judged: Cell = answered.value
            return replace(judged, first_call_s=first, compile_s=max(first - second, 0.0))
        lost = replace(absent(row), dtype=dtype, seconds=time.monotonic() - began)
        return replace(lost, state=_lost(answered.state), reason=answered.reason)

    def _loaded(self, backend: str, seconds: float) -> Answer:
        """A library that cannot be loaded fails all cells, and is waited for once."""
        if self._not_loaded is None and not self._worker.alive:
            words = "loading its library"
            found = self._worker.ask(load, backend, timeout=seconds, words=words)
            self._not_loaded = None if found.state is State.OK else found
        return self._not_loaded or Answer(State.OK)


def load(backend: str) -> None:
    """In the worker: its library, apart from calls."""
    operations_of(backend)


def _lost(state: State) -> str:
    """A backend that was there when it was probed and cannot be loaded is in error."""
    return str(State.ERROR if state is State.UNAVAILABLE else state)


def compile_cell(
    backend: str, operation: str, route: str, order: int, dtype: str, *, quick: bool
) -> tuple[float, float]:
    """In the worker: the first two calls of a cell."""
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


def absent(row: capabilities.CapabilityRow) -> Cell:
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
