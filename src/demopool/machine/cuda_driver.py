"""Waiting for a GPU by CUDA's driver itself, whatever library gave it work, on whatever stream.

A backend says when its device has finished, and could be wrong: a stream may have been forgotten.
Libraries share one context of the device, its primary one, and the driver waits for all of that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Wait = Callable[[], None]

# What is measured must not be able to replace what measures.
_open, _pointer, _reference = ctypes.CDLL, ctypes.c_void_p, ctypes.byref


def waiting(gpu_index: int) -> Wait | None:
    """A function that returns when the GPU has nothing to do; None if there is no driver."""
    try:
        driver: Any = _open("libcuda.so.1")
        device, context = ctypes.c_int(), _pointer()
        _demand(driver.cuInit(0))
        _demand(driver.cuDeviceGet(_reference(device), gpu_index))
        _demand(driver.cuDevicePrimaryCtxRetain(_reference(context), device))
        push, pop, synchronize = (
            driver.cuCtxPushCurrent_v2,
            driver.cuCtxPopCurrent_v2,
            driver.cuCtxSynchronize,
        )
    except (OSError, AttributeError, RuntimeError):
        return None
    before = _pointer()

    def wait() -> None:
        _demand(push(context))
        try:
            _demand(synchronize())
        finally:
            pop(_reference(before))

    return wait


@contextmanager
def profiled() -> Iterator[None]:
    """What is inside is seen by a profiler that was told not to look from the start."""
    try:
        driver: Any = _open("libcuda.so.1")
    except OSError:
        yield
        return
    driver.cuProfilerStart()
    try:
        yield
    finally:
        driver.cuProfilerStop()


def _demand(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"CUDA's driver reports error {status}")
