"""The scale of images: their largest values, and features brought near 1."""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, uint32, uint64

from demopool.implementations.shared.grids import BLOCK, WARP, WARPS

from .tiles import (
    largest_of_warp,
    place,
    position,
    quotient,
    remainder,
)


def fill(out: Any, value: Any) -> None:
    """``out`` is flat."""
    i = position()
    if i < uint64(out.shape[0]):
        out[i] = value


def copied(array: Any, out: Any) -> None:
    """Any array of up to three axes, in order, into a flat one."""
    i = position()
    if i < uint64(out.shape[0]):
        out[i] = array.flat[i]


def unordinary(bits: Any, found: Any, positive: Any, low: Any, high: Any, zero_rows: Any) -> None:
    """Whether a row is not ordinary: its largest magnitude is neither from ``low`` to ``high`` nor,
    if rows of zeros may be there, 0. A warp for each row; ``found`` starts at 0.

    Of numbers there are the bits, as integers: without their sign, by the mask ``positive``, they
    are ordered as magnitudes are, infinity and NaN last.
    """
    row = uint64(cuda.blockIdx.x) * uint64(WARPS) + uint64(uint32(cuda.threadIdx.x) >> 5)
    if row >= uint64(bits.shape[0]):
        return  # a whole warp
    lane = uint32(cuda.threadIdx.x) & 31
    most, j = bits.dtype.type(0), uint32(lane)
    while j < uint32(bits.shape[1]):
        most = max(most, bits.dtype.type(bits[row, j] & positive))
        j = uint32(j + WARP)
    most = largest_of_warp(most)
    inside = low <= most <= high or (most == 0 and zero_rows != 0)
    if not inside and lane == 0:
        cuda.atomic.max(found, 0, 1)


def largest(V: Any, out: Any, chunks: Any) -> None:
    """max |v| of every image; ``out`` starts at 0, ``chunks`` blocks share an image."""
    image = quotient(cuda.blockIdx.x, chunks)
    j = uint32(remainder(cuda.blockIdx.x, chunks) * BLOCK + cuda.threadIdx.x)
    found = V.dtype.type(0)
    while j < V.shape[1]:
        found = max(found, abs(V[image, j]))
        j = uint32(j + chunks * BLOCK)
    found = largest_of_warp(found)
    if uint32(cuda.threadIdx.x) & 31 == 0:
        cuda.atomic.max(out, image, found)


def scaled(X: Any, magnitude: Any, out: Any, exponents: Any, blocks: Any) -> None:
    """Every image times the power of two that brings its largest value to between 1/2 and 1.

    ``X`` and ``out`` are (images, values), ``blocks`` share an image; the power is 2^-exponent.
    """
    image, j = place(blocks)
    if j < uint32(X.shape[1]):
        exponent = 0
        if magnitude[image] > 0:
            exponent = math.frexp(magnitude[image])[1]
        out[image, j] = math.ldexp(X[image, j], -exponent)
        if j == 0:
            exponents[image] = exponent
