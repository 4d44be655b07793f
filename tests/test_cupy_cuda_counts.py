"""What the CUDA C kernels of cupy:cuda do, counted: bytes, banks, and who does the work.

Counts know no caches: what a warp asks for is counted whenever it asks. So bars are on the arrays
that no cache holds, and what is read again and again is said to be small.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from demopool import ptx
from demopool.implementations.cupy_cuda import signatures
from demopool.implementations.cupy_cuda.launch import Launch
from demopool.implementations.shared import grids
from tools import cupy_counts
from tools import cupy_launches as made
from tools.cupy_counts import LAUNCHES
from tools.kernel_arrays import EVEN, Sizes

SECTOR = 32
STEP = 16
"""Columns of the factors that a product has in shared memory at a time."""

WORD = 4


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    return cupy_counts.counted()


def _counted(name: str, z: Sizes = EVEN) -> tuple[Launch, ptx.Counts]:
    """A launch, its arrays as they are after it, and its counts."""
    launched = LAUNCHES[name](z)
    return launched, cupy_counts.count(launched)


def _traffic(name: str, launched: Launch, counts: ptx.Counts) -> dict[str, tuple[Any, Any]]:
    """Of every array: itself and its traffic, by the name the source has for it."""
    names = [parameter.name for parameter in signatures.parameters()[name]]
    return {
        names[i]: (arg, counts.traffic[f"argument {i}"])
        for i, arg in enumerate(launched[2])
        if isinstance(arg, np.ndarray) and f"argument {i}" in counts.traffic
    }


def test_there_is_a_launch_of_every_kernel() -> None:
    assert {name.partition(",")[0] for name in LAUNCHES} == set(signatures.parameters())


def test_counts_are_what_they_were(counted: dict[str, Any]) -> None:
    """A kernel that gets worse, or better, shows here: `python -m tools.cupy_counts --write`."""
    assert counted == json.loads(cupy_counts.FILE.read_text())


# --- tiles ---

_ROWS = """
extern "C" __global__ void rows_of(const unsigned* tiles, unsigned* out, unsigned count) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < count) out[i] = triangle_row(tiles[i]);
}
"""


def test_the_row_of_a_tile_is_right() -> None:
    """Up to n = 65,536 the first and the last tile of every row; between them roots only grow. And
    of some rows beyond, where a float does not hold the number of a tile."""
    row = np.concatenate([np.arange(1024), [1500, 4999, 5000, 19_999, 30_000]])
    tiles = np.concatenate([row * (row + 1) // 2, (row + 1) * (row + 2) // 2 - 1])
    out = np.zeros(len(tiles), np.uint32)
    module = ptx.compile(signatures.SOURCE.read_text() + _ROWS, made.ARCH)
    shape = grids.flat(len(tiles))
    args = (tiles.astype(np.uint32), out, np.uint32(len(tiles)))
    module.launch("rows_of", shape.blocks, shape.threads, args)
    np.testing.assert_array_equal(out, np.concatenate([row, row]))


# --- bytes ---

# Sizes at which a row is as long as rows are. A warp that has a row to itself reads its target and
# writes its weight alone, 4 of 32 bytes each; a diagonal tile has half of its rows' ends.
SIZES = {
    "gram": EVEN,
    "from_triangle": EVEN._replace(n=256),
    "step": EVEN,
    "small_image": EVEN,
    "free_step": EVEN._replace(d=256),
}


@pytest.mark.parametrize("name", SIZES)
def test_nine_of_ten_bytes_that_move_were_asked_for(name: str) -> None:
    _, counts = _counted(name, SIZES[name])
    assert counts.useful_share >= 0.9


def test_short_features_leave_free_step_four_of_five() -> None:
    """d = 64: 512 bytes of X and XM for a row, and four sectors for one word each; without the
    diagonal, which is in a cache."""
    launched, counts = _counted("free_step")
    _, cached = _traffic("free_step", launched, counts)["diagonal"]
    moved = counts.global_bytes - SECTOR * cached.sectors
    assert 0.8 < (counts.useful_bytes - cached.useful_bytes) / moved < 0.87


def test_the_gram_kernel_reads_its_tiles_and_writes_k_once() -> None:
    launched, counts = _counted("gram")
    there = _traffic("gram", launched, counts)
    (X, read), (K, written) = there["X"], there["K"]
    tiles = launched[1].blocks
    least = tiles * 2 * grids.TILE * X.shape[2] * WORD
    assert read.loaded_bytes == least
    assert written.stored_bytes == K.nbytes
    assert counts.global_bytes <= 1.2 * (least + K.nbytes)


def test_a_triangle_is_read_once_and_k_written_once() -> None:
    launched, counts = _counted("from_triangle", SIZES["from_triangle"])
    K, moved = _traffic("from_triangle", launched, counts)["K"]
    n = len(K)
    triangle = n * (n + 1) // 2 * WORD
    assert moved.loaded_bytes == triangle
    assert moved.stored_bytes == K.nbytes
    assert SECTOR * moved.sectors <= 1.2 * (triangle + K.nbytes)


def test_a_triangle_that_is_only_mirrored_is_not_written_again() -> None:
    launched = made.from_triangle(np.ones((256, 256), np.float32), made.KEEP)
    counts = cupy_counts.count(launched)
    K, moved = _traffic("from_triangle", launched, counts)["K"]
    n = len(K)
    assert moved.loaded_bytes == n * (n + 1) // 2 * WORD
    assert moved.stored_bytes == n * (n - 1) // 2 * WORD
    assert counts.atomics == 0


def test_an_iteration_reads_each_element_of_k_once() -> None:
    """The weights it reads for every row, n words that a cache holds."""
    launched, counts = _counted("step")
    there = _traffic("step", launched, counts)
    (K, read), (a, again), (out, written) = there["K"], there["a"], there["out"]
    rows = out.size
    assert read.loaded_bytes == SECTOR * read.sectors == K.nbytes
    assert again.loaded_bytes == K.nbytes + rows * WORD
    assert written.stored_bytes == out.nbytes
    once = counts.global_bytes - SECTOR * again.sectors + a.nbytes
    assert once <= 1.2 * (K.nbytes + 3 * out.nbytes)
    assert counts.flops >= 2 * K.size


@pytest.mark.parametrize("iterations", [2, 4, 10])
def test_a_small_image_reads_k_once_for_all_iterations(iterations: int) -> None:
    _, _, (K, targets, a, *_) = LAUNCHES["small_image"](EVEN)
    launched = made.small_image(K, targets, a, iterations=iterations)
    counts = cupy_counts.count(launched)
    there = _traffic("small_image", launched, counts)
    assert there["K"][1].loaded_bytes == SECTOR * there["K"][1].sectors == K.nbytes
    assert there["targets"][1].loaded_bytes == targets.nbytes
    assert there["a"][1].loaded_bytes == there["a"][1].stored_bytes == a.nbytes
    assert counts.flops >= (iterations - 1) * 2 * K.size


def test_an_iteration_without_k_reads_each_feature_once() -> None:
    """The diagonal it reads for every row, d words that a cache holds."""
    launched, counts = _counted("free_step", SIZES["free_step"])
    there = _traffic("free_step", launched, counts)
    for name in ("X", "XM"):
        array, read = there[name]
        assert read.loaded_bytes == SECTOR * read.sectors == array.nbytes
    diagonal, again = there["diagonal"]
    assert again.loaded_bytes == SECTOR * again.sectors == launched[2][0].nbytes
    once = counts.global_bytes - SECTOR * again.sectors + diagonal.nbytes
    assert once <= 1.2 * (2 * launched[2][0].nbytes)


def test_a_doubtful_row_reads_all_features_and_no_other_does() -> None:
    """It has read its own row before it is doubted, and does so again with every other one."""
    launched, counts = _counted("free_step, doubtful")
    there = _traffic("free_step", launched, counts)
    X, XM, *_ = launched[2]
    doubtful = int((np.vecdot(X, XM) < 0).sum())
    assert doubtful == X.shape[0] * X.shape[1] // 8
    assert there["X"][1].loaded_bytes == X.nbytes + doubtful * 2 * X[0].nbytes
    assert there["XM"][1].loaded_bytes == XM.nbytes


def test_a_descriptor_that_fits_is_read_once_and_written_once() -> None:
    launched, counts = _counted("normalized_at_once")
    there = _traffic("normalized_at_once", launched, counts)
    assert there["V"][1].loaded_bytes == there["V"][0].nbytes
    assert there["out"][1].stored_bytes == there["out"][0].nbytes
    assert counts.global_bytes == 2 * there["V"][0].nbytes


@pytest.mark.parametrize("name", ["scaled", "normalized"])
def test_element_wise_kernels_read_once_and_write_once(name: str) -> None:
    """And a number or two of their image for each warp, 32 bytes of 128."""
    launched, counts = _counted(name)
    there = _traffic(name, launched, counts)
    array = launched[2][0]
    assert there["V" if name == "normalized" else "X"][1].loaded_bytes == array.nbytes
    assert there["out"][1].stored_bytes == array.nbytes
    assert counts.global_bytes <= 1.25 * 2 * array.nbytes


@pytest.mark.parametrize("name", ["largest", "power_sums"])
def test_reductions_read_once_and_write_a_number_for_each_warp(name: str) -> None:
    launched, counts = _counted(name)
    assert _traffic(name, launched, counts)["V"][1].loaded_bytes == launched[2][0].nbytes
    assert counts.global_bytes <= 1.2 * launched[2][0].nbytes


def test_a_count_sketch_reads_features_once_and_writes_bins_once() -> None:
    """And, for each 8 features, the same k + 1 starts; for each feature d places and signs: 2.4 kB
    that a cache holds. Of features, which bins pick out of order, a warp wants 4 bytes of a sector
    at a time: those of one feature, d words, are in a cache too."""
    launched, counts = _counted("count_sketch")
    there = _traffic("count_sketch", launched, counts)
    (X, read), (out, written) = there["X"], there["out"]
    assert read.loaded_bytes == X.nbytes
    assert written.stored_bytes == SECTOR * written.sectors == out.nbytes
    tables = ("starts", "order", "signs")
    assert sum(there[name][0].nbytes for name in tables) < 2.5e3
    groups = X.shape[0] * X.shape[1] // grids.FEATURES
    assert there["starts"][1].loaded_bytes == 2 * groups * EVEN.k * WORD
    assert there["order"][1].loaded_bytes == X.nbytes
    # From memory, with what caches hold counted once.
    arrays = [array for array, _ in there.values()]
    assert sum(array.nbytes for array in arrays) <= 1.2 * (X.nbytes + out.nbytes)


def test_a_matrix_is_scattered_in_one_reading() -> None:
    for name in ("scatter", "scatter_far"):
        launched, counts = _counted(name)
        M, read = _traffic(name, launched, counts)["M"]
        assert read.loaded_bytes == SECTOR * read.sectors == M.nbytes


# --- shared memory ---


def test_the_inner_loop_of_the_gram_kernel_has_no_bank_conflicts() -> None:
    """Twice as long features: what they cost more is the inner loop, without the mirror image. Two
    rows of 17 words share a bank when they are stored, one pass more for each of 8 stores by 8
    warps; none elsewhere."""
    (_, short), (launched, long) = (_counted("gram", EVEN._replace(d=d)) for d in (64, 128))
    steps = launched[1].blocks * 64 // STEP
    assert long.bank_conflicts - short.bank_conflicts == steps * 8 * 8
    assert long.shared_requests - short.shared_requests == steps * 8 * (8 + 8 * STEP)
    assert long.flops - short.flops >= launched[1].blocks * 2 * grids.TILE**2 * 64


def test_the_mirror_image_costs_one_pass_more_for_each_access() -> None:
    """A tile below the diagonal: 64 x 64 words written and read, by 16 stores and 16 loads of each
    of 8 warps, in rows of 65 words of which two share banks. n = 128 has one, and two on the
    diagonal, which read half as much."""
    (_, one), (_, three) = (_counted("from_triangle", EVEN._replace(n=n)) for n in (64, 128))
    below, least = three.bank_conflicts - 2 * one.bank_conflicts, 2 * 16 * 8
    assert below == least
    assert three.shared_requests - 2 * one.shared_requests == least


@pytest.mark.parametrize("name", ["small_image", "normalized_at_once"])
def test_what_stays_in_shared_memory_has_no_bank_conflicts(name: str) -> None:
    _, counts = _counted(name)
    assert counts.shared_requests > 0
    assert counts.bank_conflicts == 0


# --- who does the work ---


def test_no_thread_works_through_an_image_alone(counted: dict[str, Any]) -> None:
    """Instructions by warps are at most some times those of an even share. Least even is
    count_sketch, 19 of 32: bins have different numbers of values."""
    for name, counts in counted.items():
        threads = counts["thread_instructions"] / max(counts["instructions"], 1)
        assert threads > (18 if name == "count_sketch" else 30), name


def test_nothing_is_worked_on_in_double_and_nothing_is_in_local_memory(
    counted: dict[str, Any],
) -> None:
    for counts in counted.values():
        assert counts["double_flops"] == counts["local_requests"] == 0
