"""Weighted pooling and the final normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from .launcher import Launcher
from .sizes import BLOCK, CHUNK, CHUNKS, DEPTH, EXACT, TILE, blocks, split, triangle, warps_of

_WARPS = 16
"""Of a norm: with fewer, a thread has more roots and quotients than its registers hold."""


def direct(
    on: Launcher,
    X: Tensor,
    a: Tensor | None,
    *,
    order: int,
    precision: str = EXACT,
    tile: int = TILE,
) -> Tensor:
    """``X^T diag(a) X``, or ``sum_i a_i x_i`` for order 1. Where that is too little work for many
    programs at a time, each sums some of the rows, and a second kernel adds."""
    images, n, d = X.shape
    if order == 2 and (a is not None or X.dtype == torch.bfloat16):
        X = X.float()  # Triton's interpreter cannot multiply bfloat16: it would not be verified
    weights = X if a is None else a  # not read then
    shape = (d,) if order == 1 else (d, d)
    tiles = blocks(d, tile)
    programs = images * (tiles if order == 1 else triangle(tiles))
    splits, rows = split(n, programs)
    parts = on.empty(images, splits, *shape)
    sizes = (n, d, tiles, splits, rows)
    if order == 1:
        on.launch(
            "weighted_sum", programs * splits, X, weights, parts, *sizes,
            WEIGHTED=a is not None, COLUMNS=tile, DEPTH=DEPTH,
        )  # fmt: skip
    else:
        on.launch(
            "outer", programs * splits, X, weights, parts, *sizes,
            WEIGHTED=a is not None, TILE=tile, DEPTH=DEPTH, PRECISION=precision,
            num_warps=warps_of(tile),
        )  # fmt: skip
    if splits == 1:
        return parts.reshape(images, *shape)
    out = on.empty(images, *shape)
    values = d**order
    each = blocks(values, BLOCK)
    on.launch("summed", images * each, parts, out, values, splits, each, BLOCK=BLOCK)
    return out


def normalize(on: Launcher, V: Tensor, *, kind: str, overwrite: bool = False) -> Tensor:
    """Signed square root and l2 norm, or l2 alone, of every row of a matrix."""
    if kind == "none":
        return V.to(torch.float32, copy=True)
    images, values = V.shape
    chunks = blocks(values, CHUNK)
    largest, sums = on.empty(images, chunks), on.empty(images, chunks)
    out = V if overwrite and V.dtype == torch.float32 else on.empty(images, values)
    root = kind == "signed-sqrt-l2"
    on.launch(
        "norm_parts", images * chunks, V, largest, sums, values, chunks,
        ROOT=root, CHUNK=CHUNK, num_warps=_WARPS,
    )  # fmt: skip
    on.launch(
        "normalized", images * chunks, V, out, largest, sums, values, chunks,
        ROOT=root, CHUNK=CHUNK, CHUNKS=CHUNKS, num_warps=_WARPS,
    )  # fmt: skip
    return out
