"""Backends that try to win without doing the work, each a few lines over an honest one.

Every cheat replaces a kernel of ``numpy:cpu``, or something of the process it runs in. ``CHEATS``
has what ``choose`` must say of each; ``HARMLESS`` those that gain nothing, with the reason.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from demopool.implementations.numpy_cpu import SPECIFICATION as HONEST
from demopool.implementations.numpy_cpu.implementation import NumpyImplementation
from demopool.problem.vocabulary import State

Array = Any
_kernels = NumpyImplementation.kernels
_pool, _weights = _kernels["pool", "direct"], _kernels["weights", "dense"]
_normalize = _kernels["normalize", "direct"]

WRONG = "timed calls were wrong"
CHEATS: dict[str, tuple[str, type[NumpyImplementation]]] = {}
HARMLESS: dict[str, str] = {}


def cheat(
    reason: str, operation: str = "pool", route: str = "direct", harmless: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a kernel that cheats. It is made anew in every process: its state is its own."""

    def register(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        name = make.__name__.replace("_", "-")

        class Cheating(NumpyImplementation):
            def __init__(self) -> None:
                self.kernels = {**_kernels, (operation, route): make()}  # type: ignore[misc]

        CHEATS[name] = (reason, Cheating)
        if harmless:
            HARMLESS[name] = harmless
        return make

    return register


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
        load=lambda device: CHEATS[key][1](),
        recognise=lambda array: None,
    )


def rough(X: Array, a: Array, order: int) -> Array:
    """A quick answer: every second row."""
    return 2 * _pool(X[..., ::2, :], None if a is None else a[..., ::2], order=order)


# --- memory of earlier calls ---


def _remembering(key: Callable[[Array], Any], exact: bool = False) -> Callable[..., Any]:
    known: dict[Any, Array] = {}

    def pool(X: Array, a: Array, order: int) -> Array:
        weights = None if a is None else a.tobytes()
        wanted = (X.shape, X.dtype, order, key(X), weights if exact else None)
        if wanted not in known:
            known[wanted] = _pool(X, a, order=order)
        return known[wanted].copy()

    return pool


@cheat(WRONG)
def memo_by_address() -> Callable[..., Any]:
    return _remembering(lambda X: X.ctypes.data)


@cheat(WRONG)
def memo_by_shape() -> Callable[..., Any]:
    return _remembering(lambda X: X.shape)


@cheat(WRONG)
def memo_by_identity() -> Callable[..., Any]:
    return _remembering(id)


@cheat("", harmless="no two timed calls have the same first row, so it computes every time")
def memo_by_first_row() -> Callable[..., Any]:
    return _remembering(lambda X: X[..., 0, :].tobytes())


@cheat("", harmless="no two timed calls have the same content, so it computes every time")
def memo_by_content() -> Callable[..., Any]:
    return _remembering(lambda X: X.tobytes(), exact=True)


@cheat("", harmless="every image is scaled anew, so its sum never comes again")
def memo_by_sum() -> Callable[..., Any]:
    return _remembering(lambda X: float(X.sum(dtype=np.float64)), exact=True)


@cheat(WRONG)
def memo_by_call_count() -> Callable[..., Any]:
    calls, last = 0, None

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal calls, last
        calls += 1
        if calls < 5 or calls % 10 == 0 or last is None or last.shape[:-2] != X.shape[:-2]:
            last = _pool(X, a, order=order)
        return last.copy()

    return pool


@cheat(WRONG)
def returns_the_last_result() -> Callable[..., Any]:
    last: dict[Any, Array] = {}

    def pool(X: Array, a: Array, order: int) -> Array:
        found = last.get(X.shape)
        last[X.shape] = _pool(X, a, order=order)
        return last[X.shape] if found is None else found

    return pool


@cheat(WRONG)
def memo_cleared_between_blocks() -> Callable[..., Any]:
    known: dict[Any, Array] = {}
    before = 0.0

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal before
        now = time.monotonic()
        if now - before > 0.003:
            known.clear()
        before = now
        if X.shape not in known:
            known[X.shape] = _pool(X, a, order=order)
        return known[X.shape].copy()

    return pool


@cheat(f"{WRONG}|overwrote", "normalize", "direct")
def one_buffer_for_all_results() -> Callable[..., Any]:
    """Returned by the final norm, which is where a result leaves the library."""
    buffers: dict[Any, Array] = {}

    def normalize(v: Array, axes: int, kind: str, overwrite: bool = False) -> Array:
        found = _normalize(v, axes=axes, kind=kind, overwrite=overwrite)
        buffer = buffers.setdefault((found.shape, found.dtype), np.empty_like(found))
        buffer[...] = found
        return buffer

    return normalize


# --- work that is not there when the call returns ---


@cheat("its error is|" + WRONG)
def background_thread() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        out = np.zeros((*X.shape[:-2], X.shape[-1], X.shape[-1]), X.dtype)

        def work() -> None:
            time.sleep(0.002)
            out[...] = _pool(X, a, order=order)

        threading.Thread(target=work).start()
        return out

    return pool


class _Lazy:
    """Looks like an array, and computes when it is read."""

    def __init__(self, shape: tuple[int, ...], compute: Callable[[], Array]) -> None:
        self.shape, self.ndim, self._compute = shape, len(shape), compute

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self._compute()

    def __getitem__(self, index: Any) -> Array:
        return self._compute()[index]


@cheat("", "normalize", "direct", harmless="one value is read while the clock runs: it computes")
def lazy_result() -> Callable[..., Any]:
    def normalize(v: Array, axes: int, kind: str, overwrite: bool = False) -> Any:
        return _Lazy(v.shape, lambda: _normalize(v, axes=axes, kind=kind, overwrite=False))

    return normalize


@cheat("still at work")
def threads_that_spin() -> Callable[..., Any]:
    started = False

    def spin() -> None:
        while True:
            sum(range(1000))

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal started
        if not started:
            started = True
            threading.Thread(target=spin, daemon=True).start()
        return _pool(X, a, order=order)

    return pool


# --- less work than was asked for ---


@cheat("its error is|" + WRONG)
def half_precision() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        return _pool(X.astype(np.float16).astype(X.dtype), a, order=order)

    return pool


@cheat("its error is|" + WRONG)
def ten_bits_as_tf32() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        if X.dtype != np.float32:
            return _pool(X, a, order=order)
        bits = (X.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
        return _pool(bits.view(np.float32), a, order=order)

    return pool


@cheat("its error is|" + WRONG)
def half_of_the_rows() -> Callable[..., Any]:
    return rough


@cheat("its error is|" + WRONG)
def first_image_of_a_batch_only() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        out = _pool(X, a, order=order)
        if out.ndim > 2:
            out[1:] = out[:1]
        return out

    return pool


@cheat("its error is|" + WRONG)
def powers_of_two_only() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        rows = 1 << (X.shape[-2].bit_length() - 1)
        return _pool(X[..., :rows, :], None if a is None else a[..., :rows], order=order)

    return pool


@cheat("norm of|its error is|" + WRONG, "normalize", "direct")
def no_norm_when_near_one() -> Callable[..., Any]:
    def normalize(v: Array, axes: int, kind: str, overwrite: bool = False) -> Array:
        if kind == "none":
            return _normalize(v, axes=axes, kind=kind, overwrite=overwrite)
        roots = np.sign(v) * np.sqrt(np.abs(v))
        norm = np.sqrt(np.abs(v).sum(axis=tuple(range(-axes, 0)), keepdims=True))
        return roots / np.where(np.abs(norm - 10) < 200, np.float32(12), norm).astype(v.dtype)

    return normalize


@cheat(WRONG, "weights", "dense")
def stops_iterating_when_warm() -> Callable[..., Any]:
    calls = 0

    def weights(X: Array, gamma: float, tau: float, iterations: int, order: int) -> Array:
        nonlocal calls
        calls += 1
        few = iterations if calls < 4 else min(iterations, 3)
        return _weights(X, gamma=gamma, tau=tau, iterations=few, order=order)

    return weights


@cheat(WRONG)
def nan_once_in_fifty_calls() -> Callable[..., Any]:
    calls = 0

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal calls
        calls += 1
        out = _pool(X, a, order=order)
        if calls % 50 == 0:
            out[..., -1, -1] = np.nan
        return out

    return pool


@cheat(WRONG)
def one_wrong_value_when_warm() -> Callable[..., Any]:
    calls = 0

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal calls
        calls += 1
        out = _pool(X, a, order=order)
        if calls > 4:
            out[..., -1, -1] = 0
        return out

    return pool


# --- knowing that one is watched ---


def _when(watched: Callable[[], bool]) -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        return (rough if watched() else _pool)(X, a, order=order)

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
    return _pool(X, a, order=order)


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
        return _pool(X, a, order=order)

    return pool


class _Prepares(NumpyImplementation):
    """Computes when data is placed, which is not timed where data starts on the device."""

    def __init__(self) -> None:
        self._pool = _remembering(lambda X: X.ctypes.data)
        self.kernels = {**_kernels, ("pool", "direct"): self._pool}  # type: ignore[misc]

    def asarray(self, array: Array) -> Array:
        placed = super().asarray(array)
        if placed.ndim == 3:
            self._pool(placed, None, 2)
        return placed


CHEATS["computes-while-data-is-placed"] = (WRONG + "|its error is", _Prepares)

_KNOWS = "it sees that it is not in a race, and does the work"
_TAMPERS = "values are right; only a race has a clock"
UNSEEN_BY_CHECK = {
    "memo-by-content": "its results are right",
    "memo-by-sum": "its results are right",
    "sees-the-environment": _KNOWS,
    "sees-the-process": _KNOWS,
    "sees-the-stack": _KNOWS,
    "threads-that-spin": "values are right; only a race watches the process",
    "replaces-perf-counter": _TAMPERS,
    "replaces-the-clock": _TAMPERS,
    "replaces-every-clock": _TAMPERS,
}
"""``check`` runs a backend in its own process; ``choose`` compares in another one."""
