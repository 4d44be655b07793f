"""Arrays and kernels of numba:cuda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from demopool.contract import ArrayFacts, Hashes, Implementation, Kernel
from demopool.implementations.shared import images
from demopool.implementations.shared.prepared import PreparedHashes, prepare

from . import arrays
from .gpu import Gpu, gpu_of, gpus, index_of, numba_cuda
from .launcher import Array, Launcher
from .works import WORKS


def _place(array: Any) -> tuple[Launcher, Array]:
    """On its device and its owner's stream, without a copy if it is contiguous."""
    on = gpu_of(array)
    with on.active():
        found = _there(on, array)
        return on, found if found.is_c_contiguous() else arrays.copied(on, found)


def _there(on: Gpu, array: Any) -> Array:
    """As Numba's own, which knows its stream: torch does not say it."""
    return numba_cuda().as_cuda_array(array, sync=False).bind(on.stream)


class NumbaCudaImplementation(Implementation):
    """Device arrays of Numba, and any with ``__cuda_array_interface__``, where they are."""

    takes_ordinary = True
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(WORKS, _place)

    def inspect(self, array: Any) -> ArrayFacts | None:
        return images.facts(array, index_of)

    def asarray(self, array: NDArray[Any]) -> Array:
        return numba_cuda().to_device(np.ascontiguousarray(array))

    def to_numpy(self, array: Array) -> NDArray[Any]:
        on = gpu_of(array)
        with on.active():
            return on.read(numba_cuda().as_cuda_array(array, sync=False))

    def cast(self, array: Array, dtype: str) -> Array:
        on, found = _place(array)
        with on.active():
            return found if found.dtype == dtype else arrays.copied(on, found, np.dtype(dtype))

    def packed(self, X: Array) -> Array:
        return _place(X)[1]

    def reshaped(self, array: Array, shape: tuple[int, ...]) -> Array:
        on = gpu_of(array)
        with on.active():
            return on.reshape(_there(on, array), shape)

    def transposed(self, X: Array) -> Array:
        """Numba has no such view of more than two axes."""
        on = gpu_of(X)
        with on.active():
            there = _there(on, X)
            shape, strides = (
                (*axes[:-2], axes[-1], axes[-2]) for axes in (there.shape, there.strides)
            )
            memory = {"stream": there.stream, "gpu_data": there.gpu_data}
            return type(there)(shape, strides, there.dtype, **memory)

    def looks_ordinary(self, X: Array, low: float, high: float, *, zero_rows: bool = False) -> bool:
        on, X = _place(X)
        with on.active():
            return arrays.are_ordinary(on, X, low, high, zero_rows)

    def row_magnitudes(self, X: Array) -> NDArray[Any]:
        on, X = _place(X)
        with on.active():
            rows = images.as_images(X, 1, on.reshape)
            return self.to_numpy(arrays.largest(on, rows)).reshape(X.shape[:-1])

    def scaled(self, X: Array, factors: NDArray[Any]) -> Array:
        """These arrays know no arithmetic; the kernel finds the powers of two itself."""
        on, X = _place(X)
        with on.active():
            found, _ = arrays.in_range(on, images.as_images(X, 2, on.reshape))
            return on.reshape(found, X.shape)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return prepare(hashes, self.asarray)

    def synchronize(self) -> None:
        for on in gpus():
            with on.active():
                on.wait()

    def wait(self, result: Any) -> None:
        if hasattr(result, "__cuda_array_interface__"):
            on = gpu_of(result)
            with on.active():
                on.wait()

    @property
    def gpu_index(self) -> int | None:
        return int(numba_cuda().get_current_device().id)

    def event(self) -> Any:
        """On every GPU that was worked on."""
        marks = {}
        for on in gpus():
            with on.active():
                marks[on.index] = numba_cuda().event(timing=True)
                marks[on.index].record()
        return marks

    def elapsed(self, start: Any, end: Any) -> float:
        """Of the GPU that took longest."""
        between = numba_cuda().event_elapsed_time
        return float(max(between(start[index], end[index]) for index in start)) / 1e3

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        """Numba has no meter of its own: what the driver says is free, before and after."""
        context = numba_cuda().current_context()
        numba_cuda().synchronize()
        before = context.get_memory_info().free
        kept = call()
        numba_cuda().synchronize()
        after = context.get_memory_info().free
        del kept
        return max(int(before - after), 0)
