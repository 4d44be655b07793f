"""How work is cut into programs. The same on every GPU, so that the bits of a sum are too."""

from __future__ import annotations

TILE, WIDE = 64, 128
"""Rows and columns of a symmetric product that one program makes, usually, and by the routes
``dense-128`` and ``128``."""

DEPTH = 32
"""Terms of its sums that it takes at a time."""

EXACT, TF32 = "ieee", "tf32x3"
"""How Triton multiplies: as float32 does, or by three products of TF32 of DEPTH terms, each from
zero, which are added in float32."""

CHUNK = 8192
"""Elements of an image that one program passes over."""

BLOCK = 256
"""Results that one program makes, each of a short sum."""

CHUNKS = 256
"""Chunks whose parts are put together at a time."""

ROWS = 8
"""Rows of K that a program owns in an iteration."""

COLUMNS = 256
"""Columns of them that it reads at a time."""

_BUSY = 256
"""Programs that keep a large GPU busy, about two for each multiprocessor."""

_LEAST = 256
"""Rows that are worth a program of their own."""


def warps_of(tile: int) -> int:
    """Of a program that makes a tile: a thread has 32 results of it, or 64 of a wide one."""
    return 4 if tile == TILE else 8


def blocks(count: int, size: int) -> int:
    return -(-count // size)


def triangle(tiles: int) -> int:
    """Tiles of a lower triangle, with its diagonal."""
    return tiles * (tiles + 1) // 2


def split(rows: int, programs: int) -> tuple[int, int]:
    """In how many parts a sum over rows is made if there are so many programs without it, and the
    rows of a part."""
    wanted = max(1, min(_BUSY // max(programs, 1), rows // _LEAST))
    each = blocks(blocks(rows, wanted), DEPTH) * DEPTH
    return blocks(rows, each), each
