"""The lines of cupy:cuda that talk to CuPy, run on a stand-in for it (``cupy_on_numpy.py``)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import cupy_on_numpy as stand_in
import numpy as np
import pytest
from gpu.arrays import WithGradient
from gpu.arrays import random as _features

pytest.importorskip("cuda.bindings.nvrtc")

import demopool as dp
from demopool import reference
from demopool.errors import InvalidInput, Unsupported
from demopool.gpu_report import external
from demopool.implementations.cupy_cuda import gpu, launches, signatures
from demopool.implementations.cupy_cuda.implementation import CupyCudaImplementation
from demopool.implementations.shared import grids
from demopool.pooling import description
from demopool.pooling.operations import Operations

Array = Any


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with stand_in.installed(monkeypatch) as cupy:
        yield cupy


@pytest.fixture
def ops(cupy: Any) -> Operations:
    return Operations("cupy:cuda", CupyCudaImplementation())


def _close(found: Array, wanted: Array, units: float = 200) -> None:
    values = np.array(found.view(np.ndarray))
    eps = np.finfo(values.dtype).eps
    assert np.abs(values - wanted).max() <= units * eps * np.abs(wanted).max()


LARGE = _features(2, 230, 6)
"""Whose K does not fit into the shared memory of a block."""


# --- where results are ---


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_results_are_arrays_of_cupy(ops: Operations, cupy: Any, dtype: Any) -> None:
    """Of a descriptor from end to end and of a sketch; half precision is worked in float32."""
    X, h = _features(2, 3, 12, 5, dtype=dtype), dp.hashes(5, k=8)
    here = cupy.asarray(X)
    a = ops.weights(here, route="dense")
    found = ops.normalize(ops.pool(here, a), axes=2)
    sketched = ops.pool_sketch(here, h, a, route="moment")
    weights = reference.weights(X)
    _close(found, reference.normalize(reference.pool(X, weights), axes=2))
    _close(sketched, reference.pool_sketch(X, h, weights))
    for result in (a, found, sketched):
        assert type(result) is cupy.ndarray
        assert result.dtype == np.float32


@pytest.mark.parametrize("made", ["cublas", "syrk", "tf32", "128"])
def test_other_products_are_found(ops: Operations, cupy: Any, made: str) -> None:
    """Those on tensor cores and in other tiles are in modules of their own."""
    X = _features(2, 12, 5)
    a = ops.weights(cupy.asarray(X), route=f"dense-{made}")
    found = ops.pool(cupy.asarray(X), a, route=made)
    _close(found, reference.pool(X, reference.weights(X)))
    assert type(a) is type(found) is cupy.ndarray


def test_features_are_packed_where_kernels_would_copy_them(ops: Operations, cupy: Any) -> None:
    """By stride or of half precision; others stay where they are."""
    X = cupy.asarray(_features(2, 12, 5))
    packed = ops.implementation.packed
    assert np.shares_memory(np.asarray(packed(X)), np.asarray(X))
    for given in (X.swapaxes(1, 2), X.astype(np.float16)):
        found = packed(given)
        assert found.flags.c_contiguous
        assert found.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(found), np.asarray(given))


def test_hashes_that_were_prepared_on_another_stream_are_waited_for(
    ops: Operations, cupy: Any
) -> None:
    """CuPy returns before they are on the GPU."""
    X, h = _features(2, 12, 5), dp.hashes(5, k=8)
    with cupy.cuda.Stream(non_blocking=True) as earlier:
        ready = ops.prepare(h)
    with cupy.cuda.Stream(non_blocking=True) as later:
        found = ops.pool_sketch(cupy.asarray(X), ready, route="moment")
    assert later.awaited == [earlier]
    _close(found, reference.pool_sketch(X, h))


# --- arrays of other libraries ---


class Foreign:
    """A tensor of another library on the GPU: DLPack and CUDA's array interface."""

    def __init__(self, host: Array) -> None:
        self.host = host
        self.asked: list[Any] = []

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.host.shape, "typestr": self.host.dtype.str, "version": 2}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.asked.append(stream)
        return None

    @property
    def dtype(self) -> str:
        return f"torch.{self.host.dtype}"


def test_tensors_of_other_libraries_are_taken_through_dlpack(ops: Operations) -> None:
    """Which makes CuPy's stream wait for what the owner has under way, and copies nothing."""
    X = Foreign(_features(2, 12, 5))
    facts = ops.implementation.inspect(X)
    assert facts is not None
    assert facts == ((2, 12, 5), "float32", "cuda:0")
    a = Foreign(np.abs(_features(2, 12)))
    _close(ops.pool(X, a), reference.pool(X.host, a.host))
    assert X.asked == a.asked == [1]


def test_describe_hands_over_arrays_where_they_are(ops: Operations) -> None:
    """Not through the host's memory; what CuPy does not have goes that way."""
    X = Foreign(_features(2, 12, 5))
    other = Operations("numpy:cpu", dp.backend("numpy:cpu").implementation)
    taken = description._moved(X, other, ops)
    assert X.asked == [1]
    np.testing.assert_array_equal(np.asarray(taken), X.host)
    assert ops.implementation.adopt(_features(2, 3)) is None
    assert ops.implementation.adopt(Foreign(np.zeros((2, 3), "V2"))) is None
    host = description._moved(_features(2, 3), other, ops)
    assert type(host) is type(taken)


def test_arrays_that_are_not_on_a_gpu_are_not_ours(ops: Operations) -> None:
    assert ops.implementation.inspect(_features(2, 3, 4)) is None


def test_a_tensor_that_requires_grad_is_refused_with_a_sentence(ops: Operations) -> None:
    with pytest.raises(InvalidInput, match="requires grad"):
        ops.weights(WithGradient())


def test_features_far_from_one_are_brought_into_range_where_they_are(
    ops: Operations, cupy: Any
) -> None:
    X = _features(2, 3, 4)
    factors = np.array([2.0, 0.5], np.float32).reshape(2, 1, 1)
    found = ops.implementation.scaled(cupy.asarray(X), factors)
    np.testing.assert_array_equal(np.asarray(found), X * factors)


# --- launches ---


def test_more_shared_memory_is_asked_for_where_a_block_needs_it(ops: Operations, cupy: Any) -> None:
    """n = 150 needs 90 kB: the stand-in, like a driver, refuses more than 48 without asking."""
    X = _features(2, 150, 6)
    _close(ops.weights(cupy.asarray(X), route="dense"), reference.weights(X))
    kernel = gpu.gpu(0)._functions["small_image<float>"]
    assert kernel.max_dynamic_shared_size_bytes == gpu.gpu(0).max_shared
    assert gpu.gpu(0)._functions["gram<float>"].max_dynamic_shared_size_bytes == 48 * 1024


def test_blocks_that_wait_for_each_other_are_launched_cooperatively(
    ops: Operations, cupy: Any
) -> None:
    """Images are more than the blocks of a GPU: they come in turn. The stand-in refuses a launch of
    more blocks than run at once, and one that is not cooperative."""
    for X in (_features(1, 150, 6), _features(120, 5, 3)):
        found = ops.weights(cupy.asarray(X), route="dense-resident")
        _close(found, reference.weights(X))
    kernel = gpu.gpu(0)._functions["resident<float>"]
    assert kernel.max_dynamic_shared_size_bytes == gpu.gpu(0).max_shared


def test_where_a_process_has_only_a_part_of_a_gpu_the_error_says_what_to_take(
    ops: Operations, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with MPS: the device has more multiprocessors than the driver gives."""
    monkeypatch.setattr(stand_in.Device, "most_at_once", 5)
    with pytest.raises(Unsupported, match=r"dense-resident.*does not run .* blocks.*; dense does"):
        ops.weights(cupy.asarray(_features(1, 150, 6)), route="dense-resident")


def test_a_fault_of_a_kernel_before_is_not_taken_for_a_launch_of_too_many_blocks(
    ops: Operations, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = stand_in.RawKernel.kernel

    def kernel(*arguments: Any, **how: Any) -> None:
        if how.get("enable_cooperative_groups"):
            raise stand_in.CUDADriverError(700, "an illegal memory access")
        plain(*arguments, **how)

    monkeypatch.setattr(stand_in.RawKernel, "kernel", kernel)
    with pytest.raises(stand_in.CUDADriverError, match="illegal"):
        ops.weights(cupy.asarray(_features(1, 150, 6)), route="dense-resident")


def test_the_kernels_with_dynamic_shared_memory_are_those_of_the_source() -> None:
    kernels = re.split(r"__global__ (?:__launch_bounds__.*? )?void ", signatures.source())[1:]
    dynamic = [text.partition("(")[0] for text in kernels if "extern __shared__" in text]
    assert sorted(dynamic) == sorted(gpu._DYNAMIC)


def test_hashes_prepared_for_another_gpu_are_prepared_again(ops: Operations, cupy: Any) -> None:
    prepared = ops.prepare(dp.hashes(5, k=8)).ready
    assert prepared.to(gpu.gpu(0)) is prepared
    other = gpu.Gpu(1)
    assert prepared.to(other) is not prepared


def _check_large(ops: Operations, X: Array = LARGE, **settings: Any) -> None:
    found = ops.weights(ops.asarray(X), route="dense", iterations=3, **settings)
    _close(found, reference.weights(X, iterations=3, **settings))


def test_iterations_that_come_again_are_one_graph(ops: Operations) -> None:
    for round_ in range(5):
        _check_large(ops)
        assert len(stand_in.Stream.made) == (round_ > 0)
    (graph,) = stand_in.Stream.made
    assert len(graph.calls) == 2
    assert graph.launches == 4


def test_a_graph_serves_its_own_settings_only(ops: Operations) -> None:
    for tau in (0.5, 0.3, 0.5, 0.3, 0.5):
        _check_large(ops, tau=tau)
    assert len(stand_in.Stream.made) == 2


def test_other_features_at_the_same_place_give_their_own_weights(ops: Operations) -> None:
    for seed in range(4):
        _check_large(ops, LARGE * np.float32(seed + 1) + np.float32(seed))
    assert stand_in.Stream.made


def test_graphs_can_be_switched_off(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu.GRAPHS_VARIABLE, "0")
    for _ in range(3):
        _check_large(ops)
    assert not stand_in.Stream.made


@pytest.mark.parametrize(("value", "allocators"), [("0", [None]), ("1", [])])
def test_the_pool_can_be_switched_off(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, value: str, allocators: list[None]
) -> None:
    found: list[Any] = []
    cupy.cuda.set_allocator = found.append
    monkeypatch.setenv(gpu.POOL_VARIABLE, value)
    CupyCudaImplementation()
    assert found == allocators
    assert external.POOLS_OFF[gpu.POOL_VARIABLE] == "0", "the sanitizer's process has it"


def test_a_capture_of_the_callers_own_is_refused_with_a_sentence(
    ops: Operations, cupy: Any
) -> None:
    """What is made on the way would be somebody else's memory when the graph is launched."""
    stream, X = cupy.cuda.Stream(non_blocking=True), cupy.asarray(_features(2, 12, 5))
    with stream:
        stream.begin_capture()
        calls = [ops.weights, partial(ops.implementation.looks_ordinary, low=0.1, high=10.0)]
        for call in (*calls, ops.implementation.row_magnitudes):
            with pytest.raises(InvalidInput, match="cannot be captured into a CUDA graph"):
                call(X)
        assert not stream.end_capture().calls
        ops.weights(X)


def test_a_capture_by_torch_is_refused_too(
    ops: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = SimpleNamespace(
        Tensor=Foreign, cuda=SimpleNamespace(is_current_stream_capturing=lambda: True)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(InvalidInput, match="torch:cuda can be captured"):
        ops.pool(Foreign(_features(2, 12, 5)))


# --- sizes ---


def test_images_beyond_32_bits_are_refused_with_a_sentence() -> None:
    """Numbers of values that end where 32 bits do would make loops that never end."""
    grids.chunks(1, grids.MAX_VALUES)
    for values in (2**32 - 5, 2**33):
        long = np.broadcast_to(np.float32(0), (1, values))
        with pytest.raises(InvalidInput, match="count up to 4,293,918,720"):
            launches.largest(long, long)
        with pytest.raises(InvalidInput, match="give it in parts"):
            launches.scaled(long, long, long, long)


def test_a_descriptor_may_be_normalized_where_it_is(ops: Operations, cupy: Any) -> None:
    for values in (40, 13_000):
        v = _features(2, values)
        here = cupy.asarray(v)
        found = ops.normalize(here, overwrite=True)
        assert found.data.ptr == here.data.ptr
        _close(found, reference.normalize(v))


@pytest.mark.parametrize("kind", ["CUDARuntimeError", "CUDADriverError"])
def test_launches_that_cannot_be_a_graph_are_made_one_by_one(
    ops: Operations, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def fail(self: Any) -> None:
        raise getattr(stand_in, kind)("operation not permitted")

    monkeypatch.setattr(stand_in.Stream, "begin_capture", fail)
    _check_large(ops)
    with pytest.warns(RuntimeWarning, match="DEMOPOOL_CUDA_GRAPHS=0"):
        _check_large(ops)
    _check_large(ops)


def test_only_the_last_graphs_are_kept() -> None:
    graphs = gpu.Graphs(most=2)
    assert [graphs.get(key) for key in "aab"] == [None, gpu.SEEN, None]
    graphs.put("a", "graph of a")
    assert graphs.get("a") == "graph of a"
    assert graphs.get("c") is None
    assert graphs.get("b") is None, "the one not asked for longest is gone"
    assert len(graphs) == 2


# --- several GPUs ---


def test_every_gpu_that_was_worked_on_is_marked_and_waited_for(
    ops: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current GPU is 0; an event belongs to the GPU that is current when it is made."""
    monkeypatch.setattr(gpu, "_WORKED_ON", {0, 1})
    here, done = [0], []

    class Device:
        def __init__(self, index: int = 0) -> None:
            self.id = index

        def __enter__(self) -> None:
            here.append(self.id)

        def __exit__(self, *_: object) -> None:
            here.pop()

    cuda = gpu.cupy().cuda
    monkeypatch.setattr(cuda, "Device", Device)
    waited = SimpleNamespace(synchronize=lambda: done.append(here[-1]))
    monkeypatch.setattr(cuda, "get_current_stream", lambda: waited)
    monkeypatch.setattr(
        cuda, "Event", lambda: SimpleNamespace(on=here[-1], record=lambda: done.append(here[-1]))
    )
    monkeypatch.setattr(cuda, "get_elapsed_time", lambda start, end: 1000.0 * (start.on + end.on))
    device = ops.implementation
    assert device.elapsed(device.event(), device.event()) == 2.0
    assert done == [0, 1, 0, 1]
    done.clear()
    device.synchronize()
    assert done == [0, 1]


# --- what the clock and the memory meter ask ---


def test_the_clock_and_the_meter_find_what_they_ask_for(ops: Operations, cupy: Any) -> None:
    device = ops.implementation
    assert device.gpu_index == 0
    assert device.elapsed(device.event(), device.event()) == 2e-3
    device.synchronize()


def test_peak_memory_is_what_the_pool_gave_out(ops: Operations, cupy: Any) -> None:
    """K of 2 x 230 x 230, its row sums for each of four columns of tiles, the scaled features and
    vectors, all given back but the result."""
    here = cupy.asarray(LARGE)
    measured = [
        ops.implementation.peak_device_bytes(lambda: ops.weights(here, route="dense"))
        for _ in range(2)
    ]
    K, scaled, vectors = 2 * 230 * 230 * 4, LARGE.nbytes, (4 + 4) * 2 * 230 * 4
    assert measured[0] == measured[1]
    assert measured[0] is not None
    assert K + scaled + vectors <= measured[0] <= K + scaled + vectors + 8 * 512


def test_prepared_hashes_and_values_move_both_ways(ops: Operations, cupy: Any) -> None:
    X, h = _features(2, 12, 5), dp.hashes(5, k=8)
    prepared = ops.prepare(h)
    here = ops.asarray(X)
    _close(ops.pool_sketch(here, prepared, route="moment"), reference.pool_sketch(X, h))
    np.testing.assert_array_equal(ops.to_numpy(here), X)
    np.testing.assert_allclose(
        ops.implementation.row_magnitudes(here), np.abs(X).max(axis=-1), rtol=0
    )
    assert ops.implementation.cast(here, "float64").dtype == np.float64


# --- without a GPU, and without CuPy ---


_WITHOUT_CUPY = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cupy", "cupyx", "cupy_backends"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import numpy as np
import demopool as dp
X = np.ones((1, 4, 3), np.float32)
dp.describe(X, "democratic")
assert any(row["backend"] == "cupy:cuda" for row in dp.backends())
assert dp.backend("cupy:ptx").weights(X).shape == (1, 4)
"""


def test_everything_but_cupy_cuda_works_without_cupy() -> None:
    """cupy:ptx too: it needs the compiler, not CuPy."""
    subprocess.run([sys.executable, "-c", _WITHOUT_CUPY], check=True)


_BESIDE_TORCH = """
import torch, cupy, numpy as np
import demopool as dp
X = np.random.default_rng(0).standard_normal((1, 20, 6)).astype(np.float32)
one = dp.backend("cupy:ptx").weights(X)
other = dp.backend("torch:cpu").weights(torch.from_numpy(X))
assert np.abs(one - other.numpy()).max() < 1e-4
"""


def test_it_works_beside_torch_in_one_process() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("cupy")
    subprocess.run([sys.executable, "-c", _BESIDE_TORCH], check=True)
