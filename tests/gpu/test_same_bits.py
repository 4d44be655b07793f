"""The same bits twice: a GPU runs blocks in an order of its own, and no sum may depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import effort
import numpy as np
import pytest

import demopool as dp
from demopool import ptx

from . import counted
from .arrays import KernelSizes, random
from .backends import BACKENDS, EVERY_KERNEL, Backend, Launch
from .made import Made

FLOATS = (np.float32, np.float64)
SIZES = KernelSizes(2, 140, 70, 50)
"""Three tiles along a side, of features that are not integers: their sums depend on the order."""

ATOMIC = {
    "cupy": set(),
    "numba": {"gram", "row_forms", "power_sums", "moments", "scatter", "scatter_far"},
}
"""Kernels that add floating-point numbers atomically, as the documentation says."""

COUNTED = [one for one in EVERY_KERNEL if one[1] in counted.names(BACKENDS[one[0]])]
ADDING = [one for one in COUNTED if one[1] != "largest"]
"""Of the largest value, which Numba compares and swaps, the order does not matter."""


@pytest.mark.parametrize(("backend", "kernel"), ADDING)
def test_floating_point_numbers_are_added_atomically_only_where_it_is_said(
    backend: str, kernel: str
) -> None:
    """A comparison and swap is such an addition too, where a GPU has none of its own. In a block
    the order of warps is as free as that of blocks in a grid."""
    b = BACKENDS[backend]
    for dtype in FLOATS:
        module = b.compiled(counted.launch(b, kernel, dtype=dtype))
        code = [ins for function in module.program.functions.values() for ins in function.code]
        atomics = [ins for ins in code if ins.op in ("atom", "red")]
        floats = [ins for ins in atomics if ins.type in ("f32", "f64") or "cas" in ins.modifiers]
        assert bool(floats) == (kernel in ATOMIC[backend])


def _orders(count: int) -> list[list[tuple[int]]]:
    shuffled = np.random.default_rng(count).permutation(count)
    return [[(i,) for i in reversed(range(count))], [(int(i),) for i in shuffled]]


def _bits(arrays: list[Any]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def _depends_on_the_order(b: Backend, launch: Launch, module: ptx.Module | None = None) -> bool:
    usual = _bits(b.run(launch, module))
    orders = _orders(launch[1].blocks)
    return any(_bits(b.run(launch, module, blocks=order)) != usual for order in orders)


@pytest.mark.parametrize(
    ("backend", "kernel"), [one for one in COUNTED if one[1] not in ATOMIC[one[0]]]
)
def test_blocks_in_any_order_give_the_same_bits(backend: str, kernel: str) -> None:
    b = BACKENDS[backend]
    assert not _depends_on_the_order(b, counted.launch(b, kernel, SIZES))


def test_an_atomic_addition_does_not(cupy: Backend) -> None:
    """As this kernel added up chunks once."""
    launch = Made(cupy, "power_sums")(random(2, 7000), chunks=9)
    assert not _depends_on_the_order(cupy, launch)
    launch[2][1][...] = 0
    atomic = "[-sum.put(sums + 2 * image * chunks + blockIdx.x % chunks, chunks)-]"
    atomic += "{+atomicAdd(&sums[2 * image * chunks], sum.total)+}"
    assert _depends_on_the_order(cupy, launch, cupy.spoilt(launch, atomic))


# --- whole operations ---


def _parts_of(ops: dp.Operations) -> dict[str, Callable[[], Any]]:
    X, few = random(3, 140, 70), random(2, 300, 20)
    h = dp.hashes(70, k=50)
    return {
        "weights": lambda: ops.weights(X, route="dense", iterations=3),
        "weights without K": lambda: ops.weights(X, route="matrix-free", iterations=2),
        "a tile by several blocks": lambda: ops.pool(few),
        "K by several blocks": lambda: ops.weights(few.swapaxes(1, 2), iterations=2),
        "a sketch": lambda: ops.pool_sketch(X, h, route="moment"),
        "a long descriptor": lambda: ops.normalize(random(2, 13_000)),
    }


@pytest.mark.parametrize(
    "what", effort.cases(list(_parts_of(None)), ["weights", "a tile by several blocks", "a sketch"])
)
def test_operations_give_the_same_bits_with_blocks_in_another_order(
    cupy: Backend, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    call = _parts_of(dp.backend(cupy.ptx))[what]
    usual, run, launched = call(), ptx.Module.launch, []

    def reversed_blocks(self: ptx.Module, kernel: str, grid: int, *args: Any, **given: Any) -> Any:
        launched.append(kernel.partition("<")[0])
        return run(self, kernel, grid, *args, blocks=_orders(grid)[0], **given)

    monkeypatch.setattr(ptx.Module, "launch", reversed_blocks)
    assert call().tobytes() == usual.tobytes()
    assert ("from_parts" in launched) == ("several blocks" in what)
