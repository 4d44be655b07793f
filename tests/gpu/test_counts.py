"""What the kernels do, counted: bytes, banks, and who does the work.

Counts know no caches: what a warp asks for is counted whenever it asks. So bars are on the arrays
that no cache holds, and what is read again and again is said to be small.
"""

from __future__ import annotations

import json
from typing import Any

import effort
import numpy as np
import pytest

from demopool import ptx
from demopool.implementations.shared import grids

from . import cases, counted
from .arrays import EVEN, KernelSizes, lower
from .backends import BACKENDS, EVERY_KERNEL, Backend, Launch
from .made import Made

SECTOR = 32
STEP = {"cupy": 8, "numba": 16}
"""Columns of the factors that a product has in shared memory at a time."""

WORD = 4


@pytest.fixture(scope="module", params=list(BACKENDS))
def counts(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param, counted.counts(request.param, every=effort.cases(1, 2))


class Done:
    """A launch, what it did, and its arrays and their traffic by the names the source has."""

    def __init__(self, b: Backend, launch: Launch, counts: ptx.Counts | None = None) -> None:
        self.launch = launch
        self.counts = counts or b.start(launch)
        self.arrays: dict[str, Any] = {}
        self.traffic: dict[str, Any] = {}
        for i, (name, arg) in enumerate(zip(b.parameters(launch), launch[2], strict=True)):
            if isinstance(arg, np.ndarray) and f"argument {i}" in self.counts.traffic:
                self.arrays[name] = arg
                self.traffic[name] = self.counts.traffic[f"argument {i}"]


def _done(b: Backend, name: str, z: KernelSizes = EVEN) -> Done:
    return Done(b, *counted.started(b, name, z))


def test_every_kernel_has_a_launch_and_cases(b: Backend) -> None:
    """Those of Numba that only set, copy or finish something are not counted."""
    there = {name.partition(",")[0] for name in counted.names(b)}
    uncounted = {"bounds", "copied", "fill", "finish", "start"} if b.name == "numba" else set()
    assert there == set(b.kernels) - uncounted
    assert b.kernels == b.in_source
    assert all(cases.launches(b, kernel) for kernel in b.kernels)


def test_counts_are_what_they_were(counts: tuple[str, dict[str, Any]]) -> None:
    """A kernel that gets worse, or better, shows here: `python -m tools.gpu counts --write`."""
    backend, found = counts
    kept = json.loads(counted.file(backend).read_text())
    assert kept.keys() == set(counted.names(BACKENDS[backend]))
    assert found == {name: kept[name] for name in found}


def test_no_thread_works_through_an_image_alone(counts: tuple[str, dict[str, Any]]) -> None:
    """Instructions by warps are at most some times those of an even share. Least even is
    count_sketch, 19 of 32: bins have different numbers of values, in scatter_far too. Tiles on the
    diagonal are halves, which a kernel that only copies them notices, and so are rows of a triangle
    on average, of 128 values here. Of a row of 64 features 16 lanes read four each,
    and where a lane scales its sum again the others wait."""
    backend, found = counts
    for name, one in found.items():
        threads = one["thread_instructions"] / max(one["instructions"], 1)
        uneven = {"count_sketch": 18, "scatter_far": 27, "from_triangle": 29, "from_parts": 29}
        uneven |= {"triangle_sums": 26, "normalized_triangle": 29, "outer, with its norm": 29}
        uneven |= {"free_sums": 26, "free_step, doubtful": 26, "power_sums": 29}
        least = 16 if backend == "numba" else uneven.get(name, 30)
        assert threads > least, name


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


@pytest.mark.parametrize(
    ("backend", "name"),
    [one for one in EVERY_KERNEL if one[1] in SIZES and one != ("numba", "small_image")],
)
def test_nine_of_ten_bytes_that_move_were_asked_for(backend: str, name: str) -> None:
    assert _done(BACKENDS[backend], name, SIZES[name]).counts.useful_share >= 0.9


def test_short_features_leave_free_step_four_of_five(cupy: Backend) -> None:
    """d = 64: 512 bytes of X and XM for a row, and four sectors for one word each; without the
    diagonal, which is in a cache."""
    done = _done(cupy, "free_step")
    cached = done.traffic["diagonal"]
    moved = done.counts.global_bytes - SECTOR * cached.sectors
    assert 0.8 < (done.counts.useful_bytes - cached.useful_bytes) / moved < 0.87


def test_the_gram_kernel_reads_its_tiles_and_writes_k_once(b: Backend) -> None:
    done = _done(b, "gram")
    X, K = done.arrays["X"], done.arrays["K"]
    least = done.launch[1].blocks * 2 * grids.TILE * X.shape[2] * WORD
    assert done.traffic["X"].loaded_bytes == least
    assert done.traffic["K"].stored_bytes == K.nbytes
    assert done.counts.global_bytes <= 1.2 * (least + K.nbytes)


def test_a_triangle_is_read_once_and_k_written_once(cupy: Backend) -> None:
    done = _done(cupy, "from_triangle", SIZES["from_triangle"])
    K, moved = done.arrays["K"], done.traffic["K"]
    images, n, _ = K.shape
    triangle = images * n * (n + 1) // 2 * WORD
    assert moved.loaded_bytes == triangle
    assert moved.stored_bytes == K.nbytes
    assert SECTOR * moved.sectors <= 1.2 * (triangle + K.nbytes)


def test_a_triangle_that_is_only_mirrored_is_not_written_again(cupy: Backend) -> None:
    n, ones = 256, np.ones((1, 256, 256), np.float32)
    done = Done(cupy, Made(cupy, "from_triangle")(lower(ones), cupy.launches.KEEP))
    assert done.traffic["K"].loaded_bytes == n * (n + 1) // 2 * WORD
    assert done.traffic["K"].stored_bytes == n * (n - 1) // 2 * WORD
    assert done.counts.atomics == 0


def test_an_iteration_reads_each_element_of_k_once(b: Backend) -> None:
    """The weights it reads for every row, or for four, n words that a cache holds."""
    done = _done(b, "step")
    K, a, out = (done.arrays[name] for name in ("K", "a", "out"))
    read, again = done.traffic["K"], done.traffic["a"]
    assert read.loaded_bytes == SECTOR * read.sectors == K.nbytes
    together = grids.STEP_ROWS if b.name == "cupy" else 1
    assert again.loaded_bytes == K.nbytes // together + out.size * WORD
    assert done.traffic["out"].stored_bytes == out.nbytes
    once = done.counts.global_bytes - SECTOR * again.sectors + a.nbytes
    assert once <= 1.2 * (K.nbytes + 3 * out.nbytes)
    assert done.counts.flops >= 2 * K.size


@pytest.mark.parametrize("iterations", [2, 4, 10])
def test_a_small_image_reads_k_once_for_all_iterations(b: Backend, iterations: int) -> None:
    K, targets, a = counted.launch(b, "small_image")[2][:3]
    done = Done(b, Made(b, "small_image")(K, targets, a, 0.5, iterations))
    read = done.traffic
    assert read["K"].loaded_bytes == SECTOR * read["K"].sectors == K.nbytes
    assert read["targets"].loaded_bytes == targets.nbytes
    assert read["a"].loaded_bytes == read["a"].stored_bytes == a.nbytes
    assert done.counts.flops >= (iterations - 1) * 2 * K.size


@pytest.mark.parametrize("iterations", [2, 5])
def test_k_on_the_chip_is_read_once_for_all_iterations(cupy: Backend, iterations: int) -> None:
    """Blocks read all weights in every iteration, the others' too, and write their own."""
    K, targets, a, _, _ = counted.launch(cupy, "resident")[2][:5]
    by = grids.Slices(32, 4, 1)
    done = Done(cupy, Made(cupy, "resident")(K, targets, a, by, 0.5, iterations))
    read = done.traffic["K"]
    assert read.loaded_bytes == SECTOR * read.sectors == K.nbytes
    both = [done.traffic[name] for name in ("a", "other")]
    assert sum(one.loaded_bytes for one in both) == (iterations - 1) * by.blocks * a.nbytes
    assert sum(one.stored_bytes for one in both) == (iterations - 1) * a.nbytes
    assert done.counts.flops >= (iterations - 1) * 2 * K.size


def test_an_iteration_without_k_reads_each_feature_once(cupy: Backend) -> None:
    """The diagonal it reads for every row, d words that a cache holds."""
    done = _done(cupy, "free_step", SIZES["free_step"])
    X = done.arrays["X"]
    for name in ("X", "XM", "diagonal"):
        read = done.traffic[name]
        assert read.loaded_bytes == SECTOR * read.sectors == X.nbytes
    again = SECTOR * done.traffic["diagonal"].sectors
    once = done.counts.global_bytes - again + done.arrays["diagonal"].nbytes
    assert once <= 1.2 * (2 * X.nbytes)


def test_a_doubtful_row_reads_all_features_and_no_other_does(cupy: Backend) -> None:
    """It has read its own row before it is doubted, and does so again with every four others."""
    done = _done(cupy, "free_step, doubtful")
    X, XM = done.arrays["X"], done.arrays["XM"]
    doubtful = int((np.vecdot(X, XM) < 0).sum())
    assert doubtful == X.shape[0] * X.shape[1] // 8
    again = X[0].nbytes + X[0].nbytes // grids.STEP_ROWS
    assert done.traffic["X"].loaded_bytes == X.nbytes + doubtful * again
    assert done.traffic["XM"].loaded_bytes == XM.nbytes


def test_a_doubtful_row_is_the_work_of_a_block(cupy: Backend) -> None:
    """One row of 256: its block waits once more, and each of its warps has, on average, less
    than 12 times the work of a row more."""
    X = np.ones((1, 256, 64), np.float32)
    XM, diagonal, sums = X.copy(), np.ones((1, 64), np.float32), np.zeros((1, 256), np.float32)
    usual = Done(cupy, cupy.launches.free_sums(X, XM, diagonal, sums, 0.5)).counts
    XM[0, 3] *= -1
    done = Done(cupy, cupy.launches.free_sums(X, XM, diagonal, sums, 0.5))
    assert sums[0, 3] == 256 * 64**2
    assert done.counts.barriers == usual.barriers + 1
    more = (done.counts.instructions - usual.instructions) / grids.WARPS
    assert more < 12 * usual.instructions / 256


def test_a_row_that_is_not_doubtful_costs_two_words_and_its_place_in_the_moment(
    numba: Backend,
) -> None:
    """Each warp of its block reads both, 32 bytes each for up to 8 tiles of columns, one thread
    writes their sum, and the block is gone. In the tiles of X M the diagonal of M is read once for
    each row of tiles, a sector for each value."""
    X, v, forms = counted.launch(numba, "exact_rows")[2][:3]
    for tiles in (1, 8):
        parts = np.ones((*forms.shape[:3], tiles), np.float32)
        done = Done(numba, Made(numba, "exact_rows")(X, v, parts, 0.5))
        assert done.traffic.keys() == {"forms", "sums"}
        assert done.counts.global_sectors == (2 * grids.WARPS + 1) * X.shape[0] * X.shape[1]
    assert done.counts.barriers == 0
    done = _done(numba, "row_forms")
    blocks, tile = done.launch[1].blocks, grids.TILE * X.shape[2] * WORD
    assert done.traffic["M"].loaded_bytes == blocks * (tile + grids.TILE * WORD)
    assert done.traffic["M"].sectors == blocks * (tile // SECTOR + grids.TILE)


def test_a_descriptor_that_fits_is_read_once_and_written_once(b: Backend) -> None:
    done = _done(b, "normalized_at_once")
    V = done.arrays["V"]
    assert done.traffic["V"].loaded_bytes == done.traffic["out"].stored_bytes == V.nbytes
    assert done.counts.global_bytes == 2 * V.nbytes


@pytest.mark.parametrize(("name", "array"), [("scaled", "X"), ("normalized", "V")])
def test_element_wise_kernels_read_once_and_write_once(b: Backend, name: str, array: str) -> None:
    """And a number or two of their image for each warp, 32 bytes of 128."""
    done = _done(b, name)
    size = done.arrays[array].nbytes
    assert done.traffic[array].loaded_bytes == done.traffic["out"].stored_bytes == size
    assert done.counts.global_bytes <= 1.25 * 2 * size


@pytest.mark.parametrize("name", ["largest", "power_sums"])
def test_reductions_read_once_and_write_few_numbers(b: Backend, name: str) -> None:
    done = _done(b, name)
    assert done.traffic["V"].loaded_bytes == done.arrays["V"].nbytes
    assert done.counts.global_bytes <= 1.2 * done.arrays["V"].nbytes


def test_a_matrix_is_normalised_in_one_reading_of_a_triangle(cupy: Backend) -> None:
    """And one writing: 2 passes over the matrix with the triangle that `outer` has written, where
    there were 5. The sum comes in two numbers for each tile, which a cache holds. From a library it
    does not come: that is one more reading of the triangle."""
    d, triangle = 256, 256 * 257 // 2 * WORD
    X = np.ones((1, 8, d), np.float32)
    first = Done(cupy, Made(cupy, "outer")(X, None, cupy.launches.LOWER_1))
    A, sums = first.arrays["A"], first.arrays["norm_sums"]
    assert first.traffic["A"].stored_bytes == triangle
    assert first.traffic["norm_sums"].stored_bytes == sums.nbytes == 2 * grids.triangle(d) * WORD
    library = Done(cupy, Made(cupy, "triangle_sums")(A, chunks=16))
    assert library.traffic["S"].loaded_bytes == triangle
    last = Done(cupy, cupy.launches.normalized_triangle(A, sums, A, 1))
    assert last.traffic["S"].loaded_bytes == triangle
    assert last.traffic["S"].stored_bytes == A.nbytes
    assert last.counts.global_bytes <= 1.2 * (triangle + A.nbytes)


def test_the_sum_for_the_norm_costs_the_product_little(cupy: Backend) -> None:
    """Of 64 features, less than a tenth of the instructions more, without the mirror image; and a
    barrier for each warp."""
    usual, normed = (_done(cupy, f"outer{more}") for more in ("", ", with its norm"))
    assert normed.counts.instructions <= 1.1 * usual.counts.instructions
    warps = usual.launch[1].blocks * usual.launch[1].threads[0] // grids.WARP
    assert normed.counts.barriers <= usual.counts.barriers + warps


def test_a_count_sketch_reads_features_once_and_writes_bins_once(cupy: Backend) -> None:
    """And, for each 8 features, the same k + 1 starts; for each feature d places and signs: 2.4 kB
    that a cache holds. Of features, which bins pick out of order, a warp wants 4 bytes of a sector
    at a time: those of one feature, d words, are in a cache too."""
    done = _done(cupy, "count_sketch")
    X, out, written = done.arrays["X"], done.arrays["out"], done.traffic["out"]
    assert done.traffic["X"].loaded_bytes == done.traffic["order"].loaded_bytes == X.nbytes
    assert written.stored_bytes == SECTOR * written.sectors == out.nbytes
    assert sum(done.arrays[name].nbytes for name in ("starts", "order", "signs")) < 2.5e3
    groups = X.shape[0] * X.shape[1] // grids.FEATURES
    assert done.traffic["starts"].loaded_bytes == 2 * groups * EVEN.k * WORD
    # From memory, with what caches hold counted once.
    assert sum(array.nbytes for array in done.arrays.values()) <= 1.2 * (X.nbytes + out.nbytes)


@pytest.mark.parametrize("name", ["scatter", "scatter_far"])
def test_a_matrix_is_scattered_in_one_reading(b: Backend, name: str) -> None:
    """Where shared memory cannot hold a row it is read in the order of its bins: a row of M, d
    words, is in a cache then."""
    done = _done(b, name)
    read, M = done.traffic["M"], done.arrays["M"]
    assert read.loaded_bytes == M.nbytes
    assert SECTOR * read.sectors <= (WORD * 2 if name == "scatter_far" else 1) * M.nbytes


def test_sketches_of_blocks_are_no_more_to_write_than_there_is_to_read() -> None:
    for d, k in ((64, 512), (512, 8192), (2048, 8192), (512, 65536), (64, 8192)):
        blocks, _ = grids.sorted_scatters(1, d, k, WORD, 0)
        assert blocks == 1 or blocks * k <= d * d


# --- shared memory ---


def test_the_inner_loop_of_products_has_no_bank_conflicts(b: Backend) -> None:
    """Twice as long features: what they cost more is the inner loop, without the mirror image. In
    CUDA C a thread stores 16 words, and loads 4 x 128 bits for 64 products, of each column. With
    Numba two rows of 17 words share a bank when they are stored, one pass more for each of 8 stores
    by 8 warps; and it loads 8 words for 16 products."""
    short, long = (_done(b, "gram", EVEN._replace(d=d)) for d in (64, 128))
    blocks = long.launch[1].blocks
    steps = blocks * 64 // STEP[b.name]
    conflicts, stores, loads, warps = {"cupy": (0, 16, 4, 2), "numba": (64, 8, 8, 8)}[b.name]
    assert long.counts.bank_conflicts - short.counts.bank_conflicts == steps * conflicts
    more = long.counts.shared_requests - short.counts.shared_requests
    assert more == steps * warps * (stores + loads * STEP[b.name])
    assert long.counts.flops - short.counts.flops >= blocks * 2 * grids.TILE**2 * 64


@pytest.mark.parametrize(
    "name", ["gram", "outer", "outer, with its norm", "gram_parts", "from_parts", "from_triangle"]
)
def test_tiles_and_their_mirror_images_have_no_bank_conflicts(cupy: Backend, name: str) -> None:
    assert _done(cupy, name).counts.shared_requests > 0
    assert _done(cupy, name).counts.bank_conflicts == 0


def test_blocks_that_share_a_tile_share_its_work(b: Backend) -> None:
    """Two of them read what one would, and do its products; their parts are written once and read
    once, 64 x 64 words each. CuPy's fetch a slab too many, of the columns of the next part."""
    whole, parts = _done(b, "gram"), _done(b, "gram_parts")
    tiles = whole.launch[1].blocks
    assert parts.launch[1].blocks == 2 * tiles
    slab = 2 * grids.TILE * STEP["cupy"] * WORD if b.name == "cupy" else 0
    read = parts.traffic["X"].loaded_bytes
    assert read == whole.traffic["X"].loaded_bytes + tiles * slab
    written, size = parts.traffic["parts"], parts.arrays["parts"].nbytes
    assert written.stored_bytes == SECTOR * written.sectors == size
    added = _done(b, "from_parts")
    read = added.traffic["parts"]
    assert read.loaded_bytes == SECTOR * read.sectors == size
    assert added.traffic["C"].stored_bytes == added.arrays["C"].nbytes


def test_an_iteration_in_shared_memory_takes_few_passes_over_it(cupy: Backend) -> None:
    """n = 128 words are four passes, for each row of K and for the weights of each eight rows,
    whose sums are one pass more. Then 32 threads read a sum, a target and a weight, and write one.
    Rows of 197 words, which are padded, have no conflicts either."""
    n = EVEN.n
    two, ten = (_small_image(cupy, n, iterations).counts for iterations in (2, 10))
    per_iteration = (ten.shared_wavefronts - two.shared_wavefronts) / 8
    assert per_iteration == 4 * n + 4 * n // grids.SMALL_ROWS + n // grids.SMALL_ROWS + 4 * n // 32
    assert ten.barriers - two.barriers == 8 * 2
    assert _small_image(cupy, 197, 2).counts.bank_conflicts == 0


def _small_image(b: Backend, n: int, iterations: int) -> Done:
    K, targets, a = np.ones((1, n, n), np.float32), *np.ones((2, 1, n), np.float32)
    return Done(b, b.launches.small_image(K, targets, a, 0.5, iterations))


@pytest.mark.parametrize(
    ("backend", "name"),
    [one for one in EVERY_KERNEL if one[1] in ("small_image", "resident", "normalized_at_once")],
)
def test_what_stays_in_shared_memory_has_no_bank_conflicts(backend: str, name: str) -> None:
    found: ptx.Counts = _done(BACKENDS[backend], name).counts
    assert found.shared_requests > 0
    assert found.bank_conflicts == 0
