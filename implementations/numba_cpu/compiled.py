"""Compile kernels, and distribute their work over threads.

Kernels are plain compiled loops over part of the work, ``kernel(start, stop, ...)``, that release
the GIL; :func:`spread` runs the parts in threads. Numba's own ``prange`` is not used. Its OpenMP
threads spin for milliseconds after a region, against those of BLAS (measured here: 8 ms for a
region of 0.3 ms), and its ``workqueue`` aborts the process when two Python threads call it. The
threads here sleep when they are idle, any number of callers may share them, and compilation takes a
fraction of the time.

Compiled code is stored on disk: in ``NUMBA_CACHE_DIR`` if it is set, else beside these files, else,
if that folder is not writable, in the user's cache directory. If none of them is writable, every
process compiles for itself, and a warning says so. Numba compiles again when a file here changes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from threading import RLock
from typing import Any

import numba
from numba.np.ufunc import parallel

from demopool.contract import usable_cores


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call. Sums may be reordered, which vectorises them; NaN,
    infinities and signs keep their meaning."""
    options: dict[str, Any] = {
        "error_model": "numpy",
        "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    }
    compiled: Callable[..., Any]
    try:
        compiled = numba.njit(function, cache=True, nogil=True, **options)
    except RuntimeError:  # no folder for compiled code is writable
        _warn_that_nothing_is_cached()
        compiled = numba.njit(function, nogil=True, **options)
    return compiled


@cache
def _warn_that_nothing_is_cached() -> None:
    warnings.warn(
        "numba:cpu compiles again in every process, because no folder for compiled code can "
        "be written; set NUMBA_CACHE_DIR to one that can.",
        RuntimeWarning,
        stacklevel=2,
    )


def threads() -> int:
    """The number of threads: from ``numba.set_num_threads`` if it was called, else from
    NUMBA_NUM_THREADS, else from OMP_NUM_THREADS, else the number of usable cores."""
    return int(numba.get_num_threads()) if parallel._is_initialized else _usual_threads()


@cache  # looking takes 2 µs, and a call asks ten times
def _usual_threads() -> int:
    """By the environment, as it is when the first kernel runs."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return usable_cores()


def grain_of(operations: int) -> int:
    """How many elements with so many operations each are worth a thread: waking one takes about as
    long as 50,000 of them."""
    return 1 + 50_000 // max(1, operations)


def spread(
    part: Callable[..., Any], size: int, *arguments: Any, grain: int = 1, triangle: bool = False
) -> None:
    """Run ``part(start, stop, *arguments)`` for disjoint parts of ``range(size)``, in threads.

    Parts have at least ``grain`` elements. With ``triangle``, the work of element i is proportional
    to i.
    """
    count = max(1, min(threads(), size // max(1, grain)))
    if count == 1:
        part(0, size, *arguments)
        return
    shares = [(i / count) ** (0.5 if triangle else 1.0) for i in range(count + 1)]
    edges = [round(share * size) for share in shares]
    others = [
        _pool(count - 1).submit(part, start, stop, *arguments)
        for start, stop in pairwise(edges[1:])
    ]
    try:
        part(edges[0], edges[1], *arguments)
    finally:
        for other in others:
            other.result()


_pools: dict[int, ThreadPoolExecutor] = {}
_lock = RLock()  # re-entrant, because a signal handler may run while it is held


def _pool(workers: int) -> ThreadPoolExecutor:
    with _lock:
        if workers not in _pools:
            _pools[workers] = ThreadPoolExecutor(workers, thread_name_prefix="demopool-numba")
        return _pools[workers]


def _after_fork() -> None:
    """Reset pools and lock: a child has none of its parent's threads, nor the lock's holder. Its
    number of threads may be another, too."""
    global _lock
    _lock = RLock()
    _pools.clear()
    _usual_threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
