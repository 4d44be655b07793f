"""The launches of both libraries: their sizes, what the assembler says, and what they import."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from effort import cases

import demopool as dp
from demopool import ptx
from demopool.implementations.shared import grids

from . import counted
from .backends import ARCH, BACKENDS, EVERY_KERNEL, Backend

FLOATS = (np.float32, np.float64)


# --- sizes ---

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


@pytest.mark.parametrize(("count", "n", "d"), SIZES)
def test_every_launch_is_within_the_limits_of_every_device(count: int, n: int, d: int) -> None:
    """With as much shared memory as the device has, or as a block gets without asking."""
    max_shared = {grids.SHARED_BYTES, *(limit.shared_per_block for limit in ptx.LIMITS.values())}
    for most, size in [(most, size) for most in max_shared for size in (4, 8)]:
        shapes = [
            grids.flat(count * n * d),
            grids.flat(count * d * d),
            grids.per_image(count, n * d)[1],
            grids.per_image(count * n, 8192)[1],
            grids.products(count * grids.triangle(n)),
            grids.products(count * grids.tiles(n) * grids.tiles(d)),
            grids.products(grids.triangle(d)),
            grids.rows(count, n)[1],
            grids.columns(count, d)[1],
            grids.chunks(count, d * d)[1],
            grids.sorted_scatters(count, d, 8192, size, most)[1],
            grids.sorted_scatters(count, d, 65536, size, most)[1],
            grids.pieces(count, d * d)[1],
            grids.vector_products(count * grids.triangle(n), size),
            grids.vector_products(count * grids.triangle(n), 4, 128),
            grids.rows_of_k(count, n)[1],
        ]
        if grids.padded_image_bytes(n, size) <= most:
            shapes.append(grids.padded_images(count, n, size))
        for shape in shapes:
            assert 1 <= shape.blocks <= grids.MAX_BLOCKS
            assert int(np.prod(shape.threads)) <= grids.MAX_THREADS
            assert shape.shared <= most


@pytest.mark.parametrize("columns", [1, 127, 128, 255, 256, 300, 784, 12544])
@pytest.mark.parametrize("tiles", [1, 8, 215, 216, 432, 433, 10_000])
@pytest.mark.parametrize("size", [4, 8])
def test_blocks_that_share_a_tile_run_at_once_and_have_all_columns(
    columns: int, tiles: int, size: int
) -> None:
    """No more of them than a GPU runs at once, none with few columns or with none."""
    at_once = {4: 4, 8: 2}[size] * 108
    count = grids.parts(tiles, columns, 108, size)
    length = grids.part_length(columns, count)
    assert (count - 1) * length < columns <= count * length
    if count > 1:
        assert count * tiles <= at_once
        assert length >= 128
        assert length % 32 == 0
    else:
        assert 2 * tiles > at_once or columns < 2 * 128


@pytest.mark.parametrize(
    ("arch", "n", "size"),
    [
        *(("sm_75", 125, 4), ("sm_80", 201, 4), ("sm_90", 239, 4), ("sm_120", 156, 4)),
        *(("", 109, 4), ("", 76, 8)),
    ],
)
def test_how_large_an_image_one_block_can_hold(arch: str, n: int, size: int) -> None:
    """Numba never asks for more than a block gets without asking; CuPy pads rows."""
    most = ptx.LIMITS[arch].shared_per_block if arch else grids.SHARED_BYTES
    needed = grids.padded_image_bytes if arch else grids.small_image_bytes
    assert needed(n, size) <= most < needed(n + 1, size)


@pytest.mark.parametrize(
    ("arch", "processors", "size", "most"),
    [
        *(("sm_75", 40, 4, 652), ("sm_80", 108, 4, 1728), ("sm_80", 108, 8, 1226)),
        *(("sm_120", 128, 4, 1488), ("sm_90", 132, 4, 2324)),
    ],
)
def test_k_stays_on_the_chip_where_all_of_its_blocks_run_at_once(
    arch: str, processors: int, size: int, most: int
) -> None:
    """Every row is a block's and every image a group's; nothing needs more than there is."""
    shared = ptx.LIMITS[arch].shared_per_block
    for images in (1, 2, 8, 37, 4000):
        for n in (1, 7, 8, 9, 49, 196, 602, most):
            by = grids.slices(images, n, size, processors, shared)
            assert by is not None
            shape = grids.resident(n, by, size)
            assert (by.blocks - 1) * by.rows < n <= by.blocks * by.rows
            assert by.groups <= images
            assert shape.blocks == by.groups * by.blocks <= processors
            assert shape.shared <= shared
            assert shape.threads[0] <= 1024
            assert shape.cooperative
    assert grids.slices(1, most + 1, size, processors, shared) is None


def test_images_in_turn_leave_no_multiprocessor_out_that_could_help() -> None:
    """A100: of 8 images of n = 784 four at a time, by 25 blocks each, where six would fit and two
    would be left; one image by 98 blocks of 8 rows, fewer than which no warp has."""
    shared = ptx.LIMITS["sm_80"].shared_per_block
    assert grids.slices(8, 784, 4, 108, shared) == grids.Slices(rows=32, blocks=25, groups=4)
    assert grids.slices(1, 784, 4, 108, shared) == grids.Slices(rows=8, blocks=98, groups=1)


# Up to n = 65,536 the first and the last tile of every row; between them roots only grow.
_ROWS = np.arange(1024)
# Beyond, where a float does not hold the number of a tile.
_BEYOND = np.array([1500, 4999, 5000, 19_999, 30_000])
_ROWS_OF = """
extern "C" __global__ void rows_of(const unsigned* tiles, unsigned* out, unsigned count) {
  const unsigned i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < count) out[i] = triangle_row(tiles[i]);
}
"""


def _ends(rows: Any) -> tuple[Any, Any, Any]:
    """The first and last tiles of rows, where to put their rows, and these."""
    tiles = np.concatenate([rows * (rows + 1) // 2, (rows + 1) * (rows + 2) // 2 - 1])
    return tiles.astype(np.uint32), np.zeros(len(tiles), np.uint32), np.concatenate([rows, rows])


def test_the_row_of_a_tile_is_right_in_cuda_c(cupy: Backend) -> None:
    tiles, out, wanted = _ends(np.concatenate([_ROWS, _BEYOND]))
    module = ptx.compile(cupy.signatures.source() + _ROWS_OF, "sm_80")
    shape = grids.flat(len(tiles))
    module.launch("rows_of", shape.blocks, shape.threads, (tiles, out, np.uint32(len(tiles))))
    np.testing.assert_array_equal(out, wanted)


def test_the_row_of_a_tile_is_right_in_numba(numba: Backend) -> None:
    from numba import cuda

    from demopool.implementations.numba_cuda import kernels

    def rows_of(tiles: Any, out: Any) -> None:
        i = cuda.grid(1)
        if i < tiles.shape[0]:
            out[i] = kernels.triangle_row(tiles[i])

    tiles, out, wanted = _ends(_ROWS)
    numba.start((rows_of, grids.flat(len(tiles)), (tiles, out)))
    np.testing.assert_array_equal(out, wanted)


# --- what the assembler says ---

COUNTED = [one for one in EVERY_KERNEL if one[1] in counted.names(BACKENDS[one[0]])]


@pytest.mark.parametrize(("backend", "name"), COUNTED)
def test_kernels_spill_nothing_and_float32_is_not_worked_on_in_double(
    backend: str, name: str
) -> None:
    """On every architecture; on one of them, each kernel on another one, where time is short. The
    CUDA C is compiled with the options that CuPy gives NVRTC."""
    b, start = BACKENDS[backend], COUNTED.index((backend, name))
    for i in range(cases(len(ptx.ARCHITECTURES), 1)):
        arch = ptx.ARCHITECTURES[(start + i) % len(ptx.ARCHITECTURES)]
        for dtype in FLOATS:
            launch = counted.launch(b, name, dtype=dtype)
            module, shape = b.compiled(launch, arch), launch[1]
            (needs,) = ptx.assemble(module).values()
            assert needs.spilled_bytes == needs.stack_bytes == 0
            assert needs.registers * int(np.prod(shape.threads)) <= 65536
            if arch == ARCH:  # on others the library chooses by what their blocks can have
                most = b.max_shared or grids.SHARED_BYTES
                assert needs.shared_bytes + shape.shared <= max(most, grids.SHARED_BYTES)
            assert needs.shared_bytes <= grids.SHARED_BYTES
            if dtype is np.float32:
                code = [ins for f in module.program.functions.values() for ins in f.code]
                assert not [ins.text for ins in code if "f64" in ins.modifiers]


# --- without a GPU, and with one ---

_LOADED = """
import sys
from demopool.implementations import {package}
{package}.SPECIFICATION.load("cuda", 1)
assert not [name for name in sys.modules if "demopool.ptx" in name or "emulated" in name]
{package}.SPECIFICATION.load("ptx", 1)
assert "demopool.ptx" in sys.modules
"""


def test_the_emulator_is_not_imported_for_a_gpu(b: Backend) -> None:
    program = _LOADED.format(package=f"{b.name}_cuda")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_gpu_is_listed_with_the_reason_why_it_is_not_here(b: Backend) -> None:
    found = {row["backend"]: row for row in dp.backends()}
    assert found[b.ptx]["state"] == "ok"
    if found[f"{b.name}:cuda"]["state"] != "ok":
        assert re.search("GPU|driver|not installed", found[f"{b.name}:cuda"]["reason"])


def test_routes_that_numba_cannot_have_say_why(numba: Backend) -> None:
    ops = dp.backend(numba.ptx)
    for operation, route, word in (
        ("pool_sketch", "fft", "Fourier"),
        ("power", "eigh", "eigen-solver"),
        ("power", "newton", "inverse"),
        ("power_sketch", "svd+moment", "SVD"),
    ):
        assert word in ops.supports(operation, route=route, dtype="float32").reason
