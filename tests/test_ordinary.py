"""Features that are known to be ordinary: the range, who is told, and what a false promise does."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.conformance.engine import Target, check_cell, laws_of
from demopool.conformance.laws import ON_ORDINARY
from demopool.implementations.numpy_cpu.implementation import NumpyImplementation
from demopool.pooling import values
from demopool.pooling.operations import Operations
from demopool.problem.vocabulary import State

Array = Any
_kernels = NumpyImplementation.kernels
X = np.random.default_rng(0).standard_normal((3, 9, 4)).astype(np.float32)


# --- the range ---


def test_larger_images_have_a_smaller_range() -> None:
    assert values.ordinary_range(784, 512) == (2.0**-13, 2.0**13)
    assert values.ordinary_range(3136, 512) == (2.0**-12, 2.0**12)
    assert values.ordinary_range(2**16, 2**16) == (2.0**-7, 2.0**7)


def _at_the_ends(n: int, d: int, *, live: int) -> Array:
    """Rows of both ends, in few directions or in many; some are orthogonal to most others."""
    rng = np.random.default_rng(n + d + live)
    low, high = values.ordinary_range(n, d)
    features = np.zeros((n, d))
    features[:, :live] = rng.standard_normal((n, live))
    features[::5] = 0
    features[::5, -1] = 1
    features /= np.abs(features).max(axis=1, keepdims=True)
    return features * np.where(rng.random((n, 1)) < 0.5, low, high)


def _exponents(features: Array, gamma: float, tau: float, order: int) -> list[Array]:
    """Base-2 logarithms of all numbers that weights come by, whichever route."""
    K = reference.kernel(features, order=order)
    target = K.sum(axis=1) ** gamma
    a, met = np.ones(len(K)), [K.max(), K.diagonal(), K.sum(axis=1), target]
    for _ in range(12):
        Ka = K @ a
        met += [a, Ka, a * Ka, a * Ka / target]
        if order == 2:
            M = features.T @ (a[:, None] * features)
            squares = features**2
            met += [np.abs(M).max(), np.abs(features @ M).max(), squares @ M.diagonal()]
        a = a * (a * Ka / target) ** -tau
    return [np.log2(each) for each in met]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("n", "d", "live"), [(300, 40, 3), (40, 300, 300), (200, 64, 1)])
def test_no_number_on_the_way_is_beyond_what_was_derived(
    n: int, d: int, live: int, order: int
) -> None:
    features = _at_the_ends(n, d, live=live)
    bits = np.log2(values.ordinary_range(n, d)[1])
    limit = 6 * bits + 2.5 * np.log2(n * d)
    for gamma, tau in product((0.0, 0.5, 0.9, 1.0), (0.5, 1.0)):
        for exponents in _exponents(features, gamma, tau, order):
            assert np.abs(exponents).max() <= limit <= 126


# --- who is told ---


class _Told(NumpyImplementation):
    """Remembers whether its features were promised to be ordinary."""

    takes_ordinary = True

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.kernels = {**_kernels, ("weights", "dense"): self.weights}  # type: ignore[misc]

    def weights(self, X: Array, *, ordinary: bool = False, **options: Any) -> Array:
        self.told.append(ordinary)
        return _kernels["weights", "dense"](X, **options)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found = _Told()
    monkeypatch.setattr(dp.backend("numpy:cpu"), "implementation", found)
    return found.told


@pytest.mark.parametrize(
    ("value", "options", "wanted"),
    [
        (1.0, {}, True),
        (0.0, {"zero_rows": "ignore"}, True),
        (0.0, {"zero_rows": "warn"}, True),
        (2.0**14, {}, False),
        (2.0**-14, {}, False),
        (1.0, {"check": False}, False),
    ],
)
def test_weights_are_told_what_the_check_has_found(
    told: list[bool],
    value: float,
    options: dict[str, Any],
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = X.copy()
    features[1, 2] = value
    monkeypatch.setattr(values, "_warned", {"of such rows, before"})
    dp.describe(features, "democratic", backend="numpy:cpu", route="dense", **options)
    assert told == [wanted]


def test_an_operation_is_told_by_its_caller_alone(told: list[bool]) -> None:
    ops = dp.backend("numpy:cpu")
    ops.weights(X, route="dense")
    ops.weights(X, route="dense", ordinary=True)
    assert told == [False, True]


def test_rows_of_zeros_are_still_reported() -> None:
    features = X.copy()
    features[1, 2] = 0
    with pytest.raises(dp.errors.InvalidInput, match="image 1, row 2"):
        dp.describe(features, "democratic", zero_rows="error")


# --- a backend that promises, and does not keep it ---


def _hides_faint_rows(X: Array, *, ordinary: bool = False, **options: Any) -> Array:
    """A bound in place of a look for rows of zeros."""
    if ordinary:
        X = np.where(np.abs(X).max(axis=-1, keepdims=True) > 2.0**-12, X, 0)
    return _kernels["weights", "dense"](X, **options)


def _cuts_large_rows(X: Array, *, ordinary: bool = False, **options: Any) -> Array:
    return _kernels["weights", "dense"](np.clip(X, -4096, 4096) if ordinary else X, **options)


def _forgets_the_scale(X: Array, *, ordinary: bool = False, **options: Any) -> Array:
    """Features are brought near 1, and their weights are left there."""
    if ordinary:
        X = X * np.exp2(-np.frexp(np.abs(X).max(axis=(-2, -1), keepdims=True))[1]).astype(X.dtype)
    return _kernels["weights", "dense"](X, **options)


def _takes_no_keyword(X: Array, **options: Any) -> Array:
    return _kernels["weights", "dense"](X, **options)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (_hides_faint_rows, "law"),
        (_cuts_large_rows, "law"),
        (_forgets_the_scale, "law"),
        (_takes_no_keyword, "raised"),
    ],
)
def test_a_false_promise_is_caught(kernel: Any, reason: str) -> None:
    class Promising(NumpyImplementation):
        takes_ordinary = True
        kernels = {**_kernels, ("weights", "dense"): kernel}  # noqa: RUF012

    target = Target(Operations("numpy:cpu", Promising()), "weights", "dense", 2, "float32")
    verdict = check_cell(target)
    assert verdict.state in (State.WRONG, State.ERROR)
    assert ON_ORDINARY in verdict.where
    assert verdict.reason.startswith(reason)


def test_no_promise_no_law() -> None:
    ops = dp.backend("numpy:cpu")
    assert ON_ORDINARY not in laws_of(Target(ops, "weights", "dense", 2, "float32"))
    np.testing.assert_array_equal(ops.weights(X, ordinary=True), ops.weights(X))
