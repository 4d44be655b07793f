"""The launcher: makes arrays and runs kernels, on a GPU (``gpu.py``) or from their PTX on the CPU
(``emulated.py``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

from demopool.implementations.shared.grids import Shape

Array = Any
Launch = tuple[Callable[..., None], Shape, tuple[Any, ...]]
"""A kernel, how many blocks and threads of it, and its arguments."""


def flat(array: Array) -> Array:
    """One axis."""
    return array.reshape(prod(array.shape))


class Launcher(ABC):
    """Makes arrays and runs kernels."""

    @property
    @abstractmethod
    def processors(self) -> int:
        """Multiprocessors, which all should have something to do."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array: ...

    @abstractmethod
    def launch(self, launch: Launch) -> None:
        """Run a kernel, on at least one block."""

    def run(self, launch: Launch) -> None:
        """Nothing, if there is nothing to do."""
        if launch[1].blocks:
            self.launch(launch)

    def active(self) -> AbstractContextManager[Any]:
        """While it is worked with."""
        return nullcontext()

    def after(self, other: Launcher) -> None:  # noqa: B027 - the emulator has one queue
        """What comes from now on waits for what ``other`` has under way."""

    def holds(self, array: Array) -> bool:
        """Whether an array is on this device and not on another one of its kind."""
        return True

    @abstractmethod
    def asarray(self, array: Any) -> Array:
        """A NumPy array, on this device."""

    @abstractmethod
    def read(self, array: Array) -> Any:
        """Values on the host, which waits for them: only a check of features asks."""

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)
