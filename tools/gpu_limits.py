"""What `dense` of `cupy:cuda` can take at least, by data sheets: the table of a page.

Sizes of launches are those of the backend, and passes over shared memory are counted by executing
the kernel. Nothing here was measured on a GPU.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from demopool import ptx
from demopool.implementations.cupy_cuda import emulated, launches, signatures
from demopool.implementations.shared import grids

IMAGES, ITERATIONS, WORD = 8, 10, 4
SIZES = ((784, 512), (196, 2048), (3136, 512))
SLAB = 8
"""Columns that a product takes at a time; the last ones may be zeros."""

NONE = "-"
"""What a second-level cache holds: data sheets do not state its bandwidth."""


def table() -> str:
    """In microseconds: Gram matrix, iterations, outer product, and the norm with its writing."""
    names = [device.name for device in ptx.DEVICES]
    rows = [f"| {IMAGES} images | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for n, d in SIZES:
        cells = (", ".join(_limits(device, n, d)) for device in ptx.DEVICES)
        rows.append(f"| n = {n}, d = {d} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _limits(device: ptx.Device, n: int, d: int) -> tuple[str, ...]:
    return (
        _text(_product(n, d) / device.flops),
        _iterations(device, n),
        _text(_product(d, n) / device.flops),
        # One triangle is written and read, then the matrix is written.
        _streamed(device, d * d, d * (d + 1) + d * d),
    )


def _product(size: int, columns: int) -> float:
    """Operations of a triangle of tiles, of which the diagonal ones are whole."""
    whole = -(-columns // SLAB) * SLAB
    return 2.0 * IMAGES * grids.triangle(size) * grids.TILE**2 * whole


def _iterations(device: ptx.Device, n: int) -> str:
    """All but the first: K is read in each, or once by a block that holds it."""
    limits = ptx.LIMITS.get(device.arch)
    if limits and grids.padded_image_bytes(n, WORD) <= limits.shared_per_block:
        return _text((ITERATIONS - 1) * _passes(n) / device.clock)
    return _streamed(device, n * n, (ITERATIONS - 1) * n * n)


def _streamed(device: ptx.Device, held: int, moved: int) -> str:
    """Numbers of an image that are held, and that move."""
    fits = IMAGES * held * WORD <= device.l2_bytes
    return NONE if fits else _text(IMAGES * moved * WORD / device.bytes)


def _text(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"


@cache
def _passes(n: int) -> float:
    """Over shared memory, for one iteration of an image in one block: a clock each at least."""

    def counted(iterations: int) -> int:
        K, targets, a = np.ones((1, n, n), np.float32), *np.ones((2, 1, n), np.float32)
        kernel, shape, args = launches.small_image(K, targets, a, 0.5, iterations)
        name = signatures.instance(kernel, args)
        module = emulated.compiled(name, "sm_80")
        most = module.limits.shared_per_block
        sizes = (shape.blocks, shape.threads, list(args), shape.shared)
        return module.launch(name, *sizes, check_races=False, max_shared=most).shared_wavefronts

    return (counted(4) - counted(2)) / 2
