"""How programs share the work: chunks of images, and tiles of symmetric matrices."""

import triton
import triton.language as tl

from .arithmetic import MAXIMUM


@triton.jit
def own_chunk(values, chunks, CHUNK: tl.constexpr):
    """Of (images, values) the image of this program, where its chunk of it begins in memory, and
    how many values that has."""
    program = tl.program_id(0).to(tl.int64)
    image = program // chunks
    start = (program - image * chunks) * CHUNK
    return image, image * values + start, tl.minimum(values - start, CHUNK).to(tl.int32)


@triton.jit
def largest_part(parts, image, chunks, CHUNKS: tl.constexpr):
    """The largest of an image's parts."""
    found = tl.full((CHUNKS,), 0.0, tl.float32)
    for start in range(0, chunks, CHUNKS):
        chunk = start + tl.arange(0, CHUNKS)
        some = tl.load(parts + image * chunks + chunk, mask=chunk < chunks, other=0.0)
        found = tl.maximum(found, some)
    return tl.reduce(found, 0, MAXIMUM)


@triton.jit
def row_of_triangle(number):
    """The row of a tile in a triangle of tiles, whose rows have 1, 2, 3, ... of them."""
    guess = ((tl.sqrt(8.0 * number.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
    guess = tl.where(guess * (guess + 1) // 2 > number, guess - 1, guess)
    return tl.where((guess + 1) * (guess + 2) // 2 <= number, guess + 1, guess)


@triton.jit
def store_twice(out, tile, first, second, side, TILE: tl.constexpr):
    """A tile of a symmetric ``side`` x ``side`` matrix, and its mirror image; of a tile on the
    diagonal only the lower half is taken, so that the halves are the same bits."""
    i, j = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    kept = (first + i < side) & (first + i >= second + j)
    start, mirrored = first.to(tl.int64) * side + second, second.to(tl.int64) * side + first
    tl.store(out + start + i * side + j, tile, mask=kept)
    tl.store(out + mirrored + tl.trans(j) * side + tl.trans(i), tl.trans(tile), mask=tl.trans(kept))
