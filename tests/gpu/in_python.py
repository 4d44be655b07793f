"""The kernels of numba:cuda run as the Python they are written in: a second opinion on them.

It shares nothing with ``demopool.ptx`` but the source: no compiler, and no machine code. Numba's
own simulator knows no shuffles. Every thread of a block is a greenlet. Those of a block run in a
given order, and switch only where CUDA lets threads wait for each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from demopool.implementations.shared.grids import Shape

from .backends import Launch

Array = Any


class Thread(greenlet):
    """Of a block."""

    def __init__(self, body: Callable[[], None], linear: int, across: int) -> None:
        super().__init__(body)
        self.linear, self.index = linear, SimpleNamespace(x=linear % across, y=linear // across)
        self.waits = False  # at a barrier
        self.given: list[Any] = []  # to other lanes, so far


class Cuda:
    """What a kernel finds under the name of ``cuda``: the block and the thread that it runs for."""

    def __init__(self) -> None:
        self.local = SimpleNamespace(array=_undefined)
        self.shared = SimpleNamespace(array=self._shared)
        self.atomic = SimpleNamespace(max=_largest)

    def run_block(self, index: int, shape: Shape, order: int, body: Callable[[], None]) -> None:
        """All threads of a block, to their ends."""
        count = math.prod(shape.threads)
        self.blockIdx = SimpleNamespace(x=index)
        self._dynamic = np.full(shape.shared, 0xFF, np.uint8)  # NaN
        self._arrays: dict[tuple[str, int], Array] = {}
        self._threads = [Thread(body, i, shape.threads[0]) for i in range(count)]
        left = [self._threads[i] for i in ordered(count, order)]
        while left:
            self._progressed = False
            for thread in left:
                if not thread.waits:
                    thread.switch()
            if not self._progressed and not any(thread.dead for thread in left):
                self._open_barrier()
            left = [thread for thread in left if not thread.dead]

    def _open_barrier(self) -> None:
        if not any(thread.waits for thread in self._threads):
            raise RuntimeError("a lane waits for one of its warp that does not come")
        if not all(thread.waits for thread in self._threads):
            raise RuntimeError("a thread does not come to a barrier")
        for thread in self._threads:
            thread.waits = False

    @property
    def threadIdx(self) -> SimpleNamespace:
        found: SimpleNamespace = _current().index
        return found

    def syncthreads(self) -> None:
        _current().waits = self._progressed = True
        _pause()

    def shfl_xor_sync(self, mask: int, value: Any, by: int) -> Any:
        if mask != 0xFFFFFFFF:
            raise RuntimeError("only whole warps can exchange values here")
        me = _current()
        other = self._threads[me.linear ^ by]
        me.given.append(value)
        self._progressed = True
        while len(other.given) < len(me.given):
            _pause()
        return other.given[len(me.given) - 1]

    def _shared(self, shape: Any, dtype: Any) -> Array:
        """The same array for all threads that come by a line of the source."""
        if shape == 0:
            return self._dynamic.view(dtype)
        caller = sys._getframe(1)
        line = caller.f_code.co_filename, caller.f_lineno
        if line not in self._arrays:
            self._arrays[line] = _undefined(shape, dtype)
        return self._arrays[line]


def _current() -> Any:
    return getcurrent()


def _pause() -> None:
    _current().parent.switch()


def _undefined(shape: Any, dtype: Any) -> Array:
    return np.full(shape, np.nan, dtype)


def _largest(array: Array, index: Any, value: Any) -> None:
    array[index] = max(array[index], value)


def ordered(count: int, order: int) -> list[int]:
    """As they are numbered, from the last one, or shuffled."""
    found = list(range(count))
    if order == 1:
        return found[::-1]
    return list(np.random.default_rng(order).permutation(count)) if order else found


_INSTEAD = {
    # As on a device: float32 of float32, and no exceptions.
    "math": SimpleNamespace(
        copysign=np.copysign,
        exp2=np.exp2,
        floor=np.floor,
        frexp=np.frexp,
        ldexp=np.ldexp,
        pow=np.power,
        sqrt=np.sqrt,
    ),
    **{name: getattr(np, name) for name in ("float32", "int32", "uint32", "uint64")},
    # Numba makes instructions of these two.
    "_udiv": np.floor_divide,
    "_urem": np.remainder,
}


class InPython:
    """A package of kernels, which is changed for it: it is of no use for anything else then."""

    def __init__(self, package: ModuleType) -> None:
        self._package, self._cuda = package, Cuda()
        inside = f"{package.__name__}."
        for module in [one for name, one in sys.modules.items() if name.startswith(inside)]:
            for name, value in list(vars(module).items()):
                if name in _INSTEAD:
                    setattr(module, name, _INSTEAD[name])
                elif name == "cuda":
                    setattr(module, name, self._cuda)
                elif hasattr(value, "py_func"):  # a function for a device
                    setattr(module, name, value.py_func)

    def run(self, launch: Launch, order: int) -> list[Array]:
        """All arrays of a launch after it; those that were given stay as they are."""
        kernel, shape, given = launch
        args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in given]
        function = getattr(self._package, kernel.__name__)

        def body() -> None:
            with np.errstate(all="ignore"):  # of this greenlet
                function(*args)

        for block in ordered(shape.blocks, order):
            self._cuda.run_block(block, shape, order, body)
        return [arg for arg in args if isinstance(arg, np.ndarray)]
