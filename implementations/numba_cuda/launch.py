"""Launches: where arrays are made, and who runs the kernels.

The same launches go to a GPU (``Gpu``) or, from the real PTX, to the CPU (``Emulator``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

from demopool import ptx
from demopool.implementations.numba_cuda import kernels
from demopool.implementations.shared import grids
from demopool.implementations.shared.grids import Shape

Array = Any


class Launcher:
    """Makes arrays and runs kernels; ``shape`` says how many blocks and threads."""

    def active(self) -> AbstractContextManager[Any]:
        """While it is worked with."""
        return nullcontext()

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        raise NotImplementedError

    def run(self, kernel: Callable[..., None], shape: Shape, *args: Any) -> None:
        raise NotImplementedError

    def full(self, shape: tuple[int, ...], dtype: Any, value: float = 0.0) -> Array:
        """An array with one value everywhere."""
        out = self.empty(shape, dtype)
        size = int(np.prod(shape))
        if size:
            number = np.dtype(dtype).type(value)
            self.run(kernels.fill, grids.flat(size), out.reshape(size), number)
        return out


class Gpu(Launcher):
    """The current device, on a stream of the caller (the default one unless told)."""

    def __init__(self, stream: Any = 0) -> None:
        self.stream = stream

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return numba_cuda().device_array(shape, dtype, stream=self.stream)

    def run(self, kernel: Callable[..., None], shape: Shape, *args: Any) -> None:
        if shape.blocks:
            _jitted(kernel)[shape.blocks, shape.threads, self.stream, shape.shared](*args)


@cache
def _jitted(kernel: Callable[..., None]) -> Any:
    return numba_cuda().jit(kernel)


def numba_cuda() -> Any:
    """Numba's module; it has no types of its own."""
    return importlib.import_module("numba.cuda")


class Emulator(Launcher):
    """No GPU: the PTX of an architecture, executed over NumPy arrays.

    Everything is checked in every launch, but for races: these hardly depend on values, and are
    looked for in the first launch of a kernel with arrays of certain shapes.
    """

    def __init__(self, arch: str = "sm_80") -> None:
        self.arch = arch
        self._raced: set[tuple[Any, ...]] = set()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        # What nobody has written must not look like a result.
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else -1, dtype)

    def run(self, kernel: Callable[..., None], shape: Shape, *args: Any) -> None:
        if shape.blocks:
            types = signature(args)
            module = compiled(kernel, types, self.arch)
            launched = (kernel, types, shape, tuple(np.shape(value) for value in args))
            first = launched not in self._raced
            self._raced.add(launched)
            module.launch(
                kernel.__name__,
                shape.blocks,
                shape.threads,
                args,
                shape.shared,
                check_races=first,
                counting=False,
            )


@cache
def compiled(kernel: Callable[..., None], types: tuple[Any, ...], arch: str) -> ptx.Module:
    """Once for every signature."""
    return ptx.compile(kernel, arch, signature=types)


def signature(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numba's types of arguments: contiguous arrays, NumPy numbers, tuples of them."""
    return tuple(_type(value) for value in args)


def _type(value: Any) -> Any:
    numba: Any = importlib.import_module("numba")
    types, from_dtype = numba.types, numba.from_dtype
    if isinstance(value, tuple):
        return types.UniTuple(_type(value[0]), len(value))
    if isinstance(value, int):
        return types.int64
    if value.ndim:
        return types.Array(from_dtype(value.dtype), value.ndim, "C")
    return from_dtype(value.dtype)
