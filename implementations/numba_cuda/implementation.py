"""Arrays and kernels of numba:cuda, and of numba:ptx, which runs the same launches on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from demopool.contract import ArrayFacts, Hashes, Implementation, Kernel
from demopool.implementations.numba_cuda import arrays, pool, power, sketch, weights
from demopool.implementations.numba_cuda.arrays import Array
from demopool.implementations.numba_cuda.launch import Emulator, Gpu, Launcher, numba_cuda
from demopool.implementations.numba_cuda.sketch import PreparedHashes
from demopool.implementations.shared import images
from demopool.implementations.shared.host import HostImplementation


def _root(route: str) -> dict[tuple[str, str], images.Work]:
    """A square root of the moment of features, of given matrices, and its sketch."""

    def of_features(on: Launcher, X: Array, *, p: float) -> Array:
        return power.of_features(on, X, route)

    def of_matrices(on: Launcher, A: Array, *, p: float) -> Array:
        return power.ROOTS[route](on, A)

    def sketched(on: Launcher, X: Array, hashes: PreparedHashes, *, p: float) -> Array:
        return sketch.of_matrices(on, power.of_features(on, X, route), hashes)

    return {
        ("power", route): of_features,
        ("matrix_power", route): of_matrices,
        ("power_sketch", f"{route}+moment"): sketched,
    }


WORKS: dict[tuple[str, str], images.Work] = {
    ("weights", "dense"): weights.dense,
    ("weights", "matrix-free"): weights.matrix_free,
    ("pool", "direct"): pool.direct,
    ("pool_sketch", "moment"): sketch.pool_moment,
    ("normalize", "direct"): pool.normalize,
    **_root("newton-schulz"),
    **_root("polar"),
}


# --- on a GPU ---


def _on_gpu(array: Any) -> tuple[Launcher, Array]:
    """On the stream its owner says it is used on, without a copy if it is contiguous."""
    interface = array.__cuda_array_interface__
    stream = interface.get("stream")
    on = Gpu(numba_cuda().external_stream(stream) if stream and stream > 2 else 0)
    found = numba_cuda().as_cuda_array(array, sync=False)
    return on, found if found.is_c_contiguous() else arrays.copied(on, found)


class NumbaCudaImplementation(Implementation):
    """Device arrays of Numba, and any with ``__cuda_array_interface__``, where they are."""

    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(WORKS, _on_gpu)

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
        on, found = _on_gpu(array)
        return found if found.dtype == dtype else arrays.copied(on, found, np.dtype(dtype))

    def row_magnitudes(self, X: Array) -> NDArray[Any]:
        on, X = _on_gpu(X)
        rows = images.as_images(X, 1, on.reshape)
        return self.to_numpy(arrays.largest(on, rows)).reshape(X.shape[:-1])

    def scaled(self, X: Array, factors: NDArray[Any]) -> Array:
        """These arrays know no arithmetic; the kernel finds the powers of two itself."""
        on, X = _on_gpu(X)
        found, _ = arrays.in_range(on, images.as_images(X, 2, on.reshape))
        return found.reshape(X.shape)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return _prepare(hashes, self.asarray)

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


# --- from the PTX, on the CPU ---

EMULATOR = Emulator()


def _emulated(array: Array) -> tuple[Launcher, Array]:
    return EMULATOR, np.ascontiguousarray(array)


class NumbaPtxImplementation(HostImplementation):
    """NumPy arrays stand for those of a device; half precision is not taken."""

    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(WORKS, _emulated)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return _prepare(hashes, np.ascontiguousarray)


def _prepare(hashes: Hashes, asarray: Callable[[Array], Array]) -> PreparedHashes:
    """Bins as 32-bit integers, signs as float32, which is exact in any product."""
    h1, h2 = (asarray(h.astype(np.int32)) for h in (hashes.h1, hashes.h2))
    s1, s2 = (asarray(s.astype(np.float32)) for s in (hashes.s1, hashes.s2))
    return PreparedHashes(h1, h2, s1, s2, hashes)
