"""Mistakes in padding, centre, triangle and two streams: ``check`` finds each, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from demopool import backend
from demopool.conformance import features
from demopool.conformance.engine import LAW_FEATURES, Target, check_cell, laws_of, try_law
from demopool.conformance.laws_of_describe import LAWS_OF_DESCRIBE, READY, TWO_STREAMS, UPPER
from demopool.pooling import preparing, streams
from demopool.problem.vocabulary import State

ROUTES = {"weights": "dense", "pool": "direct", "pool_sketch": "moment", "power": "eigh"}


def _padding_counts(xp: Any, X: Any, present: Any) -> Any:
    """The mean over all rows, padding included."""
    return X - X.mean(axis=-2, keepdims=True)


def _without_factor(xp: Any, v: Any, d: int) -> Any:
    rows, columns = np.triu_indices(d)
    return xp.take(v, xp.asarray(rows * d + columns, device=v.device), axis=-1)


def _lower(xp: Any, v: Any, d: int, right: Callable[..., Any] = preparing.upper) -> Any:
    """Of a symmetric matrix the same entries, in another order."""
    order = np.lexsort(np.triu_indices(d))
    return xp.take(right(xp, v, d), xp.asarray(order, device=v.device), axis=-1)


def _other_hashes(d1: int, d2: int, *sketch: int, right: Any = streams.places) -> Any:
    """The second hash of the first stream, the first of the second."""
    bins, signs = right(d2, d1, *sketch)
    return (array.reshape(d2, d1).T.ravel() for array in (bins, signs))


MISTAKES: dict[str, tuple[str, str, Any, str, Any]] = {
    "no centre": ("pool", READY, preparing, "centered", lambda xp, X, present: X),
    "padding in the mean": ("pool", READY, preparing, "centered", _padding_counts),
    "padding left in": ("pool", READY, preparing, "without_padding", lambda xp, X, present: X),
    "no centre of weights": ("weights", READY, preparing, "centered", lambda xp, X, present: X),
    "no centre of a sketch": ("pool_sketch", READY, preparing, "centered", lambda xp, X, _: X),
    "no centre of a power": ("power", READY, preparing, "centered", lambda xp, X, present: X),
    "a triangle as it is": ("pool", UPPER, preparing, "upper", _without_factor),
    "the lower triangle": ("pool", UPPER, preparing, "upper", _lower),
    "Y^T X": ("pool", TWO_STREAMS, streams, "product", lambda both, d1: _swapped(both, d1)),
    "X^T X": ("pool", TWO_STREAMS, streams, "product", lambda both, d1: both.mT @ both),
    "hashes of the other stream": ("pool_sketch", TWO_STREAMS, streams, "places", _other_hashes),
    "no signs": (
        *("pool_sketch", TWO_STREAMS, streams, "scattered"),
        lambda M, bins, signs, k, right=streams.scattered: right(M, bins, abs(signs), k),
    ),
}


def _swapped(both: Any, d1: int) -> Any:
    product = both[..., d1:].mT @ both[..., :d1]
    return product.reshape((*product.shape[:-2], d1, -1))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(usable: str, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operation, law, module, name, wrong = MISTAKES[mistake]
    target = Target(backend(usable), operation, ROUTES[operation], 2, "float32")
    assert all(_holds(target, law, where) for where in LAW_FEATURES)
    monkeypatch.setattr(module, name, wrong)
    assert not any(_holds(target, law, where) for where in LAW_FEATURES)


def _holds(target: Target, law: str, where: str) -> bool:
    try:
        found = try_law(target, law, features.make(where, target.dtype)[0])
    except Exception:  # of a shape that is wrong, or of padding that is no number
        return False
    return found.error <= found.allowed


def test_check_says_which_law_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "upper", _without_factor)
    verdict = check_cell(Target(backend("numpy:cpu"), "pool", "direct", 2, "float32"), quick=True)
    assert verdict.state is State.WRONG
    assert verdict.where == "law: upper triangle, on rectified"
    assert "upper triangle is off by" in verdict.reason


def test_every_parameter_has_a_mistake_that_is_found() -> None:
    laws = {(operation, law) for operation, law, *_ in MISTAKES.values()}
    every = {(name, law) for name, found in LAWS_OF_DESCRIBE.items() for law in found}
    assert every - laws == {("power_sketch", READY)}  # the same code as that of a power


def test_what_has_no_meaning_is_no_law() -> None:
    ops = backend("numpy:cpu")
    assert READY in laws_of(Target(ops, "pool", "direct", 1, "float32"))
    assert UPPER not in laws_of(Target(ops, "pool", "direct", 1, "float32"))
    # It inverts A, which is singular for centred features.
    assert READY not in laws_of(Target(ops, "power", "newton", 2, "float32"))
