"""Launches that show mistakes in a kernel: edges, all magnitudes, every option.

Features are small integers where a kernel adds up: their sums are exact in any order, so that
results can be compared bit for bit. Of images there are always several, with different numbers,
and of tiles and blocks of an image too. CuPy's kernels flush subnormal numbers of float32 to zero.

Every function of the files here has the cases of the kernel of its name; those of both libraries
have the same.
"""

from __future__ import annotations

from ..backends import Backend, Launch
from ..made import Made
from . import pooling, sketches_and_roots, weights

_FILES = (weights, pooling, sketches_and_roots)


def launches(b: Backend, kernel: str) -> list[Launch]:
    (cases,) = (vars(file)[kernel] for file in _FILES if kernel in vars(file))
    found: list[Launch] = cases(Made(b, kernel))
    return found
