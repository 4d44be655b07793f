"""What the kernels of cupy:cuda take, read from their source: nobody else checks a launch of CuPy,
and the array code around them on another namespace."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")
pytest.importorskip("cuda.pathfinder")

import demopool as dp
from demopool import ptx, reference
from demopool.implementations.cupy_cuda import launches, pool, power, signatures, sketch, weights
from demopool.implementations.cupy_cuda.emulated import CupyEmulator
from demopool.implementations.cupy_cuda.prepared import prepare
from demopool.implementations.shared import grids, images
from demopool.implementations.shared.grids import Shape
from demopool.implementations.shared.table import kernel_table
from demopool.problem.routes import ROUTES

from .arrays import random as _features

Array = Any
u32 = np.uint32


def _close(found: Array, wanted: Array, units: float = 64) -> None:
    eps = np.finfo(found.dtype).eps
    assert np.abs(found - wanted).max() <= units * eps * np.abs(wanted).max()


# --- what kernels take ---


@pytest.fixture(scope="module", params=["float", "double"])
def everything(request: pytest.FixtureRequest) -> tuple[str, ptx.Module]:
    """All kernels for one T."""
    instances = signatures.instances(request.param)
    return request.param, ptx.compile(signatures.SOURCE, "sm_80", names=instances)


def test_parameters_read_from_the_source_are_those_of_the_ptx(
    everything: tuple[str, ptx.Module],
) -> None:
    ctype, module = everything
    widths = {"8": 1, "16": 2, "32": 4, "64": 8}
    for kernel, wanted in signatures.parameters().items():
        there = module.kernel(f"{kernel}<{ctype}>").params
        assert len(there) == len(wanted), kernel
        for parameter, found in zip(wanted, there, strict=True):
            bits = re.sub(r"\D", "", found.type)
            if parameter.is_array:
                assert bits == "64", (kernel, parameter)
                continue
            dtype = parameter.dtype(ctype)
            assert widths[bits] == dtype.itemsize, (kernel, parameter)
            assert (found.type[0] == "f") == (dtype.kind == "f"), (kernel, parameter)


def test_the_source_and_the_launches_agree_on_sizes() -> None:
    there = dict(re.findall(r"constexpr unsigned (\w+) = (\d+);", signatures.SOURCE.read_text()))
    for name in ("THREADS", "TILE", "BLOCK", "WARP", "FEATURES"):
        assert int(there[name]) == getattr(grids, name)
    kinds = re.search(r"enum Kind \{ (.*) \}", signatures.SOURCE.read_text())
    assert kinds is not None
    assert kinds[1].split(", ") == ["SQUARE", "RECTIFY", "KEEP"]
    assert (launches.SQUARE, launches.RECTIFY, launches.KEEP) == (0, 1, 2)


V, OUT = np.zeros((2, 8), np.float32), np.zeros(2, np.float32)
ONE = Shape(2, (256,))

WRONG_LAUNCHES: dict[str, tuple[Shape, tuple[Any, ...], type[Exception], str]] = {
    "an argument is missing": (ONE, (V, OUT, u32(8)), TypeError, "takes 4 arguments; got 3"),
    "a Python number": (ONE, (V, OUT, 8, u32(1)), TypeError, "values must be uint32; got int"),
    "a wider number": (ONE, (V, OUT, np.int64(8), u32(1)), TypeError, "uint32; got int64"),
    "another dtype": (ONE, (V, OUT.astype(float), u32(8), u32(1)), TypeError, "out must be float"),
    "integers": (ONE, (V.astype(int), OUT, u32(8), u32(1)), TypeError, "V is int64"),
    "not in one piece": (ONE, (V[:, ::2], OUT, u32(4), u32(1)), TypeError, "contiguous"),
    "column by column": (ONE, (np.asfortranarray(V), OUT, u32(8), u32(1)), TypeError, "row by"),
    "a number for an array": (ONE, (V, np.float32(0), u32(8), u32(1)), TypeError, "an array"),
    "an array for a number": (ONE, (V, OUT, np.array([8], u32), u32(1)), TypeError, "a number"),
    "too many blocks": (Shape(2**31, (256,)), (V, OUT, u32(8), u32(1)), ValueError, "blocks"),
    "too many threads": (Shape(1, (32, 64)), (V, OUT, u32(8), u32(1)), ValueError, "threads"),
    "too much shared memory": (
        Shape(1, (256,), 200_000),
        (V, OUT, u32(8), u32(1)),
        ValueError,
        "shared memory",
    ),
}


@pytest.mark.parametrize("what", WRONG_LAUNCHES)
def test_a_launch_that_would_go_wrong_without_a_word_says_so(what: str) -> None:
    shape, args, problem, word = WRONG_LAUNCHES[what]
    with pytest.raises(problem, match=word):
        CupyEmulator().run(("largest", shape, args))


# --- the array-level code on another namespace and another device ---


@pytest.fixture
def strict() -> Any:
    """Every operation and route on arrays that refuse NumPy's, lists, and other devices'."""
    xp = pytest.importorskip("array_api_strict")
    device = xp.Device("device1")

    class StrictEmulator(CupyEmulator):
        def raw(self, value: Any) -> Any:
            return value if isinstance(value, np.generic) else value._array

        def contiguous(self, array: Array) -> Array:
            return here(np.ascontiguousarray(array._array))

        def asarray(self, array: Any) -> Array:
            return here(array)

    def here(array: Any) -> Array:
        return xp.asarray(array, device=device)

    on = StrictEmulator()
    on.xp = xp

    def place(array: Array) -> tuple[Any, Array]:
        assert array.device == device
        return on, array

    return here, images.kernels(kernel_table(weights, pool, sketch, power), place)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.operation}-{route.name}")
@pytest.mark.parametrize("count", [1, 2])
def test_every_route_stays_on_its_device_and_in_its_namespace(
    strict: Any, route: Any, count: int
) -> None:
    here, kernels = strict
    X = _features(count, 12, 5)
    h, kernel = dp.hashes(5, k=8), kernels[route.operation, route.name]
    prepared = prepare(h, here)
    settings = {"gamma": 0.5, "tau": 0.5, "iterations": 3, "order": 2}
    a = np.abs(_features(count, 12))
    calls: dict[str, tuple[Any, Any]] = {
        "weights": (lambda: kernel(here(X), **settings), reference.weights(X, iterations=3)),
        "pool": (lambda: kernel(here(X), here(a), order=2), reference.pool(X, a)),
        "sketch": (lambda: kernel(here(X), prepared), reference.sketch(X, h)),
        "pool_sketch": (
            lambda: kernel(here(X), prepared, here(a)),
            reference.pool_sketch(X, h, a),
        ),
        "power": (lambda: kernel(here(X), p=0.5), reference.power(X)),
        "matrix_power": (
            lambda: kernel(here(reference.pool(X).astype(np.float32)), p=0.5),
            reference.power(X),
        ),
        "power_sketch": (lambda: kernel(here(X), prepared, p=0.5), reference.power_sketch(X, h)),
        "normalize": (
            lambda: kernel(here(X), axes=2, kind="l2", overwrite=False),
            reference.normalize(X, axes=2, kind="l2"),
        ),
    }
    call, wanted = calls[route.operation]
    found = call()
    assert found.device == here(X).device
    _close(np.asarray(found._array), wanted, units=500)


def test_pooling_in_first_order_stays_there_too(strict: Any) -> None:
    here, kernels = strict
    X = _features(2, 12, 5)
    for a in (None, np.abs(_features(2, 12))):
        found = kernels["pool", "direct"](here(X), None if a is None else here(a), order=1)
        _close(np.asarray(found._array), reference.pool(X, a, order=1))
