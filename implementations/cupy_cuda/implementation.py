"""CuPy arrays, and arrays of other libraries on a GPU, with the kernels of cupy:cuda."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from demopool.contract import ArrayFacts, Hashes, Implementation, Kernel
from demopool.implementations.shared import images
from demopool.implementations.shared.prepared import PreparedHashes, prepare

from . import weights
from .gpu import POOL_VARIABLE, Gpu, cupy, gpu, gpus, refuse_capture
from .launcher import Array
from .works import WORKS


def _as_cupy(array: Any) -> Array:
    """Without a copy. DLPack makes CuPy's current stream wait for what the owner has under way."""
    if isinstance(array, cupy().ndarray):
        return array
    return cupy().from_dlpack(array) if hasattr(array, "__dlpack__") else cupy().asarray(array)


def _index(array: Any) -> int:
    """The GPU of an array of another library."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    return int(_as_cupy(array).device.id)


def _place(array: Any) -> tuple[Gpu, Array]:
    """On the device where it is; half precision is worked in float32, which holds it exactly."""
    refuse_capture(array)
    array = _as_cupy(array)
    on = gpu(array.device.id)
    with on.active():
        dtype = np.float32 if array.dtype == np.float16 else array.dtype
        return on, cupy().ascontiguousarray(array, dtype=dtype)


class CupyCudaImplementation(Implementation):
    """Arrays of CuPy, and any with ``__cuda_array_interface__``, where they are; CuPy's come out.

    Kernels run on the GPU of the array and on CuPy's current stream.
    """

    pools_normalized = True
    takes_ordinary = True
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(WORKS, _place)

    def __init__(self) -> None:
        if os.environ.get(POOL_VARIABLE) == "0":
            cupy().cuda.set_allocator(None)

    def inspect(self, array: Any) -> ArrayFacts | None:
        if isinstance(array, cupy().ndarray):
            return ArrayFacts(array.shape, array.dtype.name, f"cuda:{array.device.id}")
        return images.facts(array, _index)

    def asarray(self, array: NDArray[Any]) -> Array:
        return cupy().asarray(array)

    def adopt(self, array: Any) -> Array | None:
        """bfloat16, which CuPy has not, goes through the host as float32."""
        there = self.inspect(array)
        if there is None or not there.dtype.startswith("float"):
            return None
        refuse_capture(array)
        return _as_cupy(array)

    def to_numpy(self, array: Array) -> NDArray[Any]:
        return np.asarray(cupy().asnumpy(_as_cupy(array)))

    def cast(self, array: Array, dtype: str) -> Array:
        array = _as_cupy(array)
        with gpu(array.device.id).active():
            return array.astype(dtype, copy=False)

    def packed(self, X: Array) -> Array:
        return _place(X)[1]

    def looks_ordinary(self, X: Array, low: float, high: float, *, zero_rows: bool = False) -> bool:
        on, X = _place(X)
        with on.active():
            return weights.are_ordinary(on, X, low, high, zero_rows)

    def row_magnitudes(self, X: Array) -> NDArray[Any]:
        refuse_capture(X)
        X = _as_cupy(X)
        with gpu(X.device.id).active():
            return self.to_numpy(cupy().abs(X).max(axis=-1))

    def scaled(self, X: Array, factors: NDArray[Any]) -> Array:
        X = _as_cupy(X)
        with gpu(X.device.id).active():
            return X * cupy().asarray(factors)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        """Copies to a GPU may still be under way when CuPy returns; another stream must wait."""
        found, there = prepare(hashes, self.asarray), cupy().cuda.Event(disable_timing=True)
        there.record()
        return found._replace(there=there)

    def synchronize(self) -> None:
        for on in gpus():
            _wait(on)

    def wait(self, result: Any) -> None:
        if isinstance(result, cupy().ndarray):
            _wait(gpu(result.device.id))

    @property
    def gpu_index(self) -> int | None:
        return int(cupy().cuda.Device().id)

    def event(self) -> Any:
        """On every GPU that was worked on: an event belongs to one."""
        marks = {}
        for on in gpus():
            with on.active():
                marks[on.index] = cupy().cuda.Event()
                marks[on.index].record()
        return marks

    def elapsed(self, start: Any, end: Any) -> float:
        """Of the GPU that took longest."""
        between = cupy().cuda.get_elapsed_time
        return float(max(between(start[index], end[index]) for index in start)) / 1e3

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        """Of what CuPy's pool has given out, not of what the pool holds to give out again."""
        meter = _meter()
        with meter:
            kept = call()
        self.synchronize()
        del kept
        return int(meter.peak)


def _wait(on: Gpu) -> None:
    with on.active():
        cupy().cuda.get_current_stream().synchronize()


def _meter() -> Any:
    """A hook into CuPy's pool that follows how much of it is in use."""

    class Meter(cupy().cuda.MemoryHook):  # type: ignore[misc]
        name = "demopool"
        held = peak = 0

        def malloc_postprocess(self, **facts: Any) -> None:
            self.held += facts["mem_size"]
            self.peak = max(self.peak, self.held)

        def free_postprocess(self, **facts: Any) -> None:
            self.held -= facts["mem_size"]

    return Meter()
