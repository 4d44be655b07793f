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
from demopool import ptx
from demopool.conformance import engine
from demopool.conformance.examples import Example
from demopool.contract import ArrayFacts
from demopool.implementations.cupy_cuda import launches, signatures
from demopool.implementations.cupy_cuda.emulated import CupyEmulator
from demopool.implementations.cupy_cuda.works import WORKS
from demopool.implementations.shared import grids, images
from demopool.implementations.shared.grids import Shape
from demopool.implementations.shared.host import HostImplementation
from demopool.implementations.shared.prepared import prepare
from demopool.problem.routes import routes_for

Array = Any
u32 = np.uint32


# --- what kernels take ---


@pytest.fixture(scope="module", params=["float", "double"])
def everything(request: pytest.FixtureRequest) -> tuple[str, ptx.Module]:
    """All kernels for one T."""
    instances = signatures.instances(request.param)
    return request.param, ptx.compile(signatures.source(), "sm_80", names=instances)


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
    there = dict(re.findall(r"constexpr unsigned (\w+) = (\d+);", signatures.source()))
    for name in ("TILE", "BLOCK", "WARP", "FEATURES"):
        assert int(there[name]) == getattr(grids, name)
    assert "PIECE = 16 * BLOCK;" in signatures.source()
    assert grids.PIECE == 16 * grids.BLOCK
    for name in ("STEP_ROWS", "STEP_BLOCK", "SMALL_ROWS"):
        assert int(there[name]) == getattr(grids, name)
    assert "SMALL_BLOCK = sizeof(T) == 4 ? 896 : 512;" in signatures.source()
    assert grids._SMALL_BLOCK == {4: 896, 8: 512}
    assert int(there["STEP"]) * int(there["SLABS"]) == grids._GROUP
    assert int(there["HALF"]) == grids.TILE // 2
    kinds = re.search(r"enum Kind \{ (.*) \}", signatures.source())
    assert kinds is not None
    assert kinds[1].split(", ") == ["SQUARE", "RECTIFY", "KEEP", "LOWER_1", "LOWER_2"]
    assert [getattr(launches, kind) for kind in kinds[1].split(", ")] == [0, 1, 2, 3, 4]
    assert launches.LOWER_2 == launches.KEEP + 2  # as pool.py counts on, and `finish`


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
    "too much memory": (Shape(1, (8,), 200_000), (V, OUT, u32(8), u32(1)), ValueError, "shared"),
}


@pytest.mark.parametrize("what", WRONG_LAUNCHES)
def test_a_launch_that_would_go_wrong_without_a_word_says_so(what: str) -> None:
    shape, args, problem, word = WRONG_LAUNCHES[what]
    with pytest.raises(problem, match=word):
        CupyEmulator().run(("largest", shape, args))


def test_arguments_of_the_same_types_are_compared_once() -> None:
    def compared(V: Array) -> int:
        before = signatures._check_arguments.cache_info().misses
        signatures.check("largest", ONE, (V, np.zeros(2, V.dtype), u32(8), u32(1)), 0)
        return signatures._check_arguments.cache_info().misses - before

    signatures._check_arguments.cache_clear()
    kinds = [np.float32, np.float32, np.float64, np.float32, np.float64]
    assert [compared(np.ones((2, 8), kind)) for kind in kinds] == [1, 0, 1, 0, 0]


# --- the array-level code on another namespace and another device ---


@pytest.fixture(scope="module")
def strict() -> dp.Operations:
    """On arrays that refuse NumPy's, lists, and other devices'."""
    xp = pytest.importorskip("array_api_strict")
    device = xp.Device("device1")

    class StrictEmulator(CupyEmulator):
        def raw(self, value: Any) -> Any:
            return value if isinstance(value, np.generic) else value._array

        def contiguous(self, array: Array) -> Array:
            return self.asarray(np.ascontiguousarray(array._array))

        def asarray(self, array: Any) -> Array:
            return xp.asarray(array, device=device)

    on = StrictEmulator()
    on.xp = xp

    class StrictImplementation(HostImplementation):
        kernels = images.kernels(WORKS, lambda array: (on, on.contiguous(array)))

        def inspect(self, array: Any) -> ArrayFacts:
            assert array.device == device
            return ArrayFacts(array.shape, array._array.dtype.name, "device1")

        def asarray(self, array: Any) -> Array:
            return on.asarray(array)

        def to_numpy(self, array: Array) -> Any:
            return array._array

        def prepare(self, hashes: dp.Hashes) -> Any:
            return prepare(hashes, on.asarray)

    return dp.Operations("cupy:ptx", StrictImplementation())


@pytest.mark.parametrize(
    ("operation", "route", "order"),
    [
        (route.operation, route.name, order)
        for route in routes_for("cupy")
        for order in route.orders
    ],
)
@pytest.mark.parametrize("features", ["batch of 1", "n>d"])
def test_every_route_stays_on_its_device_and_in_its_namespace(
    strict: dp.Operations, operation: str, route: str, order: int, features: str
) -> None:
    target = engine.Target(strict, operation, route, order, "float32")
    assert engine.answer(target, Example(features)).excess <= 1


def test_pooling_without_weights_stays_there_too(strict: dp.Operations) -> None:
    for order in (1, 2):
        target = engine.Target(strict, "pool", "direct", order, "float32")
        assert engine.answer(target, Example("n>d", (("weights", "none"),))).excess <= 1
