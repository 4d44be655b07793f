"""A stand-in for CuPy, as much of it as cupy:cuda uses, over NumPy memory and ``demopool.ptx``.

It runs the very lines that talk to CuPy on a GPU: the module that is compiled, the kernels that are
called, streams, captures and graphs, the pool's hooks, DLPack. It refuses what CuPy or the driver
would refuse: a keyword CuPy does not have, more shared memory than was asked for, an allocation
while a stream is captured, values read back. What it cannot show is what a GPU makes of it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
from array_api_compat import numpy as namespace

from demopool.implementations.cupy_cuda import emulated, signatures
from demopool.implementations.shared.grids import SHARED_BYTES

ARCH = "sm_80"
OPT_IN = "MaxSharedMemoryPerBlockOptin"


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    """What a launch raises; CuPy has two kinds of errors."""

    def __init__(self, status: int, says: str = "") -> None:
        super().__init__(says)
        self.status = status


class Device(nullcontext[None]):
    """The only GPU."""

    compute_capability = ARCH.removeprefix("sm_")
    attributes = {OPT_IN: 163 * 1024, "MultiProcessorCount": 108}  # noqa: RUF012 - as CuPy's own
    most_at_once = 108

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        if index != 0:
            raise CUDARuntimeError("invalid device ordinal")
        self.id = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    __hash__ = None  # type: ignore[assignment]


class Array(np.ndarray):
    """Memory of the GPU. Each new block has an address of its own, as the pool gives them."""

    @property
    def device(self) -> Any:
        return Device()

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])

    def __bool__(self) -> bool:
        raise CUDARuntimeError("a value was read back: the host would wait for the GPU")

    __float__ = __int__ = __index__ = __bool__

    def __reduce__(self) -> Any:
        raise TypeError("not to be copied to another process")


# --- streams and graphs ---


class Graph:
    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.launches = 0

    def launch(self, stream: Any = None) -> None:
        assert isinstance(stream, Stream)
        self.launches += 1
        for call in self.calls:
            call()


class Stream:
    """Work is done at once, or goes into a graph while the stream is captured."""

    current: Stream
    made: list[Graph] = []  # noqa: RUF012 - all graphs, for the tests

    def __init__(self, *, non_blocking: bool = False, default: bool = False) -> None:
        self.default = default
        self.graph: Graph | None = None
        self._before: list[Stream] = []
        self.awaited: list[Any] = []

    def __enter__(self) -> Stream:
        self._before.append(Stream.current)
        Stream.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Stream.current = self._before.pop()

    def begin_capture(self) -> None:
        if self.default:
            raise CUDARuntimeError("the default stream cannot be captured")
        self.graph = Graph()

    def end_capture(self) -> Graph:
        assert self.graph is not None
        graph, self.graph = self.graph, None
        Stream.made.append(graph)
        return graph

    def is_capturing(self) -> bool:
        return self.graph is not None

    def synchronize(self) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        self.awaited.append(event.on)


Stream.current = Stream(default=True)


class Event:
    """On the stream on which it was recorded."""

    def __init__(self, disable_timing: bool = False) -> None:
        self.on: Stream | None = None

    def record(self) -> None:
        self.on = Stream.current


# --- the pool ---


class MemoryHook:
    """As CuPy's: told of what the pool gives out and gets back."""

    name = "MemoryHook"
    active: list[MemoryHook] = []  # noqa: RUF012 - those entered

    def __enter__(self) -> MemoryHook:
        MemoryHook.active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        MemoryHook.active.remove(self)

    def malloc_postprocess(self, **facts: Any) -> None:
        pass

    def free_postprocess(self, **facts: Any) -> None:
        pass


class Pool:
    """Gives out blocks, and the same ones again once nobody has them: CuPy's addresses come back in
    the rounds of a loop, and so do these."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}

    def take(self, shape: Any, dtype: Any) -> Array:
        if Stream.current.is_capturing():
            raise CUDARuntimeError("memory was allocated while a stream was captured")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        rounded = max(-(-size // 512), 1) * 512
        free = self._free.setdefault(rounded, [])
        storage = free.pop() if free else bytearray(rounded)
        block = (ctypes.c_char * rounded).from_buffer(storage)  # arrays keep it, and only them
        weakref.finalize(block, self._give_back, storage)
        for hook in MemoryHook.active:
            hook.malloc_postprocess(size=size, mem_size=rounded, **_FACTS)
        return (
            np.frombuffer(block, dtype, size // np.dtype(dtype).itemsize).reshape(shape).view(Array)
        )

    def _give_back(self, storage: bytearray) -> None:
        self._free[len(storage)].append(storage)
        for hook in MemoryHook.active:
            hook.free_postprocess(mem_size=len(storage), **_FACTS)


_FACTS = {"device_id": 0, "mem_ptr": 1, "pmem_id": 1}
POOL = Pool()


# --- kernels ---


class RawKernel:
    def __init__(self, name: str) -> None:
        self.name = name
        self.shared_size_bytes = 0
        self.max_dynamic_shared_size_bytes = SHARED_BYTES

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, *, shared_mem: int = 0
    ) -> None:
        self.kernel(grid, block, args, shared_mem)

    def kernel(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Any,
        shared_mem: int = 0,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """The function of the driver; CuPy's own is an object, which takes the same."""
        cooperative = enable_cooperative_groups
        assert cooperative == self.name.startswith("resident")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise CUDADriverError(701, "out of resources requested for launch")
        if cooperative and grid[0] > Device.most_at_once:
            raise CUDADriverError(720, "too many blocks in cooperative launch")
        for arg in args:
            assert isinstance(arg, Array | np.generic), type(arg)
        # Like a driver, which is given addresses and keeps nothing alive.
        given = [(a.data.ptr, a.shape, a.dtype) if isinstance(a, Array) else a for a in args]
        module, most = emulated.compiled(self.name, ARCH), Device().attributes[OPT_IN]

        def call() -> None:
            arrays = [_at(*arg) if isinstance(arg, tuple) else arg for arg in given]
            sizes = (grid, block, arrays, shared_mem)
            how = {"cooperative": cooperative, "counting": False, "max_shared": most}
            module.launch(self.name, *sizes, **how)

        if Stream.current.graph is None:
            call()
        else:
            Stream.current.graph.calls.append(call)


def _at(address: int, shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape))
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype, size).reshape(shape)


class RawModule:
    def __init__(self, code: str, *, name_expressions: list[str]) -> None:
        variant = signatures.variant(name_expressions[0])
        assert code == (variant.source if variant else signatures.source())
        self._kernels = {name: RawKernel(name) for name in name_expressions}

    def get_function(self, name: str) -> RawKernel:
        return self._kernels[name]


def syrk(
    trans: str, a: Any, out: Any = None, alpha: float = 1.0, beta: float = 0.0, lower: bool = False
) -> Any:
    assert lower
    assert a.flags.c_contiguous
    assert out.flags.c_contiguous
    emulated.CupyEmulator().lower_product(
        a.view(np.ndarray), out.view(np.ndarray), transposed=trans == "T"
    )
    return out


# --- the modules ---


class _Namespace:
    """NumPy's, but what makes arrays takes them from the pool; functions of arrays keep them there.
    Solvers and transforms forget it: what they give is shown without CuPy."""

    def __getattr__(self, name: str) -> Any:
        return getattr(namespace, name)

    @staticmethod
    def empty(shape: Any, *, dtype: Any, device: Device) -> Any:
        return _filled(shape, dtype, device, np.nan if np.dtype(dtype).kind == "f" else -1)

    @staticmethod
    def zeros(shape: Any, *, dtype: Any, device: Device) -> Any:
        return _filled(shape, dtype, device, 0)


def _filled(shape: Any, dtype: Any, device: Device, value: float) -> Any:
    assert isinstance(device, Device)
    found = POOL.take(shape, dtype)
    found.view(np.ndarray)[...] = value
    return found


def _from_dlpack(array: Any) -> Any:
    array.__dlpack__(stream=1)
    return array.host.view(Array)


@contextmanager
def installed(monkeypatch: Any) -> Iterator[Any]:
    """CuPy and its namespace are this, for cupy:cuda."""
    from demopool.implementations.cupy_cuda import gpu, implementation

    cuda = SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        MemoryHook=MemoryHook,
        runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError),
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        get_current_stream=lambda: Stream.current,
        get_elapsed_time=lambda start, end: 2.0,
    )
    cupy = SimpleNamespace(
        ndarray=Array,
        cuda=cuda,
        RawModule=RawModule,
        abs=np.abs,
        asarray=lambda array: np.array(array).view(Array),
        asnumpy=lambda array: np.array(array.view(np.ndarray)),
        ascontiguousarray=lambda array, dtype=None: np.ascontiguousarray(array, dtype).view(Array),
        from_dlpack=_from_dlpack,
    )
    with monkeypatch.context() as patch:
        for module in (gpu, implementation):
            patch.setattr(module, "cupy", lambda: cupy)
        patch.setattr(gpu, "namespace", _Namespace)
        patch.setattr(gpu, "_cublas", lambda: SimpleNamespace(syrk=syrk))
        patch.setattr(gpu, "GRAPHS", gpu.Graphs())
        Stream.made.clear()
        gpu.gpu.cache_clear()
        gpu._module.cache_clear()
        yield cupy
    gpu.gpu.cache_clear()
    gpu._module.cache_clear()
