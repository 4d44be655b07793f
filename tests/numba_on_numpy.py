"""A stand-in for ``numba.cuda`` with two GPUs, as much of it as numba:cuda uses, over NumPy memory.

Kernels run at once, from their PTX. What a GPU would do wrong without a word raises: an array of
another GPU than the active one, and an array that another stream works on without an event between.
What it cannot show is what a GPU makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from demopool.implementations.numba_cuda import emulated, gpu, implementation
from demopool.implementations.shared.grids import Shape


class IllegalAddress(RuntimeError):
    """Memory of another GPU."""


class NotOrdered(RuntimeError):
    """Another stream has not been waited for."""


class Clock:
    """How much work streams have had, and what each of them has waited for; the host too."""

    def __init__(self) -> None:
        self.active = [0]
        self.work: dict[tuple[int, int], int] = {}
        self.seen: dict[Any, dict[tuple[int, int], int]] = {}
        self.launched: set[tuple[int, int]] = set()
        self.host_waits: list[tuple[int, int]] = []

    def use(self, stream: int, memories: list[Memory]) -> None:
        """Work on a stream of the active GPU with these memories."""
        queue = (self.active[-1], stream)
        for memory in memories:
            if memory.device != queue[0]:
                raise IllegalAddress(f"memory of GPU {memory.device} on GPU {queue[0]}")
            before, time = memory.used
            if before != queue and self.seen.get(queue, {}).get(before, 0) < time:
                raise NotOrdered(f"stream {queue} has not waited for {before}")
        self.work[queue] = self.work.get(queue, 0) + 1
        for memory in memories:
            memory.used = queue, self.work[queue]


CLOCK = Clock()


class Memory:
    def __init__(self, device: int, stream: int = 0, time: int = 0) -> None:
        self.device = device
        self.used = ((device, stream), time)


class Stream:
    def __init__(self, address: int) -> None:
        self.address, self.device = address, CLOCK.active[-1]
        self.copies: list[Callable[[], None]] = []

    def __int__(self) -> int:
        return self.address

    def synchronize(self) -> None:
        CLOCK.host_waits.append((self.device, self.address))
        for copy in PENDING.pop((self.device, self.address), []):
            copy()


PENDING: dict[tuple[int, int], list[Callable[[], None]]] = {}
"""Copies to the host that are done when their stream is waited for."""


def _address(stream: Any) -> int:
    if isinstance(stream, Stream):
        assert stream.device == CLOCK.active[-1], "a stream of another GPU"
        return stream.address
    assert stream == 0
    return 0


class Event:
    """With a time, or only to wait for."""

    def __init__(self, timing: bool = True) -> None:
        self.device = CLOCK.active[-1]

    def record(self, stream: Any = 0) -> None:
        queue = (CLOCK.active[-1], _address(stream))
        assert queue[0] == self.device
        self.queue, self.time = queue, CLOCK.work.get(queue, 0)

    def wait(self, stream: Any = 0) -> None:
        queue = (CLOCK.active[-1], _address(stream))
        CLOCK.seen.setdefault(queue, {})[self.queue] = self.time


class DeviceArray(np.ndarray):
    """Numba's own; it has no DLPack."""

    memory: Memory
    stream: Any = 0

    def __new__(
        cls, shape: Any, strides: Any, dtype: Any, stream: Any = 0, gpu_data: Any = None
    ) -> DeviceArray:
        """Of memory that there is."""
        first = gpu_data.first.view(np.ndarray)
        found = np.lib.stride_tricks.as_strided(first, shape, strides).view(cls)
        found.memory, found.stream = gpu_data.first.memory, stream
        return found

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, DeviceArray) and hasattr(other, "memory"):
            self.memory, self.stream = other.memory, other.stream

    def reshape(self, *shape: Any, **how: Any) -> DeviceArray:  # type: ignore[override]
        """The stream is lost."""
        found: DeviceArray = super().reshape(*shape, **how)
        return found.bind(0)

    def bind(self, stream: Any = 0) -> DeviceArray:
        found: DeviceArray = self.view()
        found.stream = stream
        return found

    @property
    def swapaxes(self) -> Any:
        raise AttributeError("Numba's arrays have no swapaxes")

    @property
    def __dlpack_device__(self) -> Any:
        raise AttributeError("Numba's arrays have no DLPack")

    @property
    def gpu_data(self) -> Any:
        device = SimpleNamespace(id=self.memory.device)
        return SimpleNamespace(context=SimpleNamespace(device=device), first=self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = int(self.stream) or None
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3, "stream": stream}

    def is_c_contiguous(self) -> bool:
        return bool(self.flags.c_contiguous)

    def copy_to_host(self, stream: Any = 0) -> Any:
        stream = stream or self.stream
        CLOCK.use(_address(stream), [self.memory])
        out = np.full(self.shape, _nothing(self.dtype), self.dtype)

        def copy() -> None:
            out[...] = self.view(np.ndarray)

        if _address(stream):
            PENDING.setdefault((self.memory.device, _address(stream)), []).append(copy)
        else:
            copy()
        return out


def _nothing(dtype: Any) -> float:
    """In the place of what is not there yet."""
    return np.nan if np.dtype(dtype).kind == "f" else -1


def on_device(host: Any, memory: Memory, stream: Any = 0) -> DeviceArray:
    found = np.array(host).view(DeviceArray)
    found.memory, found.stream = memory, stream
    return found


class Foreign:
    """A tensor of torch: its interface says nothing of streams, DLPack tells its GPU."""

    def __init__(self, host: Any, device: int = 0, stream: int = 0) -> None:
        self.host, self.dtype, self.shape = host, host.dtype, host.shape
        self.device = device
        CLOCK.work[device, stream] = CLOCK.work.get((device, stream), 0) + 1
        self.memory = Memory(device, stream, CLOCK.work[device, stream])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 2}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device


class WithStream(Foreign):
    """An array whose interface names the stream that works on it, as CuPy's."""

    def __init__(self, host: Any, device: int, stream: int) -> None:
        super().__init__(host, device, stream)
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**super().__cuda_array_interface__, "version": 3, "stream": self.stream}


def _as_cuda_array(array: Any, sync: bool = True) -> DeviceArray:
    if isinstance(array, DeviceArray):
        return array
    address = array.__cuda_array_interface__.get("stream")
    if array.memory.device != CLOCK.active[-1]:
        raise IllegalAddress("taken into the context of another GPU")
    found = array.host.view(DeviceArray)
    found.memory, found.stream = array.memory, Stream(address) if address else 0
    return found


class _Gpu:
    MULTIPROCESSOR_COUNT = 40

    def __init__(self, index: int) -> None:
        self.id = index

    def __enter__(self) -> None:
        CLOCK.active.append(self.id)

    def __exit__(self, *_: object) -> None:
        assert CLOCK.active.pop() == self.id


class _Jitted:
    def __init__(self, kernel: Callable[..., None]) -> None:
        self.kernel = kernel

    def __getitem__(self, how: tuple[Any, ...]) -> Callable[..., None]:
        blocks, threads, stream, shared = how

        def launch(*args: Any) -> None:
            CLOCK.use(_address(stream), [a.memory for a in args if isinstance(a, DeviceArray)])
            CLOCK.launched.add((CLOCK.active[-1], _address(stream)))
            raw = tuple(_raw(a) if isinstance(a, DeviceArray) else a for a in args)
            emulated.EMULATOR.launch((self.kernel, Shape(blocks, threads, shared), raw))

        return launch


def _raw(array: DeviceArray) -> Any:
    """The emulator takes contiguous arrays only; others are read, by one kernel."""
    return np.ascontiguousarray(array.view(np.ndarray))


def _device_array(shape: Any, dtype: Any, stream: Any = 0) -> DeviceArray:
    memory = Memory(CLOCK.active[-1], _address(stream))
    return on_device(np.full(shape, _nothing(dtype), dtype), memory, stream)


def _to_device(array: Any, stream: Any = 0) -> DeviceArray:
    """The copy may still be under way when this returns."""
    memory = Memory(CLOCK.active[-1], _address(stream))
    CLOCK.use(_address(stream), [memory])
    return on_device(array, memory, stream)


def _synchronize() -> None:
    device = CLOCK.active[-1]
    CLOCK.host_waits.append((device, 0))


@contextmanager
def installed(monkeypatch: Any, current_stream: Callable[[int], int]) -> Iterator[Any]:
    """``numba.cuda`` is this, and a torch whose current stream is the given one of a GPU."""
    gpus = [_Gpu(0), _Gpu(1)]
    cuda = SimpleNamespace(
        gpus=gpus,
        device_array=_device_array,
        to_device=_to_device,
        as_cuda_array=_as_cuda_array,
        external_stream=Stream,
        event=Event,
        event_elapsed_time=lambda start, end: 2.0 if start.device == end.device else 1 / 0,
        get_current_device=lambda: gpus[CLOCK.active[-1]],
        synchronize=_synchronize,
        jit=_Jitted,
    )
    torch = SimpleNamespace(
        Tensor=Foreign,
        cuda=SimpleNamespace(
            current_stream=lambda device: SimpleNamespace(cuda_stream=current_stream(device))
        ),
    )
    with monkeypatch.context() as patch:
        for module in (gpu, implementation):
            patch.setattr(module, "numba_cuda", lambda: cuda)
        patch.setattr(gpu, "_torch", lambda: torch)
        patch.setattr(gpu, "_WORKED_ON", set())
        gpu._jitted.cache_clear()
        CLOCK.__init__()  # type: ignore[misc]
        PENDING.clear()
        yield cuda
    gpu._jitted.cache_clear()
