"""What `dense` of `cupy:cuda` takes at least by data sheets, before and now: the table of a page.

Sizes of launches are those of the backend, and passes over shared memory are counted by executing
the kernel; those of before were counted so too. Nothing here was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from demopool import ptx
from demopool.implementations.cupy_cuda import emulated, launches, signatures
from demopool.implementations.shared import grids

IMAGES, ITERATIONS, WORD = 8, 10, 4
SIZES = ((784, 512), (196, 2048), (3136, 512), (12544, 64))

PRODUCTS = 64
"""Of a warp, for which passes over shared memory are counted; a tile has 2 for each column."""

BEFORE_PRODUCT = 36
"""Passes for them with 4 x 4 results for each thread, one word at a time."""

BEFORE_SMALL = 3332
"""Passes for one iteration of an image of n = 196 in one block of 256 threads."""

NONE = "-"
"""What a second-level cache holds: data sheets do not state its bandwidth."""

CAPTION = f"""\
Microseconds at least: `before, now`, or one number where nothing has changed; `{NONE}` where the
second-level cache holds it all, whose bandwidth no data sheet states."""


def table() -> str:
    """For each step, and above it what the numbers are."""
    names = [device.name for device in ptx.DEVICES]
    rows = [CAPTION, ""]
    rows += [f"| {IMAGES} images | step | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for n, d in SIZES:
        of_devices = [list(_steps(device, n, d)) for device in ptx.DEVICES]
        for step in zip(*of_devices, strict=True):
            cells = [_change(before, now) for _, before, now in step]
            if set(cells) != {NONE}:
                rows.append(f"| n = {n}, d = {d} | {step[0][0]} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _change(before: str, now: str) -> str:
    return now if before == now else f"{before}, {now}"


def _steps(device: ptx.Device, n: int, d: int) -> Iterator[tuple[str, str, str]]:
    """Each with its limit before and now."""
    streamed, size = n * d, d * d
    yield (
        "features",
        _streamed(device, streamed, 6 * streamed),
        _streamed(device, streamed, streamed),
    )
    yield "Gram matrix", *_product(device, n, d)
    yield "iterations", *_iterations(device, n)
    yield "outer product", *_product(device, d, n)
    # Now one triangle is written and read, then the matrix is written.
    yield "norm", _streamed(device, size, 5 * size), _streamed(device, size, d * (d + 1) + size)


def _product(device: ptx.Device, size: int, columns: int) -> tuple[str, str]:
    """By one block for each tile of a triangle, and now by several where there are few tiles. The
    multiprocessor with most blocks is not ready before it has done them."""
    tiles = IMAGES * grids.triangle(size)
    whole = -(-tiles // device.processors) * columns
    count = grids.parts(tiles, columns, device.processors, WORD)
    # Of parts the last one of a tile may be shorter: no more than their mean is sure.
    part = grids.part_length(columns, count) if count > 1 else columns
    shared = max(part, tiles * columns / device.processors) if count > 1 else whole
    before = _clocks(device, BEFORE_PRODUCT) * whole
    now = _clocks(device, _passes_of_product()) * shared
    return _text(before / device.clock), _text(now / device.clock)


def _clocks(device: ptx.Device, passes: float) -> float:
    """For one column of a tile: as many as its additions and multiplications take at the peak, or
    its passes over shared memory, one in a clock."""
    at_once = device.flops / device.clock / device.processors
    return max(2 * grids.TILE**2 / at_once, grids.TILE**2 / grids.WARP / PRODUCTS * passes)


def _iterations(device: ptx.Device, n: int) -> tuple[str, str]:
    """All but the first: K is read in each, or once by a block that holds it."""
    limits = ptx.LIMITS.get(device.arch)
    if limits and grids.padded_image_bytes(n, WORD) <= limits.shared_per_block:
        assert n == 196, "the passes of before are those of another size"
        passes = BEFORE_SMALL, _passes(n)
        before, now = (_text((ITERATIONS - 1) * each / device.clock) for each in passes)
        return before, now
    moved = _streamed(device, n * n, (ITERATIONS - 1) * n * n)
    return moved, moved


def _streamed(device: ptx.Device, held: int, moved: int) -> str:
    """Numbers of an image that are held, and that move. What the cache can keep from one pass to
    the next does not move."""
    if IMAGES * held * WORD <= device.l2_bytes:
        return NONE
    kept = device.l2_bytes * (moved / held - 1)
    return _text((IMAGES * moved * WORD - kept) / device.bytes)


def _text(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"


@cache
def _passes_of_product() -> float:
    """Over shared memory, for so many products of a warp: what 64 more columns of a tile take."""

    def counted(columns: int) -> int:
        X, K = (np.ones((1, grids.TILE, size), np.float32) for size in (columns, grids.TILE))
        return _shared_passes(*launches.gram(X, K, np.ones((1, 1, grids.TILE), np.float32), 2))

    tile = grids.TILE**2 * grids.TILE // grids.WARP
    return (counted(192) - counted(128)) / (tile / PRODUCTS)


@cache
def _passes(n: int) -> float:
    """Over shared memory, for one iteration of an image in one block: a clock each at least."""

    def counted(iterations: int) -> int:
        K, targets, a = np.ones((1, n, n), np.float32), *np.ones((2, 1, n), np.float32)
        return _shared_passes(*launches.small_image(K, targets, a, 0.5, iterations))

    return (counted(4) - counted(2)) / 2


def _shared_passes(kernel: str, shape: grids.Shape, args: Sequence[Any]) -> int:
    name = signatures.instance(kernel, args)
    module = emulated.compiled(name, "sm_80")
    most = module.limits.shared_per_block
    sizes = (shape.blocks, shape.threads, list(args), shape.shared)
    return module.launch(name, *sizes, check_races=False, max_shared=most).shared_wavefronts
