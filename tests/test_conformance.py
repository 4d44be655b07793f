"""Every cell of the capability table, on every backend present; and the engine itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from effort import cases
from threadpoolctl import threadpool_limits

from demopool import backend, conformance
from demopool.conformance import engine, features, tolerance
from demopool.conformance.engine import Target, answer, check_cell, laws_of
from demopool.conformance.examples import ask, examples
from demopool.contract import capabilities, registry
from demopool.errors import BackendUnavailable, InvalidInput
from demopool.problem.vocabulary import Backend, State

# Cells with the same questions follow one another: the reference's answers are kept for a while.
CELLS = sorted(
    ((row, dtype) for row in capabilities.table() for dtype in row.dtypes),
    key=lambda cell: (cell[0].operation, cell[0].order, cell[1]),
)


def _drawn() -> list[tuple[capabilities.CapabilityRow, str]]:
    """Of every row float32 and one more dtype, or one of all if it is executed from its PTX."""
    drawn = []
    for turn, row in enumerate(capabilities.table()):
        others = [dtype for dtype in row.dtypes if dtype != "float32"]
        more = others[turn % len(others) :][:1] if others else []
        dtypes = {"float32", *more} & set(row.dtypes)
        if Backend(row.backend).is_emulated and row.dtypes:
            dtypes = {row.dtypes[turn % len(row.dtypes)]}
        drawn += [(row, dtype) for dtype in row.dtypes if dtype in dtypes]
    return sorted(drawn, key=CELLS.index)


def _every(step: int, start: int, things: Iterable[Any]) -> list[Any]:
    """Every so many of them, one at least."""
    found = list(things)
    return found[start % len(found) :: step] if found else []


def _id(value: object) -> str:
    if isinstance(value, capabilities.CapabilityRow):
        return f"{value.backend}-{value.operation}-{value.route}-{value.order}"
    return str(value)


def _marked(row: capabilities.CapabilityRow, dtype: str) -> object:
    """``pytest -m gpu`` is for machines with a GPU: the same cells, on it."""
    marks = [pytest.mark.gpu] if row.backend.endswith(":cuda") else []
    return pytest.param(row, dtype, marks=marks)


@pytest.mark.parametrize(
    ("row", "dtype"), [_marked(*cell) for cell in cases(CELLS, _drawn())], ids=_id
)
def test_cell_conforms_to_the_reference(
    row: capabilities.CapabilityRow, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is executed from its PTX, which is slow, every eighth example and law: other ones in
    every cell, so that all of them occur; ``make test-all`` has them all."""
    found = registry.probe(row.backend)
    if found.state != "ok":
        pytest.skip(f"{row.backend}: {found.reason}")
    if Backend(row.backend).is_emulated:
        every = cases(1, 8)
        start = CELLS.index((row, dtype)) % every
        for name, everything in (("examples", examples), ("laws_of", laws_of)):
            monkeypatch.setattr(
                engine, name, lambda *a, f=everything, **k: _every(every, start, f(*a, **k))
            )
    target = Target(backend(row.backend), row.operation, row.route, row.order, dtype)
    # A draw has the largest examples, of real features, in one dtype and on one backend alone.
    large = (row.backend, dtype) == ("numpy:cpu", "float32")
    verdict = check_cell(target, quick=cases(False, not large))
    assert verdict.state is State.OK, f"{verdict.where}: {verdict.reason}"
    assert verdict.worst is not None


@pytest.mark.serial  # threads spin while they wait for one that has no core
@pytest.mark.parametrize(
    ("operation", "route"),
    [("weights", "dense"), ("pool", "direct"), ("pool_sketch", "fft"), ("power", "gram")],
)
def test_cell_conforms_with_several_blas_threads(usable: str, operation: str, route: str) -> None:
    """The other tests run with one thread; the largest examples, real features, use more."""
    target = Target(backend(usable), operation, route, 2, "float32")
    large = [e for e in examples(operation, route) if e.features not in features.QUICK]
    assert large
    with threadpool_limits(2):
        for example in large:
            assert answer(target, example).excess <= 1, example.name


def test_every_tolerance_can_fail_zeros() -> None:
    """Zeros have a relative error of 1: a tolerance near that would check nothing."""
    # The same for every backend.
    asked = dict.fromkeys((row.operation, row.order, dtype, row.route) for row, dtype in CELLS)
    for operation, order, dtype, route in asked:
        if dtype == "float64":
            continue
        for example in examples(operation, route, quick=True):
            question = ask(example, operation, order, dtype)
            largest = np.max(question.allowed(route), initial=0.0)
            assert largest < 0.5, f"{operation} {route} {dtype} {example.name}: {largest}"


def test_tolerance_follows_the_dtype() -> None:
    X = np.ones((4, 3))
    single = tolerance.for_weights(X, "float32", iterations=10)
    assert tolerance.for_weights(X, "float16", iterations=10) == single
    ratio = single / tolerance.for_weights(X, "float64", iterations=10)
    assert ratio > 1e8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", features.NAMES)
def test_features_are_finite_and_exact_in_their_dtype(name: str, dtype: str) -> None:
    X = features.make(name, dtype)
    assert np.isfinite(X).all()
    np.testing.assert_array_equal(features.representable(X, dtype), X)
    # Dead channels come with dead rows, on purpose: that is what made eigen-solvers fail.
    if X.size and name not in ("zero rows", "dead channels"):
        assert (X != 0).any(axis=-1).all(), "a zero row where none was meant"


def test_features_of_a_name_never_change() -> None:
    first, again = features.make("n>d", "float32"), features.make("n>d", "float32")
    np.testing.assert_array_equal(first, again)
    assert features.seed("n>d") == 3054665988


def test_reproduce_runs_one_example_again() -> None:
    outcome = conformance.reproduce(
        "numpy:cpu", "weights", "dense", dtype="float32", example="mixed norms; gamma=0.3"
    )
    assert outcome.error <= outcome.tolerance
    assert outcome.result.shape == outcome.expected.shape
    law = conformance.reproduce(
        "numpy:cpu", "weights", "dense", dtype="float32", example="law: zero padding, on n>d"
    )
    assert law.error <= law.tolerance
    with pytest.raises(InvalidInput, match="not a route"):
        conformance.reproduce("numpy:cpu", "weights", "gram", dtype="float32", example="n>d")
    with pytest.raises(InvalidInput, match="law"):
        conformance.reproduce("numpy:cpu", "pool", "direct", dtype="float32", example="law: x")
    with pytest.raises(InvalidInput, match="example"):
        conformance.reproduce("numpy:cpu", "weights", "dense", dtype="float32", example="nothing")


def test_check_names_what_it_cannot_do() -> None:
    with pytest.raises(InvalidInput, match="operation must be one of"):
        conformance.check(operations=["wieghts"])
    with pytest.raises(InvalidInput, match="backend must be one of"):
        conformance.check(["numpy:gpu"])
    absent = next(name for name in registry.names() if registry.probe(name).state != "ok")
    with pytest.raises(BackendUnavailable, match=absent):
        conformance.check([absent])


def test_check_reports_progress_and_one_row_per_cell() -> None:
    seen: list[tuple[int, int]] = []
    cells = conformance.check(
        ["numpy:cpu"],
        operations=["pool"],
        quick=True,
        progress=lambda done, total, what: seen.append((done, total)),
    )
    assert len(cells) == len(seen) - 1 == 6
    assert seen[-1] == (6, 6)
    assert {cell.state for cell in cells} == {"ok"}
    assert not conformance.failed(cells)
