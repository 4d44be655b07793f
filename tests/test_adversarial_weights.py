"""Weights and democratic descriptors of features that are hard on them, by every route of every CPU
backend, against the reference.

The tolerance is derived from the features (conformance/tolerance.py): where their dot products
cancel, or tau = 1 keeps errors alive, it grows as far as the problem itself is ill-conditioned.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from effort import cases
from hypothesis import HealthCheck, assume, given, settings

import demopool as dp
from demopool import reference
from demopool.conformance import tolerance
from demopool.contract import capabilities, registry

Array = np.ndarray[Any, Any]

BACKENDS = [name for name in ("numpy:cpu", "numba:cpu", "torch:cpu") if name in registry.names()]


def _rotation(rng: np.random.Generator, d: int) -> Array:
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def _gaussian(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    return rng.standard_normal((n, d))


def _faint_across(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    """Some rows are faint and orthogonal to the others, in rotated coordinates."""
    X, rows, columns = np.zeros((n, d)), rng.integers(1, n + 1), rng.integers(0, d)
    X[:rows, columns:] = ratio * rng.standard_normal((rows, d - columns))
    X[rows:, : columns or d] = rng.standard_normal((n - rows, columns or d))
    return X @ _rotation(rng, d)


def _duplicated(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    return rng.standard_normal((n, d))[rng.integers(0, max(1, n // 3), n)]


def _nearly_parallel(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    return rng.standard_normal(d) + ratio * rng.standard_normal((n, d))


def _alternating(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    """The same direction, and its opposite; the first order has two groups, which cancel."""
    sign = np.where(np.arange(n) % 2, -1.0, 1.0)[:, np.newaxis]
    return sign * (rng.standard_normal(d) + rng.choice([0.0, ratio]) * rng.standard_normal((n, d)))


def _rectified(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    """Dead channels and zero rows, as networks give."""
    X = np.maximum(rng.standard_normal((n, d)) - 0.5, 0.0)
    X[:, rng.random(d) < 0.5] = 0.0
    X[rng.random(n) < 0.3] = 0.0
    return X


def _few_channels(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    X = np.zeros((n, d))
    live = min(d, 3)
    X[:, :live] = _faint_across(rng, n, live, ratio)
    return X


def _many_sizes(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    return rng.standard_normal((n, d)) * ratio ** rng.random((n, 1))


def _integers(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    return rng.integers(-1, 2, (n, d)).astype(np.float64)


def _axes(rng: np.random.Generator, n: int, d: int, ratio: float) -> Array:
    """K has blocks: Sinkhorn has a scale of its own in each."""
    return np.eye(d)[rng.integers(0, d, n)] * ratio ** rng.integers(0, 2, (n, 1))


FAMILIES = (
    *(_gaussian, _faint_across, _duplicated, _nearly_parallel, _alternating, _rectified),
    *(_few_channels, _many_sizes, _integers, _axes),
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, dict[str, Any]]:
    """Features of two images of one kind, exact in their dtype, and the options of the weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    family = draw(st.sampled_from(FAMILIES))
    n, d = draw(st.integers(1, 48)), draw(st.integers(1, 20))
    ratio = draw(st.sampled_from([1e-6, 1e-4, 1e-3, 1e-2, 0.1]))
    scale = draw(st.just(0) | st.integers(-60, 60))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    X = np.stack([family(rng, n, d, ratio) for _ in range(draw(st.integers(1, 2)))])
    X = np.ldexp(X.astype(dtype), scale)
    options = {
        "gamma": draw(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)),
        "tau": draw(st.sampled_from([1.0, 0.5, 0.9]) | st.floats(0.05, 1)),
        "iterations": draw(st.sampled_from([10, 1, 0, 100]) | st.integers(0, 30)),
        "order": draw(st.sampled_from([2, 2, 2, 1])),
    }
    return X, options


def _answerable(X: Array, options: dict[str, Any]) -> Array:
    """The reference's weights, of rows that are not too faint, if the dtype can hold them."""
    limits = np.finfo(X.dtype)
    sizes = np.abs(X).max(axis=-1)
    # What ``describe`` refuses.
    faintest = float(limits.tiny) ** (1 / (2 * options["order"])) * 16
    assume(((sizes == 0) | (sizes >= faintest * sizes.max(axis=-1, keepdims=True))).all())
    expected = reference.weights(X, **options)
    present = expected[expected > 0]
    assume(present.size == 0 or (present.max() < limits.max / 16 and present.min() > limits.tiny))
    return expected


def _routes(name: str, order: int, dtype: str) -> list[str]:
    rows = [row for row in capabilities.table((name,)) if row.operation == "weights"]
    return [row.route for row in rows if row.order == order and dtype in row.dtypes]


search = settings(max_examples=cases(1_700, 30), suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", BACKENDS)
@search
@given(problems())
def test_weights_are_those_of_the_reference(
    name: str, problem: tuple[Array, dict[str, Any]]
) -> None:
    X, options = problem
    expected = _answerable(X, options)
    allowed = tolerance.for_weights(X, X.dtype.name, **options)
    ops = _operations(name)
    size = np.where(expected > 0, expected, 1.0)
    for route in _routes(name, options["order"], X.dtype.name):
        found = ops.to_numpy(ops.weights(ops.asarray(X), **options, route=route))
        assert np.isfinite(found).all(), route
        assert not found[expected == 0].any(), route
        error = (np.abs(found - expected) / size).max(axis=-1)
        assert (error <= allowed).all(), (route, error, allowed)


@pytest.mark.parametrize("name", BACKENDS)
@search
@given(problems())
def test_democratic_descriptors_are_those_of_the_reference(
    name: str, problem: tuple[Array, dict[str, Any]]
) -> None:
    """After the l2 norm alone: the signed root would turn an error of u near 0 into sqrt(u)."""
    X, options = problem
    a = _answerable(X, options)
    order, dtype = options["order"], X.dtype.name
    v = reference.pool(X, a, order=order)
    expected = reference.describe(X, "democratic", **options, normalize="l2")
    weighing = tolerance.for_weights(X, dtype, **options)
    # A sum that cancels to nothing has no direction, and any is right.
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = tolerance.for_pool(X, a, v, dtype, order=order, of_weights=weighing)
    largest = np.abs(expected).max(axis=-1)
    spread = 1 + np.sqrt(expected.shape[-1]) * largest
    allowed = allowed * spread + tolerance.for_normalize(dtype, expected.shape[-1])
    ops = _operations(name)
    for route in _routes(name, order, dtype):
        by: dict[str, Any] = {"backend": name, "route": route, "zero_rows": "ignore"}
        y = dp.describe(ops.asarray(X), "democratic", **options, **by, normalize="l2")
        found = ops.to_numpy(y)
        assert np.isfinite(found).all(), route
        error = np.abs(found - expected).max(axis=-1)
        decided = (allowed < 1) & (largest > 0)
        assert (error <= allowed * largest)[decided].all(), (route, error, allowed)


def _operations(name: str) -> Any:
    found = registry.probe(name)
    if found.state != "ok":
        pytest.skip(f"{name}: {found.reason}")
    return dp.backend(name)
