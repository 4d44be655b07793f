"""A GPU through Numba, which compiles the kernels for it at run time."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from .launcher import Array, Launch, Launcher


def numba_cuda() -> Any:
    """Numba's module; it has no types of its own."""
    return importlib.import_module("numba.cuda")


class Gpu(Launcher):
    """The current device, on a stream of the caller (the default one unless told)."""

    def __init__(self, stream: Any = 0) -> None:
        self.stream = stream

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return numba_cuda().device_array(shape, dtype, stream=self.stream)

    def launch(self, launch: Launch) -> None:
        kernel, shape, args = launch
        _jitted(kernel)[shape.blocks, shape.threads, self.stream, shape.shared](*args)


@cache
def _jitted(kernel: Callable[..., None]) -> Any:
    return numba_cuda().jit(kernel)
