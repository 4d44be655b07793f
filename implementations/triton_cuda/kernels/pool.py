"""Pooling and the final norm."""

import triton
import triton.language as tl

from .arithmetic import ADD, MAXIMUM
from .parts import largest_part, own_chunk, row_of_triangle, store_twice


@triton.jit
def outer(
    X, a, out, n, d, tiles, splits, rows, WEIGHTED: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X^T diag(a) X by one triangle of tiles; ``out`` is (images, splits, d, d), and each split
    sums so many ``rows``. With weights X is float32: half precision would round the products with
    them, and of what is widened here Triton makes TF32 on Blackwell in spite of "ieee"."""
    pairs = tiles * (tiles + 1) // 2
    part = tl.program_id(0) // pairs  # of an image and a split
    number = tl.program_id(0) - part * pairs
    row = row_of_triangle(number)
    column = number - row * (row + 1) // 2
    image = (part // splits).to(tl.int64)
    first = (part % splits) * rows
    i, j = row * TILE + tl.arange(0, TILE), column * TILE + tl.arange(0, TILE)
    depth = tl.arange(0, DEPTH)
    at = depth[:, None] * d + tl.arange(0, TILE)[None, :]
    total = tl.full((TILE, TILE), 0.0, tl.float32)
    for start in range(first, tl.minimum(first + rows, n), DEPTH):
        inside = start + depth < n
        some = X + (image * n + start) * d
        of_rows, of_columns = inside[:, None] & (i < d)[None, :], inside[:, None] & (j < d)[None, :]
        left = tl.load(some + row * TILE + at, mask=of_rows, other=0.0)
        right = tl.load(some + column * TILE + at, mask=of_columns, other=0.0)
        if WEIGHTED:
            weights = tl.load(a + image * n + start + depth, mask=inside, other=0.0)
            left *= weights[:, None]
        total = tl.dot(tl.trans(left), right, total, input_precision=PRECISION)
    store_twice(out + part.to(tl.int64) * d * d, total, row * TILE, column * TILE, d, TILE)


@triton.jit
def weighted_sum(
    X, a, out, n, d, blocks, splits, rows, WEIGHTED: tl.constexpr, COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """sum_i a_i x_i; ``out`` is (images, splits, d), and each split sums so many ``rows``."""
    part = tl.program_id(0) // blocks
    image = (part // splits).to(tl.int64)
    first = (part % splits) * rows
    j = (tl.program_id(0) % blocks) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    total = tl.full((DEPTH, COLUMNS), 0.0, tl.float32)
    for start in range(first, tl.minimum(first + rows, n), DEPTH):
        i = start + depth
        inside = (i < n)[:, None] & (j < d)[None, :]
        x = tl.load(X + (image * n + i)[:, None] * d + j[None, :], mask=inside, other=0.0)
        if WEIGHTED:
            weights = tl.load(a + image * n + i, mask=i < n, other=0.0)
            total += x.to(tl.float32) * weights[:, None]
        else:
            total += x.to(tl.float32)
    tl.store(out + part.to(tl.int64) * d + j, tl.reduce(total, 0, ADD), mask=j < d)


@triton.jit
def summed(parts, out, values, splits, blocks, BLOCK: tl.constexpr):
    """The sum over splits, in their order: ``parts`` is (images, splits, values)."""
    image, start, count = own_chunk(values, blocks, BLOCK)
    i = tl.arange(0, BLOCK)
    total = tl.full((BLOCK,), 0.0, tl.float32)
    for split in range(splits):
        before = (image * (splits - 1) + split) * values  # in parts, where out has none
        total += tl.load(parts + start + before + i, mask=i < count, other=0.0)
    tl.store(out + start + i, total, mask=i < count)


@triton.jit
def norm_parts(
    V, largest, sums, values, chunks, ROOT: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Of each chunk of an image the largest |v| = m, and the sum of |v| / m, or of its square
    without ``ROOT``: in range for any v."""
    _, start, count = own_chunk(values, chunks, CHUNK)
    i = tl.arange(0, CHUNK)
    v = tl.abs(tl.load(V + start + i, mask=i < count, other=0.0).to(tl.float32))
    m = tl.reduce(v, 0, MAXIMUM)
    share = tl.div_rn(v, tl.where(m > 0.0, m, 1.0))
    tl.store(largest + tl.program_id(0), m)
    tl.store(sums + tl.program_id(0), tl.reduce(share if ROOT else share * share, 0, ADD))


@triton.jit
def normalized(
    V, out, largest, sums, values, chunks, ROOT: tl.constexpr, CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """Signed square roots of norm 1, or without ``ROOT`` the values with norm 1; ``out`` may be
    ``V``. An image of zeros stays so."""
    image, first, count = own_chunk(values, chunks, CHUNK)
    m = largest_part(largest, image, chunks, CHUNKS)
    m = tl.where(m > 0.0, m, 1.0)
    total = tl.full((CHUNKS,), 0.0, tl.float32)
    for start in range(0, chunks, CHUNKS):
        k = start + tl.arange(0, CHUNKS)
        share = tl.div_rn(tl.load(largest + image * chunks + k, mask=k < chunks, other=0.0), m)
        part = tl.load(sums + image * chunks + k, mask=k < chunks, other=0.0)
        total += part * (share if ROOT else share * share)
    norm = tl.reduce(total, 0, ADD)
    norm = tl.where(norm > 0.0, norm, 1.0)
    i = tl.arange(0, CHUNK)
    v = tl.load(V + first + i, mask=i < count, other=0.0).to(tl.float32)
    share = tl.div_rn(tl.abs(v), m)
    size = tl.sqrt_rn(tl.div_rn(share, norm)) if ROOT else tl.div_rn(share, tl.sqrt_rn(norm))
    tl.store(out + first + i, tl.where(v < 0.0, -size, size), mask=i < count)
