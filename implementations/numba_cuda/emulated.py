"""numba:ptx: the same launches, executed on the CPU from the real PTX of the kernels."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np

from demopool import ptx
from demopool.contract import Hashes, Kernel
from demopool.implementations.shared import images
from demopool.implementations.shared.host import HostImplementation
from demopool.implementations.shared.prepared import PreparedHashes, prepare

from . import arrays
from .launcher import Array, Launch, Launcher
from .works import WORKS


class NumbaEmulator(Launcher):
    """The PTX of an architecture, executed over NumPy arrays.

    Everything is checked in every launch, but for races: these hardly depend on values, and are
    looked for in the first launch of a kernel with arrays of certain shapes.
    """

    def __init__(self, arch: str = "sm_80", processors: int = 108) -> None:
        self.arch = arch
        self._processors = processors
        self._raced: set[tuple[Any, ...]] = set()

    @property
    def processors(self) -> int:
        return self._processors

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        # What nobody has written must not look like a result.
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else -1, dtype)

    def asarray(self, array: Any) -> Array:
        return array

    def read(self, array: Array) -> Any:
        return array

    def launch(self, launch: Launch) -> None:
        kernel, shape, args = launch
        types = signature(args)
        launched = (kernel, types, shape, tuple(np.shape(value) for value in args))
        first = launched not in self._raced
        self._raced.add(launched)
        compiled(kernel, types, self.arch).launch(
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


EMULATOR = NumbaEmulator()


def _place(array: Array) -> tuple[Launcher, Array]:
    return EMULATOR, np.ascontiguousarray(array)


class NumbaPtxImplementation(HostImplementation):
    """NumPy arrays stand for those of a device; half precision is not taken."""

    takes_ordinary = True
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(WORKS, _place)

    def packed(self, X: Array) -> Array:
        return _place(X)[1]

    def looks_ordinary(self, X: Array, low: float, high: float, *, zero_rows: bool = False) -> bool:
        return arrays.are_ordinary(*_place(X), low, high, zero_rows)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return prepare(hashes, EMULATOR.asarray)
