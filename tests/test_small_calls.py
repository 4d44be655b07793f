"""What a call costs before any kernel runs: accepted parameters and ordinary values cost little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool.errors import InvalidInput
from demopool.pooling import values
from demopool.problem import parameters
from demopool.problem.parameters import validated

X = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)
LOW, HIGH = values.ordinary_range(5, 16)


def _refuse(*_: Any) -> None:
    raise AssertionError("this was to be skipped")


@pytest.mark.parametrize("backend", ["numpy:cpu", "torch:cpu"])
def test_the_second_call_applies_no_rule(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "torch:cpu":
        pytest.importorskip("torch")
    features = dp.backend(backend).asarray(X.copy())
    first = dp.describe(features, "democratic", gamma=0.25)
    monkeypatch.setattr(parameters, "_RULES", dict.fromkeys(parameters._RULES, _refuse))
    second = dp.describe(features, "democratic", gamma=0.25)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    with pytest.raises(AssertionError, match="skipped"):
        dp.describe(features, "democratic", gamma=0.375)


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("order", 1, True),
        ("order", 1, 1.0),
        ("gamma", 1.0, True),
        ("gamma", 0, False),
        ("check", True, 1),
        ("check", False, 0.0),
        ("k", 2, 2.0),
        ("seed", 3, "3"),
        ("layout", "nd", ["nd"]),
        ("gamma", 0.5, [0.5]),
        ("dtype", "float32", {"float32"}),
        ("descriptor", "sum", ["sum"]),
    ],
)
def test_what_was_accepted_says_nothing_of_other_types(name: str, taken: Any, refused: Any) -> None:
    for _ in range(2):
        assert validated(**{name: taken}) == taken
        with pytest.raises(InvalidInput, match=f"{name} must be"):
            validated(**{name: refused})


def test_numbers_of_other_types_come_out_as_plain_ones() -> None:
    for given in (1, 1.0, np.float32(1.0), np.int8(1)):
        assert type(validated(gamma=given)) is float
    for given in (2, np.int64(2)):
        assert type(validated(k=given)) is int


@pytest.mark.parametrize("work", ["float32", "float64"])
@pytest.mark.parametrize("order", [1, 2])
def test_no_check_can_find_anything_in_ordinary_values(work: str, order: int) -> None:
    magnitudes = np.array([[LOW, HIGH], [HIGH, HIGH], [LOW, LOW]])
    assert values.are_ordinary(magnitudes, LOW, HIGH)
    values.check_finite(magnitudes, "error")
    values._check_range(magnitudes, (2**31, 2**31), work)
    values._check_faint(magnitudes, work, order)
    features = np.ones((3, 2, 4), work)
    ops = dp.backend("numpy:cpu")
    assert values.into_range(ops, features, magnitudes, work) is features


@pytest.mark.parametrize("value", [0.0, LOW / 2, HIGH * 2, np.inf, np.nan])
def test_other_values_are_looked_at(value: float) -> None:
    magnitudes = np.array([[1.0, 1.0], [value, 1.0]])
    assert not values.are_ordinary(magnitudes, LOW, HIGH)
    assert values.are_ordinary(magnitudes, LOW, HIGH, zero_rows=True) == (value == 0)


def test_ordinary_values_are_not_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "check_finite", _refuse)
    dp.describe(X, "democratic")
    with pytest.raises(AssertionError, match="skipped"):
        dp.describe(X * np.float32(2**-20), "democratic")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [0.0, LOW, LOW * 8, 1.0, HIGH / 8, HIGH, 1e30, np.inf, np.nan])
def test_a_quick_look_never_takes_for_ordinary_what_is_not(value: float, dtype: str) -> None:
    ops = dp.backend("numpy:cpu")
    features = np.ones((3, 5, 16), dtype)
    features[1, 2] = value
    quick = ops.implementation.looks_ordinary(features, LOW, HIGH)
    magnitudes = ops.implementation.row_magnitudes(features)
    assert values.are_ordinary(magnitudes, LOW, HIGH) or not quick
    assert quick == (value in (LOW, LOW * 8, 1.0, HIGH / 8))


def test_a_plan_serves_only_its_like() -> None:
    """Equal parameters of other types, sizes and dtypes are remembered apart."""
    for _ in range(2):
        assert dp.describe(X, "democratic", gamma=1).shape == (16,)
        np.testing.assert_array_equal(
            dp.describe(X, "democratic", gamma=1), dp.describe(X, "democratic", gamma=1.0)
        )
        with pytest.raises(InvalidInput, match="gamma must be"):
            dp.describe(X, "democratic", gamma=True)
        with pytest.raises(InvalidInput, match="gamma must be"):
            dp.describe(X, "democratic", gamma=[1])
        assert dp.describe(X[:, :3], "democratic", gamma=1).shape == (9,)
        assert dp.describe(X.astype(np.float64), "democratic", gamma=1).dtype == np.float64
        assert dp.describe(X, "sketched-democratic", k=5).shape == (5,)
