"""Gamma-democratic weights; ``demopool.reference.weights`` has the mathematics."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from demopool.implementations.shared import scaling

from .launcher import Launcher
from .sizes import (
    BLOCK,
    CHUNK,
    CHUNKS,
    COLUMNS,
    DEPTH,
    EXACT,
    ROWS,
    TILE,
    blocks,
    triangle,
    warps_of,
)

_SMALL = 128
"""Rows of K that one program holds in its registers."""


def dense(
    on: Launcher,
    X: Tensor,
    *,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
    ordinary: bool = False,
    precision: str = EXACT,
    tile: int = TILE,
) -> Tensor:
    """K in memory, made with its row sums; then all iterations in one program where that can hold
    K, and otherwise a launch for each but the first, which needs the row sums only."""
    images, n, d = X.shape
    is_scaled = not ordinary and X.dtype != torch.float16
    X, exponents = _in_range(on, X) if is_scaled else _as_it_is(X)
    K, a = on.empty(images, n, n), on.empty(images, n)
    tiles = blocks(n, tile)
    sums = on.empty(images, tiles, n)
    on.launch(
        "gram", images * triangle(tiles), X, K, sums, n, d, tiles,
        ORDER=order, TILE=tile, DEPTH=DEPTH, PRECISION=precision, num_warps=warps_of(tile),
    )  # fmt: skip
    powers = _parts(Fraction(gamma)) + _parts(Fraction(tau))
    back = _parts(scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order))
    if n <= _SMALL:
        side = max(16, 1 << (n - 1).bit_length())
        warps = 8 if side == _SMALL else 4
        on.launch(
            "small_image", images, K, a, exponents, n, iterations, *powers, *back,
            SIDE=side, num_warps=warps,
        )  # fmt: skip
        return a
    targets, other = on.empty(images, n), on.empty(images, n)
    of_rows = blocks(n, BLOCK)
    on.launch(
        "first_step", images * of_rows, sums, targets, a, n, tiles, of_rows, iterations, *powers,
        ROWS=BLOCK,
    )  # fmt: skip
    owners = blocks(n, ROWS)
    for _ in range(iterations - 1):
        on.launch(
            "step", images * owners, K, targets, a, other, n, owners, *powers[2:],
            ROWS=ROWS, COLUMNS=COLUMNS,
        )  # fmt: skip
        a, other = other, a
    if is_scaled:
        on.launch("restored", images * of_rows, a, exponents, n, of_rows, *back, ROWS=BLOCK)
    return a


def _as_it_is(X: Tensor) -> tuple[Tensor, Tensor]:
    """Ordinary features, and any in float16: its largest and smallest numbers, squared twice and
    summed, fit float32, and a GPU multiplies them exactly on its tensor cores. bfloat16 goes to
    float32: Triton's interpreter cannot multiply it, so it would not be verified."""
    X = X.float() if X.dtype == torch.bfloat16 else X
    return X, torch.zeros(X.shape[0], dtype=torch.int32, device=X.device)


def _in_range(on: Launcher, X: Tensor) -> tuple[Tensor, Tensor]:
    """A copy in float32 whose largest value in every image is near 1, and the exponents of the
    scale."""
    images, n, d = X.shape
    values, chunks = n * d, blocks(n * d, CHUNK)
    parts, out = on.empty(images, chunks), on.empty(*X.shape)
    exponents = on.empty(images, dtype=torch.int32)
    on.launch("magnitudes", images * chunks, X, parts, values, chunks, CHUNK=CHUNK, num_warps=8)
    on.launch(
        "in_range", images * chunks, X, parts, out, exponents, values, chunks,
        CHUNK=CHUNK, CHUNKS=CHUNKS, num_warps=8,
    )  # fmt: skip
    return out, exponents


def _parts(power: Fraction) -> tuple[float, float]:
    """With few digits, and the rest."""
    return scaling.in_two_parts(power, np.float32)
