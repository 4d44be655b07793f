"""Who runs the kernels, and what else of a device the routes need.

The routes are written once: on the array namespace ``xp`` for what libraries do best, and through
``run`` for our own kernels. They work on a GPU (``gpu.py``) or, from the real PTX and on NumPy, on
a machine without one (``emulated.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from demopool.errors import Unsupported
from demopool.implementations.shared.grids import TILE, Shape

from . import signatures

Array = Any
Launch = tuple[str, Shape, tuple[Any, ...]]
"""A kernel, how many blocks and threads of it, and its arguments."""


class Tiles(NamedTuple):
    """How kernels make symmetric products.

    ending       of the names of those that multiply
    sums_parts   the ending of that which adds up parts
    """

    side: int = TILE
    ending: str = ""
    sums_parts: str = ""


USUAL, ON_CORES, WIDE = Tiles(), Tiles(ending="_tf32"), Tiles(2 * TILE, "_128", "_128")


def ended(launch: Launch, ending: str) -> Launch:
    """The same launch of the kernel with an ending of its name."""
    kernel, shape, args = launch
    return kernel + ending, shape, args


# How numbers go to a kernel: CuPy would pass Python's own in 8 bytes.
i32, u32, u64 = np.int32, np.uint32, np.uint64


def number(like: Array) -> type[np.float32] | type[np.float64]:
    """The scalar type of an array of any namespace."""
    return _number(like.dtype)


@lru_cache(typed=True)  # dtypes of array-api-strict do not compare with NumPy's
def _number(dtype: Any) -> type[np.float32] | type[np.float64]:
    return np.float64 if str(dtype).endswith("float64") else np.float32


def itemsize(like: Array) -> int:
    return np.dtype(number(like)).itemsize


class Launcher(ABC):
    """A device with its array namespace."""

    xp: Any

    @property
    @abstractmethod
    def max_shared(self) -> int:
        """Bytes of shared memory that a block may ask for."""

    @property
    @abstractmethod
    def processors(self) -> int:
        """Multiprocessors, which all should have something to do."""

    @property
    @abstractmethod
    def capability(self) -> int:
        """Compute capability, 80 for 8.0."""

    @abstractmethod
    def launch(self, launch: Launch) -> None:
        """Run a kernel; everything has been checked."""

    @abstractmethod
    def lower_product(self, X: Array, out: Array, *, transposed: bool) -> None:
        """``X X^T`` of a matrix, or ``X^T X``: its lower triangle, the rest of ``out`` is junk."""

    def demand_tf32(self) -> None:
        """An error where tensor cores have no TF32."""
        if self.capability < 80:
            has = f"this GPU has {self.capability / 10}"
            raise Unsupported("TF32", f"it needs compute capability 8.0, and {has}")

    def active(self) -> AbstractContextManager[Any]:
        """While it is worked with."""
        return nullcontext()

    def run(self, launch: Launch) -> None:
        """Check a launch against the source of the kernel and the device, and run it."""
        kernel, shape, args = launch
        if shape.blocks:
            signatures.check(kernel, shape, [self.raw(arg) for arg in args], self.max_shared)
            self.launch(launch)

    def run_all(self, launches: Sequence[Launch]) -> None:
        """One after the other; a device may make one piece of work of them."""
        for launch in launches:
            self.run(launch)

    @abstractmethod
    def contiguous(self, array: Array) -> Array:
        """In one piece, row by row; itself if it is."""

    @abstractmethod
    def asarray(self, array: Any) -> Array:
        """A NumPy array, on this device."""

    def after(self, other: Launcher) -> None:  # noqa: B027 - all work is on one stream
        """What comes from now on waits for what ``other`` has under way."""

    def holds(self, array: Array) -> bool:
        """Whether an array is on this device and not on another one of its kind."""
        return True

    def raw(self, value: Any) -> Any:
        """An argument as a kernel gets it."""
        return value

    def read(self, array: Array) -> Any:
        """Values on the host, which waits for them. A check of features asks, and powers do, once,
        after their solver."""
        return np.asarray(self.raw(array))

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return self.xp.reshape(array, shape)

    def empty(self, shape: tuple[int, ...], like: Array, dtype: Any = None) -> Array:
        """Where another array is, and of its dtype unless one is given."""
        return self.xp.empty(shape, dtype=dtype or like.dtype, device=like.device)

    def zeros(self, shape: tuple[int, ...], like: Array, dtype: Any = None) -> Array:
        return self.xp.zeros(shape, dtype=dtype or like.dtype, device=like.device)
