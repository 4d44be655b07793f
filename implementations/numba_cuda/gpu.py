"""A GPU through Numba, which compiles the kernels for it at run time.

Work is done on the GPU of an array and on the stream that its owner works on, so that it comes
after what the owner has under way and before what it does next.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from .launcher import Array, Launch, Launcher


def numba_cuda() -> Any:
    """Numba's module; it has no types of its own."""
    return importlib.import_module("numba.cuda")


def _torch() -> Any:
    """None unless somebody has imported it."""
    return sys.modules.get("torch")


class Gpu(Launcher):
    """A device by its index, on a stream by its address; 0 is the default stream."""

    def __init__(self, index: int, stream: int = 0) -> None:
        self.index = index
        self._address = stream

    @property
    def stream(self) -> Any:
        """As Numba wants it, on the active device."""
        return numba_cuda().external_stream(self._address) if self._address else 0

    @property
    def processors(self) -> int:
        """Numba asks the driver once."""
        return int(numba_cuda().gpus[self.index].MULTIPROCESSOR_COUNT)

    def active(self) -> AbstractContextManager[Any]:
        _WORKED_ON.add(self.index)
        device: AbstractContextManager[Any] = numba_cuda().gpus[self.index]
        return device

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return numba_cuda().device_array(shape, dtype, stream=self.stream)

    def reshape(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Numba's own forgets the stream."""
        return array.reshape(shape).bind(self.stream)

    def launch(self, launch: Launch) -> None:
        kernel, shape, args = launch
        _jitted(kernel)[shape.blocks, shape.threads, self.stream, shape.shared](*args)

    def after(self, other: Launcher) -> None:
        """By an event on the other's stream: the host waits for nothing."""
        assert isinstance(other, Gpu)
        if other._address != self._address:
            mark = numba_cuda().event(timing=False)
            mark.record(other.stream)
            mark.wait(self.stream)

    def wait(self) -> None:
        """Until everything is done."""
        (self.stream or numba_cuda()).synchronize()

    def holds(self, array: Array) -> bool:
        """If so, what comes from now on waits for what made it."""
        there = gpu_of(array)
        if there.index != self.index:
            return False
        self.after(there)
        return True

    def read(self, array: Array) -> Any:
        found = array.copy_to_host(stream=self.stream)
        self.wait()
        return found

    def asarray(self, array: Any) -> Array:
        return numba_cuda().to_device(array, stream=self.stream)


@cache
def _jitted(kernel: Callable[..., None]) -> Any:
    return numba_cuda().jit(kernel)


_WORKED_ON: set[int] = set()


def gpus() -> list[Gpu]:
    """Those that were worked on, and the current one."""
    return [Gpu(index) for index in sorted({*_WORKED_ON, _current()})]


def _current() -> int:
    return int(numba_cuda().get_current_device().id)


def gpu_of(array: Any) -> Gpu:
    """Where an array is, and the stream of its owner."""
    index = index_of(array)
    interface = array.__cuda_array_interface__
    if "stream" in interface:
        return Gpu(index, interface["stream"] or 0)
    # torch says nothing of its streams there, and its side streams do not wait for the default one.
    torch = _torch()
    if torch is not None and isinstance(array, torch.Tensor):
        return Gpu(index, int(torch.cuda.current_stream(array.device).cuda_stream))
    return Gpu(index)


def index_of(array: Any) -> int:
    """The GPU of an array; the current one for a library that does not say."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    memory = getattr(array, "gpu_data", None)  # Numba's own
    if memory is None:
        return _current()
    return int(memory.context.device.id)
