"""For authors of backends: the conformance suite as tests of their own.

Two lines of a test file are enough::

    from demopool.testing import conformance_cells

    test_cell = conformance_cells("tinygrad:cpu")

``demopool check`` judges the same cells, from the command line.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .conformance import repeated, waiting
from .conformance.cells import Cell, CellProcess
from .conformance.matrix import rows_of
from .contract import registry
from .problem.vocabulary import State

__all__ = ["conformance_cells"]


def conformance_cells(
    backend: str,
    *,
    operations: str | Sequence[str] = (),
    routes: str | Sequence[str] = (),
    dtypes: str | Sequence[str] = (),
    quick: bool = False,
    threads: int = 1,
    seconds: float | None = None,
) -> Callable[..., None]:
    """A test for pytest, with one case for each cell of a backend: give it a name in a test file.

    backend     must be installed, or collecting the tests fails; where it cannot be used, say for
                want of a GPU, its cells are skipped with the reason, unless
                ``DEMOPOOL_REQUIRE_BACKENDS`` names it
    operations  only these, and only these ``routes`` and ``dtypes``
    quick       leave out the largest examples, as ``demopool check --quick`` does
    threads     for every library of the process in which the cells run
    seconds     maximum for the first call of a cell, and for the rest of it

    Ids are ``operation-route-dtype``, with ``order1`` for first order: ``pytest -k weights-dense``.
    A cell that fails shows its error beside the tolerance, and how to run the example again. All
    cells run in another process: a kernel that crashes or hangs fails its cell, and no other.
    """
    import pytest

    judged = [
        pytest.param(row, dtype, id=_id(row, dtype))
        for row, dtype in rows_of((backend,), operations, routes, dtypes)
        if dtype is not None
    ]

    @pytest.mark.parametrize(("row", "dtype"), judged)
    def test_cell(row: Any, dtype: str) -> None:
        __tracebackhide__ = True
        found = registry.probe(backend)
        if found.state is not State.OK:
            if backend in registry.required():
                pytest.fail(f"{backend} is required: {found.reason}", pytrace=False)
            pytest.skip(f"{backend}: {found.reason}")
        cell = _processes(threads).judge(row, dtype, quick, seconds)
        if cell.state != State.OK:
            pytest.fail(_told(cell), pytrace=False)

    test_cell.__doc__ = f"{backend} conforms to the reference."
    return test_cell


def _id(row: Any, dtype: str) -> str:
    order = "" if row.order == 2 else f"-order{row.order}"
    return f"{row.operation}-{row.route}{order}-{dtype}"


def _told(cell: Cell) -> str:
    """What is wrong, with error and tolerance side by side where there are both."""
    where = f" on: {cell.worst_case}" if cell.worst_case else ""
    lines = [f"{cell.name} is {cell.state}{where}"]
    if cell.worst_error is not None and cell.tolerance is not None:
        lines.append(f"    error {cell.worst_error:.2e}    tolerance {cell.tolerance:.2e}")
    else:
        lines.append(f"    {cell.reason}")
    if cell.worst_case and cell.worst_case not in (repeated.WHERE, waiting.WHERE):
        lines += ["To run it again in Python:", cell.again]
    return "\n".join(lines)


@cache
def _processes(threads: int) -> CellProcess:
    """One process after another for all cells of a session: libraries are loaded once."""
    made = CellProcess(threads)
    atexit.register(made.__exit__)
    return made
