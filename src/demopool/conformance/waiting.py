"""A result that was waited for is there: a library may work on, but not after ``wait(result)``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..problem.routes import Sizes, find
from . import features
from .examples import Question
from .examples import question as asked

WHERE = "waiting"

ATTEMPTS = 5
"""Another process can hold up any one reading, but not the reading each time."""

_LARGE, _SMALL = (2, 160, 128), (2, 48, 128)


def question(operation: str, route: str, order: int, dtype: str) -> Question:
    """Enough work that it shows, of a shape in the route's domain."""
    known = find(operation, route)
    assert not isinstance(known, str)
    outside = known.domain.excludes(Sizes(_LARGE[1], _LARGE[2], 0.5))
    return _question(operation, order, dtype, _SMALL if outside else _LARGE)


@lru_cache(maxsize=4)
def _question(operation: str, order: int, dtype: str, shape: tuple[int, ...]) -> Question:
    X = np.random.default_rng(shape).standard_normal(shape) + 1.0
    return asked(features.representable(X, dtype), operation, order, dtype)


def late_seconds(
    call: Callable[[], Any],
    read: Callable[[Any], Any],
    now: Callable[[], float] = time.perf_counter,
) -> str:
    """In words, if the first reading of every result took longer than the call that gave it.

    Reading a second time takes what the transfer takes, which is not counted.
    """
    call()
    shortest = None
    for _ in range(ATTEMPTS):
        began = now()
        result = call()
        called = now()
        read(result)
        first = now()
        read(result)
        second = now()
        late = (first - called) - (second - first)
        if late <= called - began:
            return ""
        if shortest is None or late < shortest[0]:
            shortest = late, called - began
    assert shortest is not None
    return f"a call took {shortest[1] * 1e3:.3g} ms, and reading {shortest[0] * 1e3:.3g} ms more"
