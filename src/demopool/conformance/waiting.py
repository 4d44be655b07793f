"""A result that was waited for is there: a library may work on, but not after ``wait(result)``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ..problem.routes import Sizes, find
from . import features
from .examples import Question
from .examples import question as asked

WHERE = "waiting"

ATTEMPTS = 5
"""Another process can hold up any one reading, but not the reading each time."""

MOST_LATE = 0.25
"""Of the time of a call: what clocks and allocators may add to reading a result that is there."""

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


class Library(Protocol):
    """What a library is asked here."""

    def asarray(self, array: Any) -> Any: ...
    def to_numpy(self, array: Any) -> Any: ...
    def wait(self, result: Any) -> None: ...


def late_seconds(
    call: Callable[[], Any], library: Library, now: Callable[[], float] = time.perf_counter
) -> str:
    """In words, if reading every result after waiting for it took work that was not done yet.

    What the way to the host takes is not counted: it is that of the same values, placed before. To
    read the result twice would not tell, since a library may keep what it has brought.
    """
    library.wait(call())
    shortest = None
    for _ in range(ATTEMPTS):
        began = now()
        result = call()
        library.wait(result)
        called = now()
        values = library.to_numpy(result)
        read = now()
        placed = library.asarray(np.array(values))
        library.wait(placed)
        library.to_numpy(library.asarray(np.array(values)))  # another, for what is slow only once
        before = now()
        library.to_numpy(placed)
        late, took = (read - called) - (now() - before), called - began
        if late <= MOST_LATE * took:
            return ""
        if shortest is None or late < shortest[0]:
            shortest = late, took
    assert shortest is not None
    return f"a call took {shortest[1] * 1e3:.3g} ms, and reading {shortest[0] * 1e3:.3g} ms more"
