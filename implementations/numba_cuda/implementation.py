"""Arrays and kernels of numba:cuda, and of numba:ptx, which runs the same launches on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from demopool.implementations.shared.host import HostImplementation
from numpy.typing import NDArray

from demopool.contract import ArrayFacts, Implementation, Kernel
from demopool.hashing import Hashes

from . import arrays, pool, power, sketch, weights
from .arrays import Array
from .launch import Emulator, Gpu, Launcher, numba_cuda
from .sketch import PreparedHashes

Work = Callable[..., Array]
Place = Callable[[Array], tuple[Launcher, Array]]
"""Who runs kernels on an array, and the array as they want it: contiguous, on the device."""


def _table(place: Place) -> dict[tuple[str, str], Kernel]:
    """The kernels by operation and route, for arrays with any leading axes."""

    def direct(X: Array, a: Array | None, *, order: int) -> Array:
        on, X = place(X)
        found = pool.direct(on, arrays.images(X, 2), _weights(a, place), order=order)
        return found.reshape((*X.shape[:-2], *found.shape[1:]))

    def pool_moment(X: Array, hashes: PreparedHashes, a: Array | None) -> Array:
        on, X = place(X)
        found = sketch.pool_moment(on, arrays.images(X, 2), hashes, _weights(a, place))
        return found.reshape((*X.shape[:-2], hashes.hashes.k))

    def normalize(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
        on, v = place(v)
        values = int(np.prod(v.shape[len(v.shape) - axes :]))
        rows = v.reshape((int(np.prod(v.shape[: len(v.shape) - axes])), values))
        if kind == "none":
            return arrays.copied(on, v)
        return pool.normalize(on, rows, kind=kind).reshape(v.shape)

    def root(route: str) -> dict[str, Kernel]:
        def of_x(X: Array, *, p: float) -> Array:
            on, X = place(X)
            found = power.of_features(on, arrays.images(X, 2), route)
            return found.reshape((*X.shape[:-2], *found.shape[1:]))

        def of_a(A: Array, *, p: float) -> Array:
            on, A = place(A)
            return power.ROOTS[route](on, arrays.images(A, 2)).reshape(A.shape)

        def sketched(X: Array, hashes: PreparedHashes, *, p: float) -> Array:
            on, X = place(X)
            found = power.of_features(on, arrays.images(X, 2), route)
            found = sketch.of_matrices(on, found, hashes)
            return found.reshape((*X.shape[:-2], hashes.hashes.k))

        return {"power": of_x, "matrix_power": of_a, "power_sketch": sketched}

    def weighting(work: Work) -> Kernel:
        def run(X: Array, **options: Any) -> Array:
            on, X = place(X)
            return work(on, arrays.images(X, 2), **options).reshape(X.shape[:-1])

        return run

    found: dict[tuple[str, str], Kernel] = {
        ("weights", "dense"): weighting(weights.dense),
        ("weights", "matrix-free"): weighting(weights.matrix_free),
        ("pool", "direct"): direct,
        ("pool_sketch", "moment"): pool_moment,
        ("normalize", "direct"): normalize,
    }
    for route in power.ROOTS:
        of = root(route)
        found["power", route] = of["power"]
        found["matrix_power", route] = of["matrix_power"]
        found["power_sketch", f"{route}+moment"] = of["power_sketch"]
    return found


def _weights(a: Array | None, place: Place) -> Array | None:
    return None if a is None else arrays.images(place(a)[1], 1)


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

    kernels: ClassVar[dict[tuple[str, str], Kernel]] = _table(_on_gpu)

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
        flat = arrays.images(X, 1)
        return self.to_numpy(arrays.largest(on, flat)).reshape(X.shape[:-1])

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

    kernels: ClassVar[dict[tuple[str, str], Kernel]] = _table(_emulated)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return _prepare(hashes, np.ascontiguousarray)


def _prepare(hashes: Hashes, asarray: Callable[[Array], Array]) -> PreparedHashes:
    """Bins as 32-bit integers, signs as float32, which is exact in any product."""
    h1, h2 = (asarray(h.astype(np.int32)) for h in (hashes.h1, hashes.h2))
    s1, s2 = (asarray(s.astype(np.float32)) for s in (hashes.s1, hashes.s2))
    return PreparedHashes(h1, h2, s1, s2, hashes)
