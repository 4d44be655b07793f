"""A GPU through CuPy: its arrays and libraries, our kernels, and graphs of launches.

CuPy compiles the kernels at run time for the GPU it finds, and keeps them on disk. Everything runs
on CuPy's current stream.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property
from threading import Lock
from typing import Any

from demopool.errors import InvalidInput, Unsupported
from demopool.implementations.shared.grids import SHARED_BYTES, Shape

from . import signatures
from .launcher import Array, Launch, Launcher

GRAPHS_VARIABLE = "DEMOPOOL_CUDA_GRAPHS"
"""Set to 0, every kernel is launched on its own."""

POOL_VARIABLE = "DEMOPOOL_CUPY_POOL"
"""Set to 0, CuPy asks the driver for every array: tools of NVIDIA's see where each one ends."""

_MAX_GRAPHS = 32

_DYNAMIC = ("small_image", "resident", "scatter", "normalized_at_once")
"""Kernels whose shared memory is as large as a launch says."""

_NOT_AT_ONCE = (720, 801)
"""Errors of the driver: more blocks than run at once, or no cooperative launches at all."""


def cupy() -> Any:
    """The library; it has no types of its own."""
    return importlib.import_module("cupy")


def namespace() -> Any:
    """CuPy under the names of the array API standard."""
    return importlib.import_module("array_api_compat.cupy")


def _cublas() -> Any:
    return importlib.import_module("cupy.cublas")


class Gpu(Launcher):
    """One device, by its index."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.xp = namespace()
        self._functions: dict[str, Any] = {}

    def active(self) -> AbstractContextManager[Any]:
        _WORKED_ON.add(self.index)
        device: AbstractContextManager[Any] = cupy().cuda.Device(self.index)
        return device

    @cached_property  # asked for in every launch
    def max_shared(self) -> int:
        return int(cupy().cuda.Device(self.index).attributes["MaxSharedMemoryPerBlockOptin"])

    @cached_property
    def processors(self) -> int:
        return int(cupy().cuda.Device(self.index).attributes["MultiProcessorCount"])

    @cached_property
    def capability(self) -> int:
        return int(cupy().cuda.Device(self.index).compute_capability)

    def launch(self, launch: Launch) -> None:
        kernel, shape, args = launch
        function = self._function(signatures.instance(kernel, args))
        if shape.cooperative:
            self._launch_cooperatively(function, shape, args)
        else:
            function((shape.blocks,), shape.threads, args, shared_mem=shape.shared)

    def _launch_cooperatively(self, function: Any, shape: Shape, args: Sequence[Any]) -> None:
        """By the function behind the kernel: a module whose kernels are all launched so would be
        compiled in another way."""
        grid, cooperative = (shape.blocks,), {"enable_cooperative_groups": True}
        try:
            function.kernel(grid, shape.threads, args, shared_mem=shape.shared, **cooperative)
        except cupy().cuda.driver.CUDADriverError as problem:
            if problem.status not in _NOT_AT_ONCE:  # then it may be a fault of a kernel before
                raise
            raise Unsupported(
                "dense-resident",
                f"the driver does not run {shape.blocks} blocks at once ({problem}); dense does "
                "not need that",
            ) from problem

    def read(self, array: Array) -> Any:
        return cupy().asnumpy(array)

    def _function(self, name: str) -> Any:
        """A kernel on this device; allowed all of its shared memory if it asks for some."""
        found = self._functions.get(name)
        if found is None:
            found = _module_of(name).get_function(name)
            if name.partition("<")[0] in _DYNAMIC and self.max_shared > SHARED_BYTES:
                static = found.shared_size_bytes
                found.max_dynamic_shared_size_bytes = self.max_shared - static
            self._functions[name] = found
        return found

    def run_all(self, launches: Sequence[Launch]) -> None:
        """As one CUDA graph, once the same launches come again: launching ten small kernels one by
        one takes longer than their work.

        A graph keeps addresses, not memory. In a loop over batches of one size CuPy's pool gives
        the same addresses every time, and the graph of the second round serves all others.
        """
        current = cupy().cuda.get_current_stream()
        if len(launches) < 2 or os.environ.get(GRAPHS_VARIABLE) == "0":
            super().run_all(launches)
            return
        key = (self.index, *(_identity(launch) for launch in launches))
        graph = GRAPHS.get(key)
        if graph is SEEN:
            graph = self._captured(launches)
            GRAPHS.put(key, graph)
        if graph in (None, PLAIN):
            super().run_all(launches)
        else:
            graph.launch(current)

    def _captured(self, launches: Sequence[Launch]) -> Any:
        """PLAIN, with a warning, where a driver does not allow it."""
        # The default stream cannot be captured.
        stream = cupy().cuda.Stream(non_blocking=True)
        cuda = cupy().cuda
        try:
            with stream:
                stream.begin_capture()
                try:
                    super().run_all(launches)
                finally:
                    graph = stream.end_capture()
            return graph
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as problem:
            warnings.warn(
                f"{len(launches)} launches could not be made one CUDA graph ({problem}) and are "
                f"made one by one; {GRAPHS_VARIABLE}=0 does so without a word.",
                RuntimeWarning,
                stacklevel=2,
            )
            return PLAIN

    def lower_product(self, X: Array, out: Array, *, transposed: bool) -> None:
        _cublas().syrk("T" if transposed else "N", X, out=out, lower=True)

    def contiguous(self, array: Array) -> Array:
        return cupy().ascontiguousarray(array)

    def asarray(self, array: Any) -> Array:
        return cupy().asarray(array)

    def wait_for(self, event: Any) -> None:
        """The current stream, not the host."""
        cupy().cuda.get_current_stream().wait_event(event)

    def holds(self, array: Array) -> bool:
        return int(array.device.id) == self.index


@cache
def gpu(index: int) -> Gpu:
    return Gpu(index)


_WORKED_ON: set[int] = set()


def gpus() -> list[Gpu]:
    """Those that were worked on, and the current one."""
    return [gpu(index) for index in sorted({*_WORKED_ON, int(cupy().cuda.Device().id)})]


def refuse_capture(array: Any) -> None:
    """Of a graph of the caller's own: what is made on the way goes back to CuPy's pool after the
    call, and the graph would write into memory that is somebody else's by then."""
    torch = sys.modules.get("torch")
    by_torch = torch is not None and isinstance(array, torch.Tensor)
    if (torch is not None and by_torch and torch.cuda.is_current_stream_capturing()) or (
        cupy().cuda.get_current_stream().is_capturing()
    ):
        raise InvalidInput(
            "cupy:cuda cannot be captured into a CUDA graph: what it needs on the way goes back to "
            "CuPy's pool after the call, and the graph would write there. Call it outside of the "
            "capture; torch:cuda can be captured."
        )


def _module_of(instance: str) -> Any:
    """All kernels for one T, compiled together, or all of a variant."""
    variant = signatures.variant(instance)
    if variant:
        return _module(variant.source, variant.instances)
    ctype = instance.partition("<")[2].rstrip(">")
    return _module(signatures.source(), signatures.instances(ctype))


@cache
def _module(source: str, names: tuple[str, ...]) -> Any:
    return cupy().RawModule(code=source, name_expressions=list(names))


# --- graphs ---

SEEN = object()
"""In the place of a graph: these launches came once, the next time they are worth a graph."""

PLAIN = object()
"""In the place of a graph: these launches cannot be one."""


class Graphs:
    """The last graphs that were used, by their launches; safe to ask from several threads."""

    def __init__(self, most: int = _MAX_GRAPHS) -> None:
        self._most = most
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any) -> Any:
        """The graph; SEEN the second time it is asked for, None the first."""
        with self._lock:
            found = self._kept.get(key)
            self._put(key, SEEN if found is None else found)
            return found

    def put(self, key: Any, graph: Any) -> None:
        with self._lock:
            self._put(key, graph)

    def __len__(self) -> int:
        return len(self._kept)

    def _put(self, key: Any, graph: Any) -> None:
        self._kept[key] = graph
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)


GRAPHS = Graphs()


def _identity(launch: Launch) -> tuple[Any, ...]:
    """What a launch does: its kernel, size, numbers, and the addresses of its arrays."""
    kernel, shape, args = launch
    given = (value.data.ptr if value.ndim else value for value in args)
    return (kernel, args[0].dtype.char, shape, *given)
