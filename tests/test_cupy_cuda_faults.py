"""Mistakes in the kernels of cupy:cuda, made on purpose in their source: each must be named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from demopool import ptx
from demopool.implementations.cupy_cuda import signatures
from demopool.implementations.cupy_cuda.launch import Launch, i32, u32, u64
from demopool.implementations.shared import grids
from tools import cupy_launches as made
from tools.cupy_counts import LAUNCHES
from tools.kernel_arrays import UNEVEN

RACE, OUTSIDE = ptx.FaultKind.RACE, ptx.FaultKind.OUT_OF_BOUNDS
DIVERGENT, MISSING = ptx.FaultKind.DIVERGENT_BARRIER, ptx.FaultKind.MISSING_THREAD
UNWRITTEN, RUNAWAY = ptx.FaultKind.UNINITIALISED, ptx.FaultKind.RUNAWAY

_BARRIER = "__syncthreads();\n"
_SHARED = "shared memory"
_UNORDERED = "no barrier between"
_LOAD = "p < n && k < d ? x[static_cast<size_t>(p) * d + k] : T(0)"
_ROW_SUM = "atomicAdd(&row_sums[row], total)"
_LARGEST = "scale = largest_of_block(scale, parts);\n"
_PAIR = "{ const float2 two = *reinterpret_cast<const float2*>(v + j); found += two.x + two.y; }"
_TO_HISTOGRAM = "atomicAdd(&histogram[bin], s1[row] == s2[j] ? m[j] : -m[j]);"
_TO_OUT = "atomicAdd(&out[image * k + bin], s1[row] == s2[j] ? m[j] : -m[j]);"
_BIN = "static_cast<unsigned>(h1[row] + h2[j]) % k"
_ZEROED = "for (unsigned i = threadIdx.x; i < k; i += BLOCK) histogram[i] = T(0);\n"
_LAST_LOOP = "  for (unsigned i = threadIdx.x; i < k; i += BLOCK)\n"
_PARTS = "if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;\n"
_MIRRORED = "tile[tx + THREADS * j][ty + THREADS * i]"
_STORED = "sums[2 * half + i][j];\n    "

# kernel, what is replaced by what, the fault it must be, and a word of the sentence.
Mistake = tuple[str, str, str, ptx.FaultKind, str]
FAULTS: dict[str, Mistake] = {
    "no barrier before a tile is read": (
        *("gram", f"    {_BARRIER}    add_products", "    add_products"),
        *(RACE, _UNORDERED),
    ),
    "no barrier before a tile is overwritten": (
        *("gram", f"columns);\n    {_BARRIER}", "columns);\n"),
        *(RACE, _UNORDERED),
    ),
    "no barrier before the mirror image is read": (
        *("gram", _STORED + _BARRIER, _STORED),
        *(RACE, _SHARED),
    ),
    "no barrier between the halves of the mirror image": (
        *("from_triangle", f"      }}\n    }}\n    {_BARRIER}", "      }\n    }\n"),
        *(RACE, _SHARED),
    ),
    "no guard on the rows of a load": (
        *("gram", _LOAD, _LOAD.replace("p < n && ", "")),
        *(OUTSIDE, "argument 0"),
    ),
    "no guard on the columns of a load": (
        *("gram", _LOAD, _LOAD.replace(" && k < d", "")),
        *(OUTSIDE, "argument 0"),
    ),
    "a guard that lets one row too many through": (
        *("gram", "if (row < n && column <= row)", "if (row <= n && column <= row)"),
        *(OUTSIDE, "argument 1"),
    ),
    "a mirror image that is one column too wide": (
        *("from_triangle", "row < column && column < n", "row < column && column <= n"),
        *(OUTSIDE, "argument 0"),
    ),
    "a mirror image through the read-only cache": (
        *("from_triangle", f"const T value = {_MIRRORED};"),
        "const T value = row < column && column < n ? __ldg(&C[column * n + row]) : T(0);",
        *(ptx.FaultKind.READ_ONLY, "read-only"),
    ),
    "row and column swapped in the mirror image": (
        *("from_triangle", _MIRRORED, "tile[ty + THREADS * i][tx + THREADS * j]"),
        *(OUTSIDE, _SHARED),
    ),
    "row sums that are added without an atomic": (
        *("gram", _ROW_SUM, "row_sums[row] += total"),
        *(RACE, "argument 2"),
    ),
    "a largest value without an atomic": (
        *("largest", "atomic_largest(&out[image], found)"),
        *("out[image] = found > out[image] ? found : out[image]", RACE, "argument 1"),
    ),
    "a value too many for the largest": (
        *("largest", "j < values; j += chunks", "j <= values; j += chunks"),
        *(OUTSIDE, "argument 0"),
    ),
    "two values at a time, at odd places": (
        *("largest", "found = fmax(found, fabs(v[j]));", _PAIR),
        *(ptx.FaultKind.MISALIGNED, "argument 0"),
    ),
    "a thread too many in the first iteration": (
        *("first_step", "if (i >= count) return;", "if (i > count) return;"),
        *(OUTSIDE, "argument"),
    ),
    "a shuffle that names half of a warp": (
        *("step", "__shfl_xor_sync(ALL_LANES, value", "__shfl_xor_sync(0xffffu, value"),
        *(MISSING, "its own mask"),
    ),
    "lanes without a value that leave before a shuffle": (
        *("free_sums", "if (row >= n) return;", "if (row >= n || threadIdx.x % WARP >= d) return;"),
        *(MISSING, "mask"),
    ),
    "a row that is guarded too late": (
        *("step", "if (row >= n) return;", "if (row > n) return;"),
        *(OUTSIDE, "argument"),
    ),
    "a row without K that is not guarded": (
        *("free_step", "if (row >= n) return;", ""),
        *(OUTSIDE, "argument"),
    ),
    "targets where the second row of K is": (
        *("small_image", "T* goal = memory + n * n;", "T* goal = memory + n;"),
        *(RACE, _SHARED),
    ),
    "no barrier before the first iteration": (
        *("small_image", f"  {_BARRIER}  const unsigned lane", "  const unsigned lane"),
        *(RACE, _SHARED),
    ),
    "no barrier between iterations": (
        *("small_image", f"    {_BARRIER}    T* other", "    T* other"),
        *(RACE, _SHARED),
    ),
    "weights that are overwritten while they are read": (
        *("small_image", "T* next = now + n;", "T* next = now;"),
        *(RACE, _SHARED),
    ),
    "iterations that never end": (
        *("small_image", "iteration < iterations; ++iteration", "iteration < iterations;"),
        *(RUNAWAY, "steps"),
    ),
    "a barrier in a branch": (
        *("scatter", f"  {_BARRIER}{_LAST_LOOP}", f"  if (threadIdx.x < k) {_BARRIER}{_LAST_LOOP}"),
        *(DIVERGENT, "do not come"),
    ),
    "no barrier before the parts are added": (
        *("normalized_at_once", f"{_PARTS}  {_BARRIER}", _PARTS),
        *(RACE, _SHARED),
    ),
    "no barrier before the next parts are stored": (
        *("normalized_at_once", f"{_LARGEST}  {_BARRIER}", _LARGEST),
        *(RACE, _SHARED),
    ),
    "sums of an image without an atomic": (
        *("power_sums", "atomicAdd(&sums[image], total)", "sums[image] += total"),
        *(RACE, "argument 2"),
    ),
    "the start of the bin after the last one's end": (
        *("count_sketch", "stop = starts[bin + 1]", "stop = starts[bin + 2]"),
        *(OUTSIDE, "argument 2"),
    ),
    "threads without a bin that leave before a barrier": (
        *("scatter", f"  {_ZEROED}", f"  if (threadIdx.x >= k) return;\n  {_ZEROED}"),
        *(DIVERGENT, "left the kernel"),
    ),
    "a histogram that is not set to zero": ("scatter", _ZEROED, "", UNWRITTEN, _SHARED),
    "a histogram that is set to zero too late": (
        *("scatter", f"{_ZEROED}  {_BARRIER}", _ZEROED),
        *(RACE, _SHARED),
    ),
    "a histogram that is read too early": (
        *("scatter", f"  {_BARRIER}{_LAST_LOOP}", _LAST_LOOP),
        *(RACE, _SHARED),
    ),
    "a bin beyond the histogram": ("scatter", _BIN, _BIN.replace(" % k", ""), OUTSIDE, _SHARED),
    "a bin beyond the sketch": (
        *("scatter_far", _BIN, "static_cast<unsigned>(h1[row]) + h2[j] % k"),
        *(OUTSIDE, "argument 5"),
    ),
    "no atomic in the histogram": (
        *("scatter", _TO_HISTOGRAM, "histogram[bin] += s1[row] == s2[j] ? m[j] : -m[j];"),
        *(RACE, _SHARED),
    ),
    "no atomic between the histograms of blocks": (
        *("scatter", "atomicAdd(&out[image * k + i], histogram[i])"),
        *("out[image * k + i] += histogram[i]", RACE, "argument 5"),
    ),
    "no atomic in the sketch": (
        *("scatter_far", _TO_OUT, "out[image * k + bin] += s1[row] == s2[j] ? m[j] : -m[j];"),
        *(RACE, "argument 5"),
    ),
}

# Nothing is wrong with memory or threads here: only what comes out is.
VALUES: dict[str, tuple[str, str, str]] = {
    "a mirror image that is not in the row sums": ("gram", "total += value;", ""),
    "a diagonal that is counted twice": ("gram", "row < column &&", "row <= column &&"),
    "a triangle that is read where it was not made": (
        *("from_triangle", "? K[static_cast<size_t>(p) * n + q]"),
        "? K[static_cast<size_t>(q) * n + p]",
    ),
    "a wrong stride in shared memory": (
        "small_image",
        "memory[row * n + j]",
        "memory[row * (n + 1) + j]",
    ),
    "a sum of half a warp": ("step", "total = sum_of(total, WARP);", "total = sum_of(total, 16);"),
    "a weight to the wrong power": ("free_step", "target, -tau)", "target, tau)"),
    "rows without a weight that get one": (
        "step",
        "weight == T(0) ? weight",
        "weight < T(0) ? weight",
    ),
    "products where their squares were wanted": ("free_sums", "(product * (", "(T(1) * ("),
    "forms that are never doubted": ("free_sums", "if (!(total >= share * bound))", "if (false)"),
    "a norm in place of its root": ("normalized", "sqrt(share / sum)", "share / sum"),
    "signs that are lost": ("normalized_at_once", ", value);\n}", ", T(1));\n}"),
    "signs that are turned": ("count_sketch", "signs[j] < 0 ? -x[j]", "signs[j] > 0 ? -x[j]"),
    "one sign instead of two": ("scatter", "s1[row] == s2[j] ?", "s1[row] == 1 ?"),
    "an exponent one too low": ("scaled", "? exponent_of(size)", "? exponent_of(size) - 1"),
    "a scale that is taken off instead of put back": ("restored", "(-exponents", "(exponents"),
}


def _faulty(kernel: str, old: str, new: str) -> ptx.Module:
    """The kernel with one piece of text changed wherever it occurs."""
    source = signatures.SOURCE.read_text()
    assert old in source
    return ptx.compile(source.replace(old, new), made.ARCH, names=[f"{kernel}<float>"])


def _right(kernel: str) -> ptx.Module:
    return made.compiled(LAUNCHES[kernel](UNEVEN))


def _is_named(caught: Any, kind: ptx.FaultKind, word: str) -> None:
    assert caught.value.kind is kind, str(caught.value)
    assert word in str(caught.value)
    file, _, line = caught.value.place.source.partition(":")
    assert file == signatures.SOURCE.name
    assert int(line) > 0


@pytest.mark.parametrize("what", FAULTS)
def test_a_mistake_is_named(what: str) -> None:
    kernel, old, new, kind, word = FAULTS[what]
    module, launched = _faulty(kernel, old, new), LAUNCHES[kernel](UNEVEN)
    with pytest.raises(ptx.Fault) as caught:
        made.started(module, launched, most_steps=20_000)
    _is_named(caught, kind, word)


@pytest.mark.parametrize("name", sorted(LAUNCHES))
def test_without_a_mistake_nothing_is_named(name: str) -> None:
    launched = LAUNCHES[name](UNEVEN)
    made.started(made.compiled(launched), launched)


@pytest.mark.parametrize("what", VALUES)
def test_a_mistake_that_no_check_can_name_changes_values(what: str) -> None:
    kernel, old, new = VALUES[what]
    launched = LAUNCHES[kernel](UNEVEN)
    right = made.run(made.compiled(launched), launched)
    wrong = made.run(_faulty(kernel, old, new), launched)
    assert not all(np.array_equal(*pair, equal_nan=True) for pair in zip(right, wrong, strict=True))


# --- mistakes in a launch ---


@pytest.mark.parametrize("name", ["normalized_at_once", "scatter", "small_image"])
def test_too_little_shared_memory_is_named(name: str) -> None:
    kernel, shape, args = LAUNCHES[name](UNEVEN)
    less = (kernel, shape._replace(shared=shape.shared - 4), args)
    with pytest.raises(ptx.Fault) as caught:
        made.started(made.compiled(less), less)
    _is_named(caught, OUTSIDE, _SHARED)


@pytest.mark.parametrize(("name", "given"), [("step", 2), ("free_step", 4)])
def test_an_iteration_that_writes_into_its_own_weights_is_named(name: str, given: int) -> None:
    kernel, shape, args = LAUNCHES[name](UNEVEN)
    same = (kernel, shape, (*args[: given + 1], args[given], *args[given + 2 :]))
    with pytest.raises(ptx.Fault) as caught:
        made.started(made.compiled(same), same)
    _is_named(caught, RACE, f"argument {given}")


# --- positions beyond 32 bits ---

_N = 65_536


def _huge_gram(module: ptx.Module) -> Any:
    """Two images of 17 GB of K each; the last tile of both is made."""
    count = grids.triangle(_N)
    X, K = np.ones((2, _N, 3), np.float32), ptx.reserve((2, _N, _N))
    X[1] = 2
    args = (X, K, np.zeros((2, _N), np.float32), u32(_N), u32(3), u32(count), i32(made.SQUARE))
    blocks = [(count - 1,), (2 * count - 1,)]
    launched: Launch = ("gram", grids.products(2 * count), args)
    made.started(module, launched, blocks=blocks)
    return K[:, -1, -1]


def test_images_that_land_in_each_other_are_named() -> None:
    old = "K + static_cast<size_t>(image) * n * n"
    with pytest.raises(ptx.Fault) as caught:
        _huge_gram(_faulty("gram", old, "K + image * n * n"))
    _is_named(caught, RACE, "argument 1")


def test_a_place_in_an_image_as_a_signed_number_is_named() -> None:
    old = "C[static_cast<size_t>(row) * n + column] = sums"
    with pytest.raises(ptx.Fault) as caught:
        _huge_gram(_faulty("gram", old, "C[static_cast<int>(row * n + column)] = sums"))
    _is_named(caught, OUTSIDE, "argument 1")


def test_without_a_mistake_both_images_are_there() -> None:
    assert list(_huge_gram(_right("gram"))) == [9, 144]


def _huge_step(module: ptx.Module) -> Any:
    """The last rows of the second image, whose K is 1; that of the first one is 0."""
    K = ptx.reserve((2, _N, _N))
    K[1, -grids.WARPS :] = 1
    targets, a, out = (np.full((2, _N), value, np.float32) for value in (1.0, 1.0, 0.0))
    blocks, shape = grids.rows(2, _N)
    args = (K, targets, a, out, u32(_N), u32(blocks), np.float32(0.5))
    made.started(module, ("step", shape, args), blocks=[(shape.blocks - 1,)])
    return out[1, -grids.WARPS :]


def test_a_row_that_is_read_in_another_image_changes_values() -> None:
    """No fault: it is inside of the array."""
    found = _huge_step(_faulty("step", "const size_t first", "const unsigned first"))
    assert np.isinf(found).all()
    assert (_huge_step(_right("step")) == 2.0**-8).all()


def test_sketches_that_land_in_each_other_are_named() -> None:
    """2^19 features apart, in sketches of 8192 bins."""
    k, d, features = 8192, 2, 2**19 + 1
    X, out = ptx.reserve((features, d)), ptx.reserve((features, k))
    starts = np.minimum(np.arange(k + 1), d).astype(np.int32)
    tables = (starts, np.arange(d, dtype=np.int32), np.ones(d, np.int8))
    blocks, shape = grids.sketches(features, k)
    args = (X, X, *tables, out, u64(features), u32(d), u32(k), u32(blocks), i32(0))
    launched: Launch = ("count_sketch", shape, args)
    chosen = [(0,), (shape.blocks - blocks,)]
    made.started(made.compiled(launched), launched, blocks=chosen)
    wrong = _faulty("count_sketch", "for (size_t feature", "for (unsigned feature")
    with pytest.raises(ptx.Fault) as caught:
        made.started(wrong, launched, blocks=chosen)
    _is_named(caught, RACE, "argument 5")
