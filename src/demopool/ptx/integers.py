"""Integer and bit arithmetic as PTX defines it, on NumPy arrays that wrap around."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_TWICE = {
    np.dtype(np.int16): np.int32,
    np.dtype(np.int32): np.int64,
    np.dtype(np.uint16): np.uint32,
    np.dtype(np.uint32): np.uint64,
}


def unsigned(a: Array) -> Array:
    """The same bits as an unsigned type."""
    return a.view(_UNSIGNED[a.dtype.itemsize])


def multiply_wide(a: Array, b: Array) -> Array:
    """The full product, in twice the width."""
    wide = _TWICE[a.dtype]
    return a.astype(wide) * b.astype(wide)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the product."""
    if a.dtype in _TWICE:
        bits = a.dtype.itemsize * 8
        return (multiply_wide(a, b) >> _TWICE[a.dtype](bits)).astype(a.dtype)
    # Multiply 64 bits in halves of 32; a signed product needs corrections for the signs.
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = unsigned(a), unsigned(b)
    x_low, x_high, y_low, y_high = x & low, x >> shift, y & low, y >> shift
    middle = x_high * y_low + ((x_low * y_low) >> shift)
    other = x_low * y_high + (middle & low)
    high = x_high * y_high + (middle >> shift) + (other >> shift)
    if a.dtype == np.int64:
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def divide(a: Array, b: Array) -> Array:
    """Divide, rounding towards zero.

    A division by zero sets all bits, as hardware does; PTX does not define it.
    """
    zero = b == 0
    b = np.where(zero, np.array(1, b.dtype), b)
    if a.dtype.kind == "u":
        found = a // b
    else:
        quotient = unsigned(np.abs(a)) // unsigned(np.abs(b))
        found = np.where((a < 0) != (b < 0), np.uint64(0) - quotient, quotient)
        found = found.astype(_UNSIGNED[a.dtype.itemsize]).view(a.dtype)
    return np.where(zero, _all_ones(a.dtype), found).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """The remainder, with the sign of the dividend; modulo zero it is the dividend."""
    safe = np.where(b == 0, np.array(1, b.dtype), b)
    return np.where(b == 0, a, a - safe * divide(a, safe)).astype(a.dtype)


def shift_left(a: Array, amount: Array) -> Array:
    """Shift left; amounts beyond the width give 0."""
    bits = a.dtype.itemsize * 8
    inside = np.minimum(amount, bits - 1).astype(a.dtype)
    return np.where(amount >= bits, np.array(0, a.dtype), a << inside).astype(a.dtype)


def shift_right(a: Array, amount: Array) -> Array:
    """Shift right; signed values keep their sign.

    Amounts beyond the width give 0, or -1 for negative values.
    """
    bits = a.dtype.itemsize * 8
    inside = np.minimum(amount, bits - 1).astype(a.dtype)
    if a.dtype.kind == "i":
        return a >> inside
    return np.where(amount >= bits, np.array(0, a.dtype), a >> inside).astype(a.dtype)


def funnel(low: Array, high: Array, amount: Array, *, left: bool, wrap: bool) -> Array:
    """32 bits of the pair (high, low), shifted."""
    amount = (amount & np.uint32(31)) if wrap else np.minimum(amount, np.uint32(32))
    pair = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    by = amount.astype(np.uint64)
    if left:
        # Shifted by 32, the upper half is the low word.
        return ((pair << by) >> np.uint64(32)).astype(np.uint32)
    return (pair >> by).astype(np.uint32)


def population(a: Array) -> Array:
    """Number of bits that are set."""
    octets = np.ascontiguousarray(unsigned(a))[..., None].view(np.uint8)
    return np.unpackbits(octets, axis=-1).sum(axis=-1).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    bits = a.dtype.itemsize * 8
    found = np.full(np.shape(a), bits, np.uint32)
    left = unsigned(a)
    for position in range(bits):
        found = np.where(left >> left.dtype.type(position) != 0, bits - 1 - position, found)
    return found.astype(np.uint32)


def find_leading(a: Array, *, shift_amount: bool = False) -> Array:
    """Position of the highest bit that differs from the sign; all bits set if there is none."""
    bits = a.dtype.itemsize * 8
    value = np.where(a < 0, ~a, a).astype(a.dtype) if a.dtype.kind == "i" else a
    zeros = leading_zeros(value)
    found = zeros if shift_amount else np.uint32(bits - 1) - zeros
    return np.where(zeros == bits, np.uint32(0xFFFFFFFF), found).astype(np.uint32)


def reverse(a: Array) -> Array:
    """The bits in reverse order."""
    octets = np.ascontiguousarray(a)[..., None].view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., ::-1]
    packed = np.ascontiguousarray(np.packbits(bits, axis=-1, bitorder="little"))
    return packed.view(a.dtype)[..., 0]


def extract_field(a: Array, position: Array, length: Array) -> Array:
    """``length`` bits from a position on, sign-extended for a signed type."""
    bits = a.dtype.itemsize * 8
    position, length = position & np.uint32(0xFF), length & np.uint32(0xFF)
    wide = unsigned(a).astype(np.uint64)
    moved = shift_right(wide, position)
    mask = _ones(length)
    taken = moved & mask
    if a.dtype.kind == "i":
        # The sign is bit (position + length - 1), or the highest bit if that is beyond the value.
        top = np.minimum(position + length - np.uint32(1), np.uint32(bits - 1))
        sign = (wide >> top.astype(np.uint64)) & np.uint64(1)
        have = np.minimum(length, np.maximum(np.int64(bits) - position.astype(np.int64), 0))
        taken = np.where((sign == 1) & (length > 0), taken | ~_ones(have), taken)
    return taken.astype(_UNSIGNED[a.dtype.itemsize]).view(a.dtype)


def insert_field(a: Array, b: Array, position: Array, length: Array) -> Array:
    """Insert the lowest ``length`` bits of a into b."""
    position, length = position & np.uint32(0xFF), length & np.uint32(0xFF)
    mask = shift_left(_ones(length), position)
    moved = shift_left(a.astype(np.uint64), position) & mask
    return (moved | (b.astype(np.uint64) & ~mask)).astype(b.dtype)


def permute(a: Array, b: Array, selector: Array) -> Array:
    """Select four of the eight bytes of (b, a); bit 3 of a choice repeats the byte's sign."""
    pair = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    found = np.zeros(np.broadcast(a, b, selector).shape, np.uint64)
    for i in range(4):
        choice = (selector.astype(np.uint64) >> np.uint64(4 * i)) & np.uint64(0xF)
        octet = (pair >> ((choice & np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
        sign = np.where(octet & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        octet = np.where(choice & np.uint64(8), sign, octet)
        found |= octet << np.uint64(8 * i)
    return found.astype(np.uint32)


def logic3(a: Array, b: Array, c: Array, table: int) -> Array:
    """Any function of three bits; ``table`` holds its value for every combination."""
    found = np.zeros(np.broadcast(a, b, c).shape, a.dtype)
    for row in range(8):
        if table >> row & 1:
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            found = found | term
    return found


def _ones(length: Array) -> Array:
    """A 64-bit word with the lowest ``length`` bits set."""
    return ~shift_left(np.uint64(0xFFFFFFFFFFFFFFFF) * np.ones_like(length, np.uint64), length)


def _all_ones(dtype: Any) -> Array:
    return np.array(-1 if dtype.kind == "i" else np.iinfo(dtype).max, dtype)
