"""The lines of numba:cuda that talk to Numba, on a stand-in for it (``numba_on_numpy.py``)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba_on_numpy as stand_in
import numpy as np
import pytest
from gpu.arrays import WithGradient
from gpu.arrays import random as _features

pytest.importorskip("numba.cuda")
pytest.importorskip("cuda.pathfinder")

import demopool as dp
from demopool import ptx, reference
from demopool.contract import registry
from demopool.errors import InvalidInput
from demopool.implementations.numba_cuda import gpu, implementation
from demopool.implementations.numba_cuda.implementation import NumbaCudaImplementation
from demopool.pooling import description
from demopool.pooling.operations import Operations

SIDE = 0x7F00
"""The address of a stream of torch's pool, which does not wait for the default stream."""

CURRENT: dict[int, int] = {}
"""torch's current streams, by GPU."""

X, WEIGHTS = _features(2, 12, 5), np.abs(_features(2, 12))


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operations]:
    CURRENT.clear()
    with stand_in.installed(monkeypatch, lambda device: CURRENT.get(device, 0)):
        yield Operations("numba:cuda", NumbaCudaImplementation())


def _close(found: Any, wanted: Any) -> None:
    values = np.asarray(found, np.float32)
    assert np.abs(values - wanted).max() <= 200 * np.finfo(np.float32).eps * np.abs(wanted).max()


def _all_operations(ops: Operations, X: Any, a: Any) -> None:
    host, weights = X.host, a.host
    h = dp.hashes(host.shape[-1], k=8)
    _close(ops.to_numpy(ops.weights(X, route="dense")), reference.weights(host))
    pooled = ops.pool(X, a)
    _close(ops.to_numpy(pooled), reference.pool(host, weights))
    sketched = ops.pool_sketch(X, h, a, route="moment")
    _close(ops.to_numpy(sketched), reference.pool_sketch(host, h, weights))
    again = ops.pool_sketch(X, ops.prepare(h), a, route="moment")
    _close(ops.to_numpy(again), reference.pool_sketch(host, h, weights))
    wanted = reference.normalize(reference.pool(host, weights), axes=2)
    _close(ops.to_numpy(ops.normalize(pooled, axes=2)), wanted)
    rows = ops.implementation.row_magnitudes(X)
    np.testing.assert_array_equal(rows, np.abs(host).max(axis=-1))
    _close(ops.to_numpy(ops.implementation.cast(X, "float64")), host)


# --- several GPUs ---


@pytest.mark.parametrize("device", [0, 1])
def test_arrays_are_worked_on_where_they_are(ops: Operations, device: int) -> None:
    """The current GPU is 0. Not contiguous ones too, which are copied first."""
    _all_operations(ops, stand_in.Foreign(X, device), stand_in.Foreign(WEIGHTS, device))
    across = stand_in.Foreign(np.swapaxes(np.swapaxes(X, 1, 2).copy(), 1, 2), device)
    _close(ops.to_numpy(ops.pool(across)), reference.pool(X))
    assert stand_in.CLOCK.active == [0]


@pytest.mark.parametrize("device", [0, 1])
def test_the_gpu_of_an_array_is_known(ops: Operations, device: int) -> None:
    inspect = ops.implementation.inspect
    there = stand_in.Foreign(X, device)
    assert inspect(there) == (X.shape, "float32", f"cuda:{device}")
    facts = inspect(ops.pool(there))
    assert facts is not None
    assert facts.device == f"cuda:{device}"
    assert inspect(X) is None


def test_a_tensor_that_requires_grad_is_refused_with_a_sentence(ops: Operations) -> None:
    with pytest.raises(InvalidInput, match="requires grad"):
        ops.weights(WithGradient())


def test_blocks_share_tiles_as_the_gpu_has_multiprocessors(ops: Operations) -> None:
    """One tile, of 300 columns."""
    many = _features(1, 300, 5)
    with ptx.recording() as launched:
        found = ops.to_numpy(ops.pool(stand_in.Foreign(many, 1)))
    assert [one.kernel for one in launched] == ["outer_parts", "from_parts"]
    _close(found, reference.pool(many))


def test_arrays_of_two_gpus_are_refused(ops: Operations) -> None:
    with pytest.raises(InvalidInput, match="device of X, cuda:0; got cuda:1"):
        ops.pool(stand_in.Foreign(X, 0), stand_in.Foreign(WEIGHTS, 1))


def test_all_gpus_that_were_worked_on_are_waited_for_and_timed(ops: Operations) -> None:
    device = ops.implementation
    result = ops.pool(stand_in.Foreign(X, 1))
    stand_in.CLOCK.host_waits.clear()
    device.wait(result)
    assert stand_in.CLOCK.host_waits == [(1, 0)]
    device.synchronize()
    assert stand_in.CLOCK.host_waits == [(1, 0), (0, 0), (1, 0)]
    start = device.event()
    assert start.keys() == {0, 1}
    assert device.elapsed(start, device.event()) == 2e-3


# --- streams ---


@pytest.mark.parametrize("device", [0, 1])
def test_work_follows_a_side_stream_of_torch_and_the_host_waits_for_no_other(
    ops: Operations, device: int
) -> None:
    CURRENT[device] = SIDE
    args = stand_in.Foreign(X, device, SIDE), stand_in.Foreign(WEIGHTS, device, SIDE)
    _all_operations(ops, *args)
    assert set(stand_in.CLOCK.host_waits) == {(device, SIDE)}
    assert stand_in.CLOCK.launched == {(device, SIDE)}, "nothing is done on the default stream"


def test_the_stream_of_a_second_operand_is_waited_for_by_an_event(ops: Operations) -> None:
    args = stand_in.WithStream(X, 0, 0x100), stand_in.WithStream(WEIGHTS, 0, 0x200)
    found = ops.pool(*args)
    assert not stand_in.CLOCK.host_waits
    assert found.__cuda_array_interface__["stream"] == 0x100
    _close(ops.to_numpy(found), reference.pool(X, WEIGHTS))


@pytest.mark.parametrize("layout", ["nd", "nhwc", "nchw"])
def test_describe_stays_on_the_stream_of_an_array(
    ops: Operations, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through every reshape, of which Numba's own forgets the stream, and for conv maps, which its
    arrays cannot transpose."""
    shapes = {"nd": (2, 12, 5), "nhwc": (2, 3, 4, 5), "nchw": (2, 5, 3, 4)}
    host = np.swapaxes(X, 1, 2) if layout == "nchw" else X
    there = stand_in._as_cuda_array(
        stand_in.WithStream(host.reshape(shapes[layout]).copy(), 0, 0x100)
    )
    monkeypatch.setattr(description, "operations_of", lambda name: ops)
    monkeypatch.setattr(registry, "owner", lambda array: ops.name)
    how = {"backend": ops.name, "route": "dense", "layout": layout}
    found = dp.describe(there, "democratic", **how)
    assert found.__cuda_array_interface__["stream"] == 0x100
    _close(ops.to_numpy(found), reference.describe(X, "democratic"))
    assert stand_in.CLOCK.launched == {(0, 0x100)}


def test_the_stand_in_sees_what_is_not_ordered(ops: Operations) -> None:
    """A check that cannot fail would show nothing."""
    there = stand_in._as_cuda_array(stand_in.Foreign(X, 0, SIDE))
    with pytest.raises(stand_in.NotOrdered):
        there.copy_to_host()
    with pytest.raises(stand_in.IllegalAddress):
        stand_in._as_cuda_array(stand_in.Foreign(X, 1))


def test_the_names_of_numba_that_we_use_exist_in_the_installed_one() -> None:
    from numba import cuda
    from numba.cuda.cudadrv import driver
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    texts = [Path(module.__file__).read_text() for module in (gpu, implementation)]
    names = set(re.findall(r"numba_cuda\(\)\.(\w+)", "".join(texts)))
    assert {"as_cuda_array", "external_stream", "event", "gpus", "device_array"} <= names
    assert not [name for name in names if not hasattr(cuda, name)]
    for function, keyword in (
        (cuda.as_cuda_array, "sync"),
        (cuda.event, "timing"),
        (cuda.device_array, "stream"),
        (cuda.to_device, "stream"),
        (DeviceNDArray.copy_to_host, "stream"),
        (DeviceNDArray.bind, "stream"),
        *((DeviceNDArray.__init__, name) for name in ("shape", "strides", "stream", "gpu_data")),
        (driver.Event.record, "stream"),
        (driver.Event.wait, "stream"),
        (driver.MemoryPointer.__init__, "context"),
    ):
        assert keyword in inspect.signature(function).parameters, function
    assert driver.binding.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
