"""The same bits twice: a GPU runs blocks in an order of its own, and no sum may depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import effort
import numpy as np
import pytest

import demopool as dp
from demopool import ptx
from demopool.implementations.cupy_cuda import signatures

from . import counted
from .arrays import KernelSizes, positive, random
from .backends import BACKENDS, EVERY_KERNEL, Backend, Launch
from .made import Made

FLOATS = (np.float32, np.float64)
SIZES = KernelSizes(2, 140, 70, 50)
"""Three tiles along a side, of features that are not integers: their sums depend on the order."""

COUNTED = [one for one in EVERY_KERNEL if one[1] in counted.names(BACKENDS[one[0]])]
ADDING = [one for one in COUNTED if one[1] != "largest"]
"""Of the largest value, which Numba compares and swaps, the order does not matter."""


@pytest.mark.parametrize(("backend", "kernel"), ADDING)
def test_no_kernel_adds_floating_point_numbers_atomically(backend: str, kernel: str) -> None:
    b = BACKENDS[backend]
    for dtype in FLOATS:
        assert not _atomic_additions(b.compiled(counted.launch(b, kernel, dtype=dtype)))


@pytest.mark.parametrize("variant", [signatures.wide(), signatures.tensor()], ids=["128", "tf32"])
def test_neither_do_other_ways_to_multiply(variant: signatures.Variant) -> None:
    assert not _atomic_additions(ptx.compile(variant.source, "sm_80", names=variant.instances))


def _atomic_additions(module: ptx.Module) -> list[str]:
    """Of floating-point numbers. A comparison and swap is such an addition too, where a GPU has
    none of its own. In a block the order of warps is as free as that of blocks in a grid."""
    code = [ins for function in module.program.functions.values() for ins in function.code]
    atomics = [ins for ins in code if ins.op in ("atom", "red")]
    return [i.text for i in atomics if i.type in ("f32", "f64") or "cas" in i.modifiers]


def _orders(count: int) -> list[list[tuple[int]]]:
    shuffled = np.random.default_rng(count).permutation(count)
    return [[(i,) for i in reversed(range(count))], [(int(i),) for i in shuffled]]


def _bits(arrays: list[Any]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def _depends_on_the_order(b: Backend, launch: Launch, module: ptx.Module | None = None) -> bool:
    usual = _bits(b.run(launch, module))
    orders = _orders(launch[1].blocks)
    return any(_bits(b.run(launch, module, blocks=order)) != usual for order in orders)


@pytest.mark.parametrize(("backend", "kernel"), COUNTED)
def test_blocks_in_any_order_give_the_same_bits(backend: str, kernel: str) -> None:
    b = BACKENDS[backend]
    assert not _depends_on_the_order(b, counted.launch(b, kernel, SIZES))


ATOMIC = {
    "cupy": "[-sum.put(sums + 2 * image * chunks + blockIdx.x % chunks, chunks)-]"
    "{+atomicAdd(&sums[2 * image * chunks], sum.total)+}",
    "numba": "[-sums[image, chunk] = total-]{+cuda.atomic.add(sums, (image, 0), total)+}",
}
"""As this kernel added up chunks once."""


def test_an_atomic_addition_does_not(b: Backend) -> None:
    given = (random(2, 7000),) if b.name == "cupy" else (random(2, 7000), positive(2))
    launch = Made(b, "power_sums")(*given, chunks=9)
    assert not _depends_on_the_order(b, launch)
    launch[2][len(given)][...] = 0
    spoilt = b.spoilt(launch, ATOMIC[b.name])
    assert _atomic_additions(spoilt)
    assert _depends_on_the_order(b, launch, spoilt)


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
        "a root": lambda: ops.power(X, route="polar"),
    }


@pytest.mark.parametrize(
    "what", effort.cases(list(_parts_of(None)), ["weights", "a tile by several blocks", "a sketch"])
)
def test_operations_give_the_same_bits_with_blocks_in_another_order(
    b: Backend, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    call = _parts_of(dp.backend(b.ptx))[what]
    usual, run, launched = call(), ptx.Module.launch, []

    def reordered(way: int) -> Callable[..., Any]:
        def launch(self: ptx.Module, kernel: str, grid: int, *args: Any, **given: Any) -> Any:
            launched.append(kernel.partition("<")[0])
            return run(self, kernel, grid, *args, blocks=_orders(grid)[way], **given)

        return launch

    for way in range(2):
        monkeypatch.setattr(ptx.Module, "launch", reordered(way))
        assert call().tobytes() == usual.tobytes()
    assert ("from_parts" in launched) == ("several blocks" in what)
