"""``dense-resident``: K in the shared memory of several blocks, which wait for each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import cases

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("cuda.pathfinder")

import demopool as dp
from demopool import ptx, reference
from demopool.conformance import tolerance
from demopool.implementations.cupy_cuda import emulated, launches
from demopool.implementations.cupy_cuda.emulated import CupyEmulator
from demopool.implementations.shared import grids

from .arrays import Array, random

FLOATS = (np.float32, np.float64)


def _weights(monkeypatch: Any, processors: int, X: Array, **how: Any) -> tuple[Array, list[str]]:
    """On a device with so many multiprocessors, and the kernels that were launched."""
    monkeypatch.setattr(emulated, "EMULATOR", CupyEmulator(processors=processors))
    with ptx.recording() as launched:
        found = dp.backend("cupy:ptx").weights(X, **how)
    return found, [one.kernel.partition("<")[0] for one in launched]


@pytest.mark.parametrize("iterations", cases([1, 2, 3, 10], [2, 3]))
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("processors", "shape"), [(1, (1, 9, 5)), (3, (5, 40, 7)), (2, (3, 37, 4)), (108, (2, 130, 6))]
)
def test_it_has_the_bits_of_one_block_for_each_image(
    processors: int,
    shape: tuple[int, ...],
    dtype: Any,
    iterations: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many blocks share an image, and whether images come in turn."""
    X = random(*shape, dtype=dtype)
    X[0, 3] = 0
    how = {"gamma": 0.3, "iterations": iterations}
    found, kernels = _weights(monkeypatch, processors, X, route="dense-resident", **how)
    wanted, usual = _weights(monkeypatch, processors, X, route="dense", **how)
    np.testing.assert_array_equal(found, wanted)
    if iterations > 1:
        assert kernels.count("resident") == usual.count("small_image") == 1
        assert {"step", "small_image"}.isdisjoint(kernels)
    present = np.delete(np.arange(shape[1]), 3)
    exact = reference.weights(X[0, present], **how)
    allowed = tolerance.for_weights(X[0, present], X.dtype.name, **how)
    assert np.abs(found[0, present] / exact - 1).max() <= allowed


def test_images_that_do_not_stay_on_the_chip_are_read_in_every_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = random(1, 250, 4)
    found, kernels = _weights(monkeypatch, 1, X, route="dense-resident", iterations=4)
    assert kernels.count("step") == 3
    assert "resident" not in kernels
    there, kernels = _weights(monkeypatch, 2, X, route="dense-resident", iterations=4)
    assert kernels.count("resident") == 1
    assert np.abs(there / found - 1).max() <= tolerance.for_weights(X, "float32", iterations=4)


def test_a_part_of_a_group_does_not_wait_for_ever() -> None:
    """CuPy makes a grid smaller that does not run at once, and only warns."""
    K, (targets, a, other) = np.ones((1, 20, 20), np.float32), np.ones((3, 1, 20), np.float32)
    slices, arrived = grids.Slices(8, 3, 1), np.zeros(1, np.uint32)
    kernel, shape, args = launches.resident(K, targets, a, other, arrived, slices, 0.5, 4)
    with pytest.raises(ptx.Fault, match="assertion"):
        CupyEmulator().launch((kernel, shape._replace(blocks=2), args))


def test_no_images_are_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    found, kernels = _weights(monkeypatch, 108, random(0, 9, 5), route="dense-resident")
    assert found.shape == (0, 9)
    assert kernels == []
