"""Symmetric results from one triangle: pooled without the other, normalised, then both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.conformance import tolerance
from demopool.conformance.engine import Target, check_cell, laws_of
from demopool.conformance.laws import ON_TRIANGLES
from demopool.contract import registry
from demopool.errors import InvalidInput
from demopool.implementations.numpy_cpu.implementation import NumpyImplementation
from demopool.pooling.operations import Operations
from demopool.problem.vocabulary import NORMALIZATIONS, State

Array = Any
_kernels = NumpyImplementation.kernels


@pytest.fixture(params=["numpy:cpu", "numba:cpu", "cupy:ptx"])
def ops(request: pytest.FixtureRequest) -> Operations:
    found = registry.probe(request.param)
    if found.state != "ok":
        pytest.skip(f"{request.param}: {found.reason}")
    return dp.backend(request.param)


def _without_upper(S: Array) -> Array:
    return np.where(np.tri(S.shape[-1], dtype=bool), S, S.dtype.type(np.nan))


@pytest.mark.parametrize("kind", NORMALIZATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_triangle_is_read_and_two_are_written(ops: Operations, dtype: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    for shape in ((1,), (2, 3), (64,), (65,), (3, 130), (1, 2, 70)):
        S = rng.standard_normal((*shape, shape[-1])).astype(dtype)
        S += S.swapaxes(-1, -2)
        found = ops.normalize(_without_upper(S), axes=2, kind=kind, symmetric=True)
        wanted = reference.normalize(S, axes=2, kind=kind)
        allowed = float(tolerance.for_normalize(dtype, shape[-1] ** 2))
        assert np.abs(found - wanted).max() <= allowed * np.abs(wanted).max()
        np.testing.assert_array_equal(found, found.swapaxes(-1, -2))


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
@pytest.mark.parametrize("d", [5, 100])
def test_sums_that_leave_the_range(ops: Operations, d: int, kind: str) -> None:
    S = np.outer(np.linspace(-1, 1, d), np.linspace(-1, 1, d))
    for dtype, scales in (("float32", (0, 1e-30, 1e-25, 1e36)), ("float64", (1e-300, 1e305))):
        for scale in scales:
            given = (S * scale).astype(dtype)
            found = ops.normalize(_without_upper(given), axes=2, kind=kind, symmetric=True)
            scaled = given / (np.abs(given).max() or 1.0)  # so that the reference can square it
            wanted = reference.normalize(scaled, axes=2, kind=kind)
            # Division by the largest rounds once more.
            np.testing.assert_allclose(found, wanted, atol=1e-5 if dtype == "float32" else 1e-13)


def test_only_the_lower_triangle_need_be_pooled(ops: Operations) -> None:
    X = np.random.default_rng(0).standard_normal((3, 20, 70)).astype(np.float32)
    a = np.random.default_rng(1).random((3, 20), np.float32)
    for weights in (None, a):
        half, whole = ops.pool(X, weights, triangle=True), ops.pool(X, weights)
        np.testing.assert_array_equal(np.tril(half), np.tril(whole))
    np.testing.assert_array_equal(ops.pool(X, order=1, triangle=True), ops.pool(X, order=1))


def test_a_batch_has_the_bits_of_a_loop(ops: Operations) -> None:
    S = np.random.default_rng(0).standard_normal((5, 130, 130)).astype(np.float32)
    for kind in NORMALIZATIONS:
        batch = ops.normalize(S, axes=2, kind=kind, symmetric=True)
        loop = [ops.normalize(one, axes=2, kind=kind, symmetric=True) for one in S]
        np.testing.assert_array_equal(batch, np.stack(loop))


@pytest.mark.parametrize("ops", ["numpy:cpu", "numba:cpu"], indirect=True)
def test_input_is_overwritten_only_if_that_is_allowed(ops: Operations) -> None:
    S = np.eye(70)
    ops.normalize(S, axes=2, symmetric=True)
    np.testing.assert_array_equal(S, np.eye(70))
    assert ops.normalize(S, axes=2, symmetric=True, overwrite=True) is S


def test_what_is_not_square_has_no_triangle(ops: Operations) -> None:
    for v, axes in ((np.ones((3, 4)), 2), (np.ones((3, 3)), 1)):
        with pytest.raises(InvalidInput, match="square"):
            ops.normalize(v, axes=axes, symmetric=True)


# --- a backend that says it can and cannot ---


def _reads_both(v: Array, *, symmetric: bool = False, **options: Any) -> Array:
    return _kernels["normalize", "direct"](v, **options)


def _writes_one(v: Array, *, symmetric: bool = False, **options: Any) -> Array:
    found = _kernels["normalize", "direct"](v, symmetric=symmetric, **options)
    return np.tril(found) if symmetric else found


def _fills_the_upper(X: Array, a: Array, *, order: int, triangle: bool = False) -> Array:
    found = _kernels["pool", "direct"](X, a, order=order)
    return np.triu(found) if triangle else found


@pytest.mark.parametrize(
    ("operation", "kernel", "reason"),
    [
        ("normalize", _reads_both, "nonfinite"),
        ("normalize", _writes_one, "law"),
        ("pool", _fills_the_upper, "law"),
    ],
)
def test_a_false_promise_is_caught(operation: str, kernel: Any, reason: str) -> None:
    class Promising(NumpyImplementation):
        kernels = {**_kernels, (operation, "direct"): kernel}  # noqa: RUF012

    ops = Operations("numpy:cpu", Promising())
    verdict = check_cell(Target(ops, operation, "direct", 2, "float32"))
    assert verdict.state is State.WRONG
    assert ON_TRIANGLES in verdict.where
    assert verdict.reason.startswith(reason)


def test_no_promise_no_law() -> None:
    class Modest(NumpyImplementation):
        pools_triangles = False

    def older(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
        return _kernels["normalize", "direct"](v, axes=axes, kind=kind, overwrite=overwrite)

    Modest.kernels = {**_kernels, ("normalize", "direct"): older}
    ops = Operations("numpy:cpu", Modest())
    assert ON_TRIANGLES not in laws_of(Target(ops, "normalize", "direct", 2, "float32"))
    X = np.random.default_rng(0).standard_normal((20, 70))
    found = ops.normalize(ops.pool(X, triangle=True), axes=2, symmetric=True)
    np.testing.assert_allclose(found, reference.normalize(X.T @ X, axes=2), rtol=1e-12)
