"""Kernels for a GPU: their launches, what the assembler says, and what they do, from their PTX."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda")
pytest.importorskip("cuda.pathfinder")

from numba import cuda

import demopool as dp
from demopool import ptx, reference
from demopool.conformance import tolerance
from demopool.implementations.numba_cuda import implementation as module
from demopool.implementations.numba_cuda import kernels, launch
from demopool.implementations.numba_cuda.launch import Emulator
from demopool.implementations.shared import grids
from demopool.implementations.shared.grids import Shape
from tools import numba_counts

Array = Any
FLOATS = (np.float32, np.float64)
i32 = np.int32


def _features(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


# --- launches ---

_LARGEST = 2**34
"""Features that a GPU can hold."""

SIZES = [
    (count, n, d)
    for n, d in [(1, 1), (49, 512), (784, 512), (196, 2048), (65536, 512)]
    for count in (1, 8, 4000)
    if count * n * d <= _LARGEST
]


@pytest.mark.parametrize("size", [1, 63, 64, 65, 784, 2048, 65536])
def test_tiles_cover_a_matrix_once(size: int) -> None:
    side = grids.tiles(size)
    assert (side - 1) * grids.TILE < size <= side * grids.TILE
    assert grids.triangle(size) == side * (side + 1) // 2


@pytest.mark.parametrize(("images", "n", "d"), SIZES)
def test_every_launch_is_within_the_limits_of_every_device(images: int, n: int, d: int) -> None:
    for dtype in FLOATS:
        size = np.dtype(dtype).itemsize
        shapes = [
            grids.flat(images * n * d),
            grids.flat(images * d * d),
            grids.products(images * grids.triangle(n)),
            grids.products(images * grids.tiles(n) * grids.tiles(d)),
            grids.rows(images, n)[1],
            grids.columns(images, d)[1],
            grids.scatters(images, d, 8192, size)[1],
            grids.scatters(images, d, 65536, size)[1],
            grids.chunks(images, d * d)[1],
        ]
        for shape in shapes:
            assert 1 <= shape.blocks < 2**31
            assert int(np.prod(shape.threads)) <= 1024
            assert shape.shared <= grids.SHARED_BYTES


def test_an_image_is_small_when_its_kernel_matrix_fits_into_48_kilobytes() -> None:
    """Numba never raises the limit: n <= 109 in float32, 76 in float64, three vectors with it."""
    for dtype, most in ((np.float32, 109), (np.float64, 76)):
        size = np.dtype(dtype).itemsize
        assert grids.small_image_bytes(most, size) <= 48 * 1024
        assert grids.small_image_bytes(most + 1, size) > 48 * 1024


def test_the_row_of_a_tile_is_found_up_to_1024_rows_of_tiles() -> None:
    """n = 65,536: the last tile of the first, of some and of the last row, and the one after it."""

    def rows_of(tiles: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < tiles.shape[0]:
            out[i] = kernels.triangle_row(tiles[i])

    rows = np.unique(np.r_[0:40, 500:520, 1000:1024])
    tiles = np.concatenate([rows * (rows + 1) // 2, (rows + 1) * (rows + 2) // 2 - 1])
    out = np.zeros(len(tiles), np.uint32)
    Emulator().run(rows_of, Shape(-(-len(tiles) // 64), (64,)), tiles.astype(np.uint32), out)
    np.testing.assert_array_equal(out, np.concatenate([rows, rows]))


# --- values: on another architecture, beyond one tile, at real sizes ---


@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_other_architectures_give_the_same(
    arch: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EMULATOR", Emulator(arch))
    ops, X = dp.backend("numba:ptx"), _features(2, 70, 9, dtype=dtype)
    eps = np.finfo(dtype).eps
    h = dp.hashes(9, k=16)
    pairs = [
        (ops.weights(X, route="dense"), reference.weights(X)),
        (ops.weights(X, route="matrix-free"), reference.weights(X)),
        (ops.pool(X), reference.pool(X)),
        (ops.pool_sketch(X, h, route="moment"), reference.pool_sketch(X, h)),
        (ops.normalize(X), reference.normalize(X)),
    ]
    for found, wanted in pairs:
        assert np.abs(found - wanted).max() <= 64 * eps * np.abs(wanted).max()


def test_many_features_take_several_blocks_for_each_image() -> None:
    """n beyond shared memory: one launch for each iteration, and partial tiles on every side."""
    X = _features(1, 131, 70)
    ops = dp.backend("numba:ptx")
    found = ops.weights(X, route="dense", iterations=3)
    wanted = reference.weights(X, iterations=3)
    error = np.abs(found / wanted - 1).max(axis=-1)
    assert (error <= tolerance.for_weights(X, "float32", iterations=3)).all()
    pooled = ops.pool(X, found)
    wanted = reference.pool(X, found)
    assert np.abs(pooled - wanted).max() < 1e-5 * np.abs(wanted).max()
    np.testing.assert_array_equal(pooled, pooled.swapaxes(1, 2))


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sketch_that_does_not_fit_into_shared_memory(dtype: Any) -> None:
    X = _features(1, 5, 40, dtype=dtype)
    h = dp.hashes(40, k=20_000)
    found = dp.backend("numba:ptx").pool_sketch(X, h, route="moment")
    wanted = reference.pool_sketch(X, h)
    assert np.abs(found - wanted).max() < 32 * np.finfo(dtype).eps * np.abs(wanted).max()


def test_the_gram_matrix_at_65536_features() -> None:
    """17 GB of K, of which chosen tiles are computed: first and last ones, each written twice."""
    n, d = 65_536, 20
    X, K = _features(1, n, d), ptx.reserve((1, n, n))
    sums = np.zeros((1, n), np.float32)
    count = grids.triangle(n)
    args = (X, K, sums, i32(count), i32(kernels.SQUARE))
    compiled = launch.compiled(kernels.gram, launch.signature(args), "sm_80")
    side = grids.tiles(n)
    picked = {0: (0, 0), 1: (1, 0), count - side: (side - 1, 0), count - 1: (side - 1, side - 1)}
    compiled.launch("gram", count, (16, 16), args, blocks=[(tile,) for tile in picked])
    for row, column in picked.values():
        p, q = slice(64 * row, 64 * row + 64), slice(64 * column, 64 * column + 64)
        wanted = (X[0, p].astype(np.float64) @ X[0, q].T.astype(np.float64)) ** 2
        assert np.abs(K[0, p, q] - wanted).max() < 1e-5 * wanted.max()
        np.testing.assert_array_equal(K[0, p, q], K[0, q, p].T)


# --- what the assembler says ---

_NAMES = sorted(numba_counts.LAUNCHES)


@pytest.mark.parametrize("arch", ptx.ARCHITECTURES)
@pytest.mark.parametrize("name", _NAMES)
def test_kernels_spill_nothing_and_float32_is_not_worked_on_in_double(name: str, arch: str) -> None:
    for dtype in FLOATS:
        kernel, shape, args = numba_counts.LAUNCHES[name](dtype)
        compiled = launch.compiled(kernel, launch.signature(args), arch)
        (needs,) = ptx.assemble(compiled).values()
        threads = int(np.prod(shape.threads))
        assert needs.spilled_bytes == needs.stack_bytes == 0
        assert needs.registers * threads <= 65536
        assert needs.shared_bytes + shape.shared <= grids.SHARED_BYTES
        if dtype is np.float32:
            doubles = {
                ins.text
                for function in compiled.program.functions.values()
                for ins in function.code
                if "f64" in ins.modifiers
            }
            assert not doubles


# --- what they do, counted ---


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    return numba_counts.counted()


def test_counts_are_what_they_were(counted: dict[str, Any]) -> None:
    """A kernel that gets worse, or better, shows here: `python -m tools.numba_counts --write`."""
    assert counted == json.loads(numba_counts.FILE.read_text())


def test_the_gram_kernel_wastes_no_bytes_and_no_banks() -> None:
    """n = 128, d = 64: X is read once for each row of tiles, K and its mirror written once."""
    kernel, shape, args = numba_counts.LAUNCHES["gram"](np.float32)
    compiled = launch.compiled(kernel, launch.signature(args), "sm_80")
    counts = compiled.launch("gram", shape.blocks, shape.threads, args, shape.shared)
    d = args[0].shape[2]
    reads = counts.traffic["argument 0"]
    writes = counts.traffic["argument 1"]
    assert counts.useful_share >= 0.9
    tiles = shape.blocks
    assert reads.useful_bytes <= 1.2 * tiles * 2 * grids.TILE * d * 4
    assert writes.stored_bytes == args[1].nbytes


def test_the_inner_loop_of_products_has_no_bank_conflicts() -> None:
    """It is the same in all of them, and here without a mirror image. Two rows of 17 words share a
    bank when they are stored: one pass more for each of 8 stores by 8 warps, and none elsewhere.
    The diagonal is stored by 2 warps, and read by 8 for each of 16 results of a thread."""
    X, M = _features(1, 64, 64), _features(1, 64, 64)
    args = (X, M, np.zeros((2, 64), np.float32), i32(1), i32(1))
    compiled = launch.compiled(kernels.row_forms, launch.signature(args), "sm_80")
    counts = compiled.launch("row_forms", 1, (16, 16), args)
    steps = 64 // kernels.STEP
    assert counts.bank_conflicts == steps * 8 * 8
    assert counts.shared_requests == steps * 8 * (8 + 8 * kernels.STEP) + 2 + 8 * 16
    assert counts.flops >= 2 * 64**3


def test_an_iteration_reads_each_element_of_k_once() -> None:
    kernel, shape, args = numba_counts.LAUNCHES["step"](np.float32)
    compiled = launch.compiled(kernel, launch.signature(args), "sm_80")
    counts = compiled.launch("step", shape.blocks, shape.threads, args, shape.shared)
    n = args[0].shape[1]
    read = counts.traffic["argument 0"]
    assert read.useful_bytes == args[0].nbytes
    assert 32 * read.sectors <= 1.1 * args[0].nbytes
    assert counts.useful_share >= 0.9
    assert counts.flops >= 2 * n * n


def test_a_row_that_is_not_doubtful_costs_two_words_and_its_place_in_the_moment() -> None:
    """Each warp of its block reads both, 32 bytes each, and the block is gone. In the tiles of X M
    the diagonal of M is read once for each row of tiles, a sector for each value."""
    kernel, shape, (X, v, forms, share) = numba_counts.LAUNCHES["exact_rows"](np.float32)
    args = (X, v, np.ones_like(forms), share)
    compiled = launch.compiled(kernel, launch.signature(args), "sm_80")
    counts = compiled.launch("exact_rows", shape.blocks, shape.threads, args)
    images, n, d = X.shape
    assert counts.traffic.keys() == {"argument 2"}
    assert counts.global_sectors == 2 * grids.WARPS * images * n
    assert counts.barriers == 0
    kernel, shape, args = numba_counts.LAUNCHES["row_forms"](np.float32)
    compiled = launch.compiled(kernel, launch.signature(args), "sm_80")
    counts = compiled.launch("row_forms", shape.blocks, shape.threads, args)
    read = counts.traffic["argument 1"]
    tile = grids.TILE * d * 4
    assert read.loaded_bytes == shape.blocks * (tile + grids.TILE * 4)
    assert read.sectors == shape.blocks * (tile // 32 + grids.TILE)


def test_no_thread_works_through_an_image_alone(counted: dict[str, Any]) -> None:
    """Instructions by warps are at most some times those of an even share."""
    for name, counts in counted.items():
        threads = counts["thread_instructions"] / max(counts["instructions"], 1)
        assert threads > 16, name


# --- a second witness ---

_SIMULATED = """
import numpy as np
from numba import cuda
from demopool import reference
from demopool.implementations.numba_cuda import kernels

X = np.random.default_rng(0).standard_normal((1, 5, 7)).astype(np.float32)
out = np.zeros((1, 7), np.float32)
cuda.jit(kernels.weighted_sum)[1, (32, 8)](X, np.ones((1, 5), np.float32), out, 1)
assert np.allclose(out, reference.pool(X, order=1), atol=1e-5), out
a = np.ones(5, np.float32)
forms, targets = np.arange(1, 6, dtype=np.float32), np.ones(5, np.float32)
cuda.jit(kernels.update)[1, 256](forms, targets, a, np.float32(0.5))
assert np.allclose(a, forms**-0.5), a
print("simulated")
"""


def test_the_simulator_agrees_on_kernels_without_shuffles() -> None:
    """Numba's simulator knows no shuffles, so it can run a few of the kernels only."""
    done = subprocess.run(
        [sys.executable, "-c", _SIMULATED],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "simulated" in done.stdout


# --- without a GPU ---


def test_numba_cuda_is_listed_with_the_reason_why_it_is_not_here() -> None:
    found = {row["backend"]: row for row in dp.backends()}
    assert found["numba:ptx"]["state"] == "ok"
    if found["numba:cuda"]["state"] != "ok":
        assert re.search("GPU|driver", found["numba:cuda"]["reason"])


def test_routes_that_numba_cannot_have_say_why() -> None:
    ops = dp.backend("numba:ptx")
    for operation, route, word in (
        ("pool_sketch", "fft", "Fourier"),
        ("power", "eigh", "eigen-solver"),
        ("power", "newton", "inverse"),
        ("power_sketch", "svd+moment", "SVD"),
    ):
        assert word in ops.supports(operation, route=route, dtype="float32").reason
