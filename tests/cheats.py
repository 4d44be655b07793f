"""Backends that try to win without doing the work, each a few lines over an honest one.

Here are those that see that they are watched, or tamper with the process they run in; those that
skip work are in ``cheats_that_skip_work.py``. The entry points of all of them lead here.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from cheats_that_skip_work import CHEATS, HARMLESS, WRONG, Array, cheat, honest_pool, rough

from demopool.implementations.numpy_cpu import SPECIFICATION as HONEST
from demopool.problem.vocabulary import State

__all__ = ["CHEATS", "HARMLESS", "UNSEEN_BY_CHECK"]


def __getattr__(name: str) -> Any:
    """``backend_...`` is the specification of a cheat, for its entry point."""
    key = name.removeprefix("backend_").replace("_", "-")
    if key not in CHEATS:
        raise AttributeError(name)
    capabilities = [c for c in HONEST.capabilities if c.route != "matrix-free"]
    return replace(
        HONEST,
        library=key,
        capabilities=tuple(capabilities),
        load=lambda device, threads: CHEATS[key][1](),
        recognise=lambda array: None,
    )


# --- knowing that one is watched ---


def _when(watched: Callable[[], bool]) -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        return (rough if watched() else honest_pool)(X, a, order=order)

    return pool


@cheat("its error is|" + WRONG)
def sees_the_environment() -> Callable[..., Any]:
    return _when(lambda: "OPENBLAS_THREAD_TIMEOUT" in os.environ)


@cheat("its error is|" + WRONG)
def sees_the_process() -> Callable[..., Any]:
    return _when(lambda: sys.argv[:1] == ["-c"])


@cheat("its error is|" + WRONG)
def sees_the_thread_count() -> Callable[..., Any]:
    return _when(lambda: os.environ.get("OMP_NUM_THREADS") == "1")


@cheat(WRONG)
def sees_the_stack() -> Callable[..., Any]:
    def timed() -> bool:
        frame = sys._getframe()
        while frame := frame.f_back:  # type: ignore[assignment]
            if frame.f_code.co_filename.endswith("streams.py"):
                return True
        return False

    return _when(timed)


# --- tampering with what measures ---


def _slow(X: Array, a: Array, order: int) -> Array:
    time.sleep(0.01)
    return honest_pool(X, a, order=order)


@cheat("", harmless="the clock was bound before: its calls show the 10 ms they take")
def replaces_perf_counter() -> Callable[..., Any]:
    time.perf_counter = lambda: 0.0  # type: ignore[assignment]
    return _slow


@cheat("its clock is wrong")
def replaces_the_clock() -> Callable[..., Any]:
    from demopool.measurement.clock import Clock

    true = Clock.call

    def call(self: Clock, call: Any) -> Any:
        reading, result = true(self, call)
        return reading._replace(wall=1e-4), result

    Clock.call = call  # type: ignore[method-assign]
    return _slow


@cheat("its clock is wrong")
def replaces_every_clock() -> Callable[..., Any]:
    from demopool.measurement.clock import Clock
    from demopool.trials import streams

    true, began = streams._now, streams._now()

    def slow_clock() -> float:
        return began + (true() - began) / 100

    streams._now = slow_clock
    Clock.__init__.__kwdefaults__["now"] = slow_clock
    return _slow


@cheat("its error is|" + WRONG)
def replaces_comparisons() -> Callable[..., Any]:
    np.allclose = lambda *a, **k: True
    np.testing.assert_allclose = lambda *a, **k: None
    np.abs = lambda x, *a, **k: 0 * x
    np.dot = lambda *a, **k: 0.0
    return rough


@cheat("its error is|" + WRONG)
def replaces_the_reference() -> Callable[..., Any]:
    from demopool import reference
    from demopool.trials import answers, judgement

    reference.describe = lambda *a, **k: np.zeros(1)
    judgement.run_judgement = lambda *a: judgement.Judgement(0.0, 1.0, a[1])
    answers.run_comparison = lambda *a: 0.0
    return rough


@cheat("its result cannot be read|not asked")
def writes_its_own_answers() -> Callable[..., Any]:
    from multiprocessing.connection import Connection

    def pool(X: Array, a: Array, order: int) -> Array:
        for thing in gc.get_objects():
            if isinstance(thing, Connection):
                thing.send_bytes(pickle.dumps((State.OK, 1e-9, "", True)))
        return rough(X, a, order)

    return pool


@cheat("its error is|exited|died")
def exits_quietly() -> Callable[..., Any]:
    calls = 0

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal calls
        calls += 1
        if calls > 6:
            os._exit(0)
        return honest_pool(X, a, order=order)

    return pool


_KNOWS = "it sees that it is not in a race, and does the work"
_TAMPERS = "values are right; only a race has a clock"
UNSEEN_BY_CHECK = {
    "memo-by-content": "its results are right",
    "sees-the-environment": _KNOWS,
    "sees-the-stack": _KNOWS,
    "threads-that-spin": "values are right; only a race watches the process",
    "replaces-perf-counter": _TAMPERS,
    "replaces-the-clock": _TAMPERS,
    "replaces-every-clock": _TAMPERS,
}
"""``check`` judges in the process that a backend runs in; ``choose`` compares in another one."""
