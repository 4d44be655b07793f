"""Backends that do less work than they should: results of earlier calls, late or rough ones.

Each is a few lines over an honest backend: it replaces a kernel of ``numpy:cpu``. ``CHEATS`` has
what ``choose`` must say of each; ``HARMLESS`` those that gain nothing, with the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from demopool.implementations.numpy_cpu.implementation import NumpyImplementation

Array = Any
_kernels = NumpyImplementation.kernels
honest_pool, _weights = _kernels["pool", "direct"], _kernels["weights", "dense"]
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
            pools_normalized = False

            def __init__(self) -> None:
                self.kernels = {**_kernels, (operation, route): make()}  # type: ignore[misc]

        CHEATS[name] = (reason, Cheating)
        if harmless:
            HARMLESS[name] = harmless
        return make

    return register


def rough(X: Array, a: Array, order: int) -> Array:
    """A quick answer: every second row."""
    return 2 * honest_pool(X[..., ::2, :], None if a is None else a[..., ::2], order=order)


# --- memory of earlier calls ---


def _remembering(key: Callable[[Array], Any], exact: bool = False) -> Callable[..., Any]:
    known: dict[Any, Array] = {}

    def pool(X: Array, a: Array, order: int) -> Array:
        weights = None if a is None else a.tobytes()
        wanted = (X.shape, X.dtype, order, key(X), weights if exact else None)
        if wanted not in known:
            known[wanted] = honest_pool(X, a, order=order)
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
            last = honest_pool(X, a, order=order)
        return last.copy()

    return pool


@cheat(WRONG)
def returns_the_last_result() -> Callable[..., Any]:
    last: dict[Any, Array] = {}

    def pool(X: Array, a: Array, order: int) -> Array:
        found = last.get(X.shape)
        last[X.shape] = honest_pool(X, a, order=order)
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
            known[X.shape] = honest_pool(X, a, order=order)
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
            out[...] = honest_pool(X, a, order=order)

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

    def reshape(self, shape: tuple[int, ...]) -> _Lazy:
        return _Lazy(shape, lambda: self._compute().reshape(shape))


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
        return honest_pool(X, a, order=order)

    return pool


# --- less work than was asked for ---


@cheat("its error is|" + WRONG)
def half_precision() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        return honest_pool(X.astype(np.float16).astype(X.dtype), a, order=order)

    return pool


@cheat("its error is|" + WRONG)
def ten_bits_as_tf32() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        if X.dtype != np.float32:
            return honest_pool(X, a, order=order)
        bits = (X.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
        return honest_pool(bits.view(np.float32), a, order=order)

    return pool


@cheat("its error is|" + WRONG)
def half_of_the_rows() -> Callable[..., Any]:
    return rough


@cheat("its error is|" + WRONG)
def first_image_of_a_batch_only() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        out = honest_pool(X, a, order=order)
        if out.ndim > 2:
            out[1:] = out[:1]
        return out

    return pool


@cheat("its error is|" + WRONG)
def powers_of_two_only() -> Callable[..., Any]:
    def pool(X: Array, a: Array, order: int) -> Array:
        rows = 1 << (X.shape[-2].bit_length() - 1)
        return honest_pool(X[..., :rows, :], None if a is None else a[..., :rows], order=order)

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


@cheat("its error is|" + WRONG, "weights", "dense")
def stops_iterating_when_warm() -> Callable[..., Any]:
    calls = 0

    def weights(X: Array, gamma: float, tau: float, iterations: int, order: int) -> Array:
        nonlocal calls
        calls += 1
        few = iterations if calls < 4 else min(iterations, 3)
        return _weights(X, gamma=gamma, tau=tau, iterations=few, order=order)

    return weights


@cheat("its error is|" + WRONG)
def nan_once_in_fifty_calls() -> Callable[..., Any]:
    calls = 0

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal calls
        calls += 1
        out = honest_pool(X, a, order=order)
        if calls % 50 == 0:
            out[..., -1, -1] = np.nan
        return out

    return pool


@cheat("its error is|" + WRONG)
def one_wrong_value_when_warm() -> Callable[..., Any]:
    calls = 0

    def pool(X: Array, a: Array, order: int) -> Array:
        nonlocal calls
        calls += 1
        out = honest_pool(X, a, order=order)
        if calls > 4:
            out[..., -1, -1] = 0
        return out

    return pool


class _Prepares(NumpyImplementation):
    """Computes when data is placed, which is not timed where data starts on the device."""

    pools_normalized = False

    def __init__(self) -> None:
        self._pool = _remembering(lambda X: X.ctypes.data)
        self.kernels = {**_kernels, ("pool", "direct"): self._pool}  # type: ignore[misc]

    def asarray(self, array: Array) -> Array:
        placed = super().asarray(array)
        if placed.ndim == 3:
            self._pool(placed, None, 2)
        return placed


CHEATS["computes-while-data-is-placed"] = (WRONG + "|its error is", _Prepares)
