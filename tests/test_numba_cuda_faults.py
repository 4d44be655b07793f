"""Mistakes in the kernels of numba:cuda, made on purpose in their source: each must be named."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from shutil import copytree
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda")
pytest.importorskip("cuda.pathfinder")

from demopool import ptx
from demopool.implementations.numba_cuda import kernels, launch
from tools import numba_counts
from tools.kernel_arrays import UNEVEN

SOURCES = Path(kernels.__file__).parent
RACE, OUTSIDE = ptx.FaultKind.RACE, ptx.FaultKind.OUT_OF_BOUNDS
DIVERGENT = ptx.FaultKind.DIVERGENT_BARRIER
MISSING = ptx.FaultKind.MISSING_THREAD

_LOAD_ROWS = "rows[r, tx] = P[image, row, k] if row < n and k < d else zero"
_BARRIER_BEFORE = "        cuda.syncthreads()\n        multiply_tiles"
_BARRIER_AFTER = "tx, ty)\n        cuda.syncthreads()\n"
_SHARED = "shared memory"

# kernel, what is replaced by what, the fault it must be, and a word of the sentence.
FAULTS: dict[str, tuple[str, str, str, ptx.FaultKind, str]] = {
    "no barrier before a tile is read": (
        *("gram", _BARRIER_BEFORE, "        multiply_tiles"),
        *(RACE, "no barrier between"),
    ),
    "no barrier before a tile is overwritten": (
        *("gram", _BARRIER_AFTER, "tx, ty)\n"),
        *(RACE, "no barrier between"),
    ),
    "no barrier before the mirror image is read": (
        "gram",
        "sums[2 * half + i, j]\n        cuda.syncthreads()\n",
        "sums[2 * half + i, j]\n",
        RACE,
        _SHARED,
    ),
    "no guard on the rows of a load": (
        *("gram", _LOAD_ROWS, _LOAD_ROWS.replace("row < n and ", "")),
        *(OUTSIDE, "argument 0"),
    ),
    "a guard that lets one row too many through": (
        *("gram", "if row < n and column <= row:", "if row <= n and column <= row:"),
        *(OUTSIDE, "argument 1"),
    ),
    "row and column swapped in the mirror image": (
        "gram",
        "tile[uint32(tx + 16 * j), uint32(ty + 16 * i)]",
        "tile[uint32(ty + 16 * i), uint32(tx + 16 * j)]",
        OUTSIDE,
        _SHARED,
    ),
    "sums that are added without an atomic": (
        "gram",
        "cuda.atomic.add(row_sums, (image, row), total)",
        "row_sums[image, row] += total",
        RACE,
        "argument 2",
    ),
    "no barrier before the diagonal is read": (
        "row_forms",
        "    cuda.syncthreads()\n    for i in range(4):\n        row = uint32(first",
        "    for i in range(4):\n        row = uint32(first",
        RACE,
        _SHARED,
    ),
    "a diagonal that is longer than the matrix": (
        *("row_forms", "if t < TILE and second + t < d:", "if t < TILE:"),
        *(OUTSIDE, "argument 1"),
    ),
    "a sum that is stored while others read the last one": (
        "exact_rows",
        "    total = sum_of_block(total, parts)\n    if cuda.threadIdx.x == 0:\n",
        "    if cuda.threadIdx.x == 0:\n",
        RACE,
        "argument 2",
    ),
    "threads that leave before a barrier": (
        "weighted_sum",
        "    parts[ty, tx] = total\n",
        "    if column >= d:\n        return\n    parts[ty, tx] = total\n",
        DIVERGENT,
        "left the kernel",
    ),
    "a barrier in a branch": (
        "weighted_sum",
        "    parts[ty, tx] = total\n    cuda.syncthreads()\n",
        "    parts[ty, tx] = total\n    if column < d:\n        cuda.syncthreads()\n",
        DIVERGENT,
        "do not come",
    ),
    "no barrier before the parts are added": (
        "weighted_sum",
        "    parts[ty, tx] = total\n    cuda.syncthreads()\n",
        "    parts[ty, tx] = total\n",
        RACE,
        _SHARED,
    ),
    "a shuffle that names half of a warp": (
        "step",
        "value += cuda.shfl_xor_sync(ALL_LANES, value, step)",
        "value += cuda.shfl_xor_sync(0xFFFF, value, step)",
        MISSING,
        "its own mask",
    ),
    "a row that is guarded too late": (
        "step",
        "    if row >= n:\n",
        "    if row > n:\n",
        OUTSIDE,
        "argument",
    ),
    "a wrong stride in shared memory": (
        "small_image",
        "memory[uint32(row * n + j)]",
        "memory[uint32(row * (n + 1) + j)]",
        RACE,
        _SHARED,
    ),
    "no barrier between iterations": (
        "small_image",
        "        cuda.syncthreads()\n        now, following",
        "        now, following",
        RACE,
        _SHARED,
    ),
    "a histogram that is not set to zero": (
        "scatter",
        "        histogram[i] = M.dtype.type(0)\n",
        "        histogram[0] = M.dtype.type(0)\n",
        RACE,
        _SHARED,
    ),
    "a histogram that is read too early": (
        "scatter",
        "        row = uint32(row + blocks)\n    cuda.syncthreads()\n",
        "        row = uint32(row + blocks)\n",
        RACE,
        _SHARED,
    ),
    "a bin beyond the sketch": (
        "scatter",
        "target = remainder(start + uint32(h2[j]), k)",
        "target = uint32(start + uint32(h2[j]))",
        OUTSIDE,
        _SHARED,
    ),
    "no atomic in the histogram": (
        "scatter",
        "cuda.atomic.add(histogram, target, M[image, row, j] * (sign * s2[j]))",
        "histogram[target] += M[image, row, j] * (sign * s2[j])",
        RACE,
        _SHARED,
    ),
    "columns beyond the matrix": (
        "product",
        "columns[c, ty] = Q[image, row, q] if row < d and q < d else zero",
        "columns[c, ty] = Q[image, row, q] if q < d else zero",
        OUTSIDE,
        "argument",
    ),
}


def _faulty(old: str, new: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernels with one place changed wherever it occurs, as files: Numba wants their lines."""
    package = copytree(SOURCES, folder / "faulty_kernels")
    wrong = [file for file in package.glob("*.py") if old in file.read_text()]
    assert wrong
    for file in wrong:
        file.write_text(file.read_text().replace(old, new))
    for name in [name for name in sys.modules if name.startswith("faulty_kernels")]:
        del sys.modules[name]
    monkeypatch.syspath_prepend(folder)
    return import_module("faulty_kernels")


def _launch(kernel: Any, name: str, shared: int | None = None) -> None:
    _, shape, args = numba_counts.LAUNCHES[name](np.float32, UNEVEN)
    module = ptx.compile(kernel, "sm_80", signature=launch.signature(args))
    bytes_ = shape.shared if shared is None else shared
    module.launch(kernel.__name__, shape.blocks, shape.threads, args, bytes_, most_steps=100_000)


@pytest.mark.parametrize("what", FAULTS)
def test_a_mistake_is_named(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, old, new, kind, word = FAULTS[what]
    with pytest.raises(ptx.Fault) as caught:
        _launch(getattr(_faulty(old, new, tmp_path, monkeypatch), name), name)
    assert caught.value.kind is kind, str(caught.value)
    assert word in str(caught.value)
    assert caught.value.place.source.partition(":")[0] in {f.name for f in SOURCES.glob("*.py")}


def test_too_little_shared_memory_is_named() -> None:
    with pytest.raises(ptx.Fault, match="shared memory") as caught:
        _launch(kernels.small_image, "small_image", shared=1024)
    assert caught.value.kind is OUTSIDE


@pytest.mark.parametrize("name", sorted({fault[0] for fault in FAULTS.values()}))
def test_without_a_mistake_nothing_is_named(name: str) -> None:
    _launch(getattr(kernels, name), name)
