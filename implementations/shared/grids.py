"""Sizes of GPU kernel launches as plain numbers, the same for every library.

A block derives its image and its part of it from its x index alone: y and z are limited to 65,535.
"""

from __future__ import annotations

from typing import NamedTuple

from demopool.errors import InvalidInput

# Products: tiles of 64 x 64 results by 16 x 16 threads; in CUDA C by 64 threads, 256 in double,
# which read 128 bits at a time. Everything else: blocks of 256 threads.
THREADS = 16
TILE = 64
_VECTOR_BYTES = 16
BLOCK = 256
WARP = 32
WARPS = BLOCK // WARP
FEATURES = 8
PIECE = 16 * BLOCK
# Rows of K: of a warp and of a block in an iteration, and of a warp where K is in shared memory.
STEP_ROWS, STEP_BLOCK, SMALL_ROWS = 4, 8, 8
_SMALL_BLOCK = {4: 896, 8: 512}  # threads, by the size of a number

SHARED_BYTES = 48 * 1024
"""Shared memory that a block may use by default."""

MAX_BLOCKS, MAX_THREADS = 2**31 - 1, 1024

MAX_VALUES = 2**32 - 2**20
"""Of an image: kernels count them by 32-bit numbers, in steps that end a little beyond them."""

# Blocks per image in reductions: enough to fill a GPU at batch 1, while each block still reads some
# thousand values.
_MAX_CHUNKS, _VALUES_PER_BLOCK = 64, 4096
_ROWS_PER_SCATTER = 16

# Blocks of a product that the registers of a multiprocessor are enough for, by the size of a
# number, and the columns below which a part of a product is more to write and to add up than it is
# worth. A part has whole groups of columns, which are added up on their own.
_AT_ONCE = {4: 4, 8: 2}
_COLUMNS_OF_A_PART = 128
_GROUP = 32


class Shape(NamedTuple):
    """The shape of a launch: blocks in x, threads per block, dynamic shared memory in bytes, and
    whether all blocks must run at once because they wait for each other."""

    blocks: int
    threads: tuple[int, ...]
    shared: int = 0
    cooperative: bool = False


def flat(values: int) -> Shape:
    """One thread per value."""
    return Shape(-(-values // BLOCK), (BLOCK,))


def per_image(images: int, values: int) -> tuple[int, Shape]:
    """One thread per value of every image: blocks per image, and the launch."""
    _demand_countable(values)
    blocks = -(-values // BLOCK)
    return blocks, Shape(images * blocks, (BLOCK,))


def _demand_countable(values: int) -> None:
    if values > MAX_VALUES:
        raise InvalidInput(
            f"An image, or its descriptor, of {values:,} values is too large for our kernels on a "
            f"GPU, which count up to {MAX_VALUES:,}; give it in parts, or take another backend."
        )


def pieces(images: int, values: int) -> tuple[int, Shape]:
    """Some values of an image for every thread: blocks per image, and the launch."""
    _demand_countable(values)
    blocks = -(-values // PIECE)
    return blocks, Shape(images * blocks, (BLOCK,))


def one_block_each(images: int, shared: int = 0) -> Shape:
    return Shape(images, (BLOCK,), shared)


def tiles(size: int, tile: int = TILE) -> int:
    """Number of tiles along one side of a matrix."""
    return -(-size // tile)


def triangle(size: int, tile: int = TILE) -> int:
    """Number of tiles on and below the diagonal."""
    return tiles(size, tile) * (tiles(size, tile) + 1) // 2


def products(blocks: int) -> Shape:
    """One block per tile."""
    return Shape(blocks, (THREADS, THREADS))


def vector_products(blocks: int, itemsize: int, tile: int = TILE) -> Shape:
    """One block per tile, of threads that read 128 bits at a time."""
    return Shape(blocks, ((tile // 2 * itemsize // _VECTOR_BYTES) ** 2,))


def parts(tiles: int, columns: int, processors: int, itemsize: int, tile: int = TILE) -> int:
    """Blocks that share a tile: as many as run at once, if there are too few tiles for the
    multiprocessors and columns enough to share."""
    at_once = _AT_ONCE[itemsize] * TILE**2 // tile**2
    most = min(at_once * processors // max(tiles, 1), columns // _COLUMNS_OF_A_PART)
    return -(-columns // part_length(columns, most)) if most > 1 else 1


def part_length(columns: int, count: int) -> int:
    """Columns of each of so many parts but the last, which may have fewer."""
    return -(-columns // (count * _GROUP)) * _GROUP


def chunks(images: int, values: int) -> tuple[int, Shape]:
    """Blocks that share the values of one image, and the launch."""
    _demand_countable(values)
    blocks = max(1, min(_MAX_CHUNKS, values // _VALUES_PER_BLOCK))
    return blocks, Shape(images * blocks, (BLOCK,))


def rows(images: int, n: int) -> tuple[int, Shape]:
    """One warp per row: blocks per image, and the launch."""
    blocks = -(-n // WARPS)
    return blocks, Shape(images * blocks, (BLOCK,))


def rows_of_k(images: int, n: int) -> tuple[int, Shape]:
    """Some rows per warp, in blocks that are small so that there are many: blocks per image, and
    the launch."""
    blocks = -(-n // STEP_BLOCK)
    return blocks, Shape(images * blocks, (STEP_BLOCK // STEP_ROWS * WARP,))


def across(n: int, itemsize: int) -> int:
    """From one row of K to the next in shared memory: each begins at a multiple of 128 bits."""
    width = _VECTOR_BYTES // itemsize
    return -(-n // width) * width


def padded_image_bytes(n: int, itemsize: int) -> int:
    """Shared memory for such a K, the weights, sums and targets."""
    return ((n + 1) * across(n, itemsize) + 2 * n) * itemsize


def padded_images(images: int, n: int, itemsize: int) -> Shape:
    """A block for each image, of as many warps as have rows and registers are enough for."""
    threads = min(-(-n // SMALL_ROWS) * WARP, _SMALL_BLOCK[itemsize])
    return Shape(images, (threads,), padded_image_bytes(n, itemsize))


class Slices(NamedTuple):
    """How K stays on the chip: of every image each of ``blocks`` blocks keeps ``rows`` rows, and
    ``groups`` of so many blocks take the images in turn."""

    rows: int
    blocks: int
    groups: int


def slices(images: int, n: int, itemsize: int, processors: int, max_shared: int) -> Slices | None:
    """A block for each multiprocessor, so that all run at once; None where K does not fit."""
    most = _rows_that_fit(n, itemsize, max_shared)
    fewest = -(-n // most) if most else processors + 1
    if fewest > processors:
        return None
    rounds = -(-images // min(images, processors // fewest))
    groups = -(-images // rounds)
    rows = _whole_warps(-(-n // (processors // groups)))
    return Slices(rows, -(-n // rows), groups)


def _rows_that_fit(n: int, itemsize: int, max_shared: int) -> int:
    """Beside the weights, in whole warps."""
    return max(max_shared // (across(n, itemsize) * itemsize) - 1, 0) // SMALL_ROWS * SMALL_ROWS


def _whole_warps(rows: int) -> int:
    return -(-rows // SMALL_ROWS) * SMALL_ROWS


def resident(n: int, of: Slices, itemsize: int) -> Shape:
    """A block for every slice."""
    shared = (of.rows + 1) * across(n, itemsize) * itemsize
    return Shape(of.groups * of.blocks, (BLOCK,), shared, cooperative=True)


def columns(images: int, d: int) -> tuple[int, Shape]:
    """One block per 32 columns, with 8 threads per column: blocks per image, and the launch."""
    blocks = -(-d // WARP)
    return blocks, Shape(images * blocks, (WARP, WARPS))


def small_image_bytes(n: int, itemsize: int) -> int:
    """Shared memory for K, two weight vectors and the targets."""
    return (n * n + 3 * n) * itemsize


def sketches(features: int, k: int) -> tuple[int, Shape]:
    """One thread per bin for a group of features: blocks per group, and the launch."""
    return per_image(-(-features // FEATURES), k)


def sorted_scatters(
    images: int, d: int, k: int, itemsize: int, max_shared: int
) -> tuple[int, Shape]:
    """Blocks per image, and the launch, of blocks that sort rows and write a sketch each; bins and
    two rows are in shared memory if they fit. A block has no fewer values than bins, or sketches
    would be more to write and to add up than there is to read."""
    rows = max(_ROWS_PER_SCATTER, -(-k // max(d, 1)))
    blocks = max(1, -(-d // rows))
    shared = (k + 2 * d) * itemsize
    return blocks, Shape(images * blocks, (BLOCK,), shared if shared <= max_shared else 0)
