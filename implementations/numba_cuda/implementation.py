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
from .gpu import Gpu, numba_cuda
from .launcher import Array, Launcher
from .works import WORKS


def _place(array: Any) -> tuple[Launcher, Array]:
    """On the stream its owner says it is used on, without a copy if it is contiguous."""
    interface = array.__cuda_array_interface__
    stream = interface.get("stream")
    on = Gpu(numba_cuda().external_stream(stream) if stream and stream > 2 else 0)
    found = numba_cuda().as_cuda_array(array, sync=False)
    return on, found if found.is_c_contiguous() else arrays.copied(on, found)


class NumbaCudaImplementation(Implementation):
    """Device arrays of Numba, and any with ``__cuda_array_interface__``, where they are."""

    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(WORKS, _place)

    def inspect(self, array: Any) -> ArrayFacts | None:
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            return None
        return ArrayFacts(tuple(interface["shape"]), np.dtype(interface["typestr"]).name, "cuda")

    def asarray(self, array: NDArray[Any]) -> Array:
        return numba_cuda().to_device(np.ascontiguousarray(array))

    def to_numpy(self, array: Array) -> NDArray[Any]:
        return np.asarray(numba_cuda().as_cuda_array(array).copy_to_host())

    def cast(self, array: Array, dtype: str) -> Array:
        on, found = _place(array)
        return found if found.dtype == dtype else arrays.copied(on, found, np.dtype(dtype))

    def row_magnitudes(self, X: Array) -> NDArray[Any]:
        on, X = _place(X)
        rows = images.as_images(X, 1, on.reshape)
        return self.to_numpy(arrays.largest(on, rows)).reshape(X.shape[:-1])

    def scaled(self, X: Array, factors: NDArray[Any]) -> Array:
        """These arrays know no arithmetic; the kernel finds the powers of two itself."""
        on, X = _place(X)
        found, _ = arrays.in_range(on, images.as_images(X, 2, on.reshape))
        return found.reshape(X.shape)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return prepare(hashes, self.asarray, np.int32)

    def synchronize(self) -> None:
        numba_cuda().synchronize()

    @property
    def gpu_index(self) -> int | None:
        return int(numba_cuda().get_current_device().id)

    def event(self) -> Any:
        mark = numba_cuda().event(timing=True)
        mark.record()
        return mark

    def elapsed(self, start: Any, end: Any) -> float:
        return float(numba_cuda().event_elapsed_time(start, end)) / 1e3

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
