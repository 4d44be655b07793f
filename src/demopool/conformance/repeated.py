"""Calls in a row on arrays that are overwritten before each: nothing may be remembered.

Shapes, addresses and first rows stay the same, everything else changes. Every result must be right,
and must stay what it was while the next call runs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..problem.routes import Sizes, find
from . import features
from .examples import Question, question

CALLS = 52
"""More than fifty: some mistakes come once in so many calls."""

EMULATED_CALLS = 3

WHERE = "repeated calls"


def questions(operation: str, route: str, order: int, dtype: str, calls: int) -> list[Question]:
    """Of one shape that is in the route's domain."""
    known = find(operation, route)
    assert not isinstance(known, str)
    n = 4 if known.domain.excludes(Sizes(9, 5, 0.5)) else 9
    return _questions(operation, order, dtype, n, calls)


@lru_cache(maxsize=8)
def _questions(operation: str, order: int, dtype: str, n: int, calls: int) -> list[Question]:
    rng = np.random.default_rng((n, calls))
    found = []
    for _ in range(calls):
        X = rng.standard_normal((2, n, 5)) + 1.0
        X[:, 0] = 1.0
        found.append(question(features.representable(X, dtype), operation, order, dtype))
    return found
