"""Floating-point arithmetic as PTX defines it, on NumPy arrays: rounded once, in any direction.

NumPy only rounds to nearest. Everything else is built from exact parts:

- an error-free transformation gives the exact rounding error ("rest") of a sum or a product
  (Knuth, Dekker);
- a sum "rounded to odd" can be rounded again to a shorter format as if it were exact (Boldo and
  Melquiond, 2008). This gives a fused multiply-add of float32 from float64, and one of float64 from
  sums of float64.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from ctypes.util import find_library
from fractions import Fraction
from functools import cache
from math import copysign, inf, isfinite, nan
from typing import Any

import numpy as np

Array = Any

_SPLIT = 2.0**27 + 1
# Within these bounds no step of the float64 routines below overflows or underflows.
_SAFE_HIGH, _SAFE_LOW = 2.0**480, 2.0**-400


def flushed(x: Array) -> Array:
    """Flush subnormal values to zeros of the same sign (``.ftz``)."""
    tiny = np.finfo(x.dtype).tiny
    found: Array = np.where(np.abs(x) < tiny, np.copysign(x.dtype.type(0), x), x)
    return found


def saturated(x: Array) -> Array:
    """Clamp values to [+0, 1]; NaN becomes 0 (``.sat``)."""
    return np.where(x > 0, np.minimum(x, 1), 0).astype(x.dtype)


def add(a: Array, b: Array, mode: str = "rn") -> Array:
    """a + b, rounded once."""
    if mode == "rn":
        return a + b
    return sum_of(a.astype(np.float64), b.astype(np.float64), a.dtype, mode)


def sum_of(a: Array, b: Array, dtype: Any, mode: str) -> Array:
    """The sum of two float64 values, rounded once to a format."""
    s, rest = _two_sum(a, b)
    if np.dtype(dtype) == np.float64:
        over = np.isinf(s) & np.isfinite(a) & np.isfinite(b)  # overflow: the rest points back
        found = _directed(s, np.where(over, -np.sign(s), rest), mode)
    else:
        found = _shortened(s, rest, dtype, mode)
    return _cancelled(found, a, b, mode)


def multiply(a: Array, b: Array, mode: str = "rn") -> Array:
    """a * b, rounded once."""
    if mode == "rn":
        return a * b
    if a.dtype != np.float64:
        return _shortened(a.astype(np.float64) * b.astype(np.float64), 0.0, a.dtype, mode)
    a, b = np.broadcast_arrays(a, b)
    p, rest = _two_product(a, b)
    unsafe = _unsafe(a, b, p) | ((p == 0) & (a != 0) & (b != 0))
    return _repaired(_directed(p, rest, mode), unsafe, _exact_product, mode, a, b)


def fma(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c, rounded once."""
    if mode == "rn" and (native := _native_fma(a.dtype.itemsize)) is not None:
        return native(a, b, c)
    return fma_of_parts(a, b, c, mode)


def fma_of_parts(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c, rounded once in any direction, with NumPy alone."""
    if a.dtype == np.float64:
        return _fma_double(a, b, c, mode)
    # The product of two float32 values is exact in float64.
    product = a.astype(np.float64) * b.astype(np.float64)
    return sum_of(product, c.astype(np.float64), a.dtype, mode)


@cache
def _native_fma(itemsize: int) -> Callable[..., Array] | None:
    """The C library's fma, looped over arrays by Numba, if both are installed.

    It is worth having because matrix products consist mostly of this operation.
    """
    name = {4: "fmaf", 8: "fma"}.get(itemsize)
    try:
        numba: Any = importlib.import_module("numba")
        function = getattr(ctypes.CDLL(find_library("m")), name or "")
    except (ImportError, OSError, AttributeError):
        return None
    kind = {4: ctypes.c_float, 8: ctypes.c_double}[itemsize]
    function.restype, function.argtypes = kind, (kind, kind, kind)
    real = f"float{8 * itemsize}"
    looped: Callable[..., Array] = numba.vectorize([f"{real}({real}, {real}, {real})"])(
        lambda a, b, c: function(a, b, c)
    )
    return looped


def divide(a: Array, b: Array, mode: str = "rn") -> Array:
    """a / b, rounded once."""
    if mode == "rn":
        return a / b
    return _by_fraction(lambda x, y: _quotient(x, y), mode, a, b)


def square_root(a: Array, mode: str = "rn") -> Array:
    """sqrt(a), rounded once."""
    root = np.sqrt(a)
    if mode == "rn":
        return root
    if a.dtype == np.float64:
        # Scale by a power of 4 to about 1, where the square of the root has an exact rest.
        mantissa, exponent = np.frexp(a)
        odd = exponent & 1
        scaled = np.ldexp(mantissa, odd)
        root = np.sqrt(scaled)
        p, rest = _two_product(root, root)
        return np.ldexp(_directed(root, (scaled - p) - rest, mode), (exponent - odd) // 2)
    wide = root.astype(np.float64)
    return _directed(root, a.astype(np.float64) - wide * wide, mode)


def converted(a: Array, dtype: Any, mode: str = "rn") -> Array:
    """Convert to another floating-point format."""
    if mode == "rn" or np.dtype(dtype).itemsize >= a.dtype.itemsize:
        return a.astype(dtype)
    return _shortened(a.astype(np.float64), 0.0, dtype, mode)


def to_integer(a: Array, dtype: Any, mode: str) -> Array:
    """Round to an integer in a direction, clamped to the range of the type.

    NaN becomes 0, or the highest bit of the result if one of the two types has 64 bits.
    """
    a = to_whole(a, mode)
    limits = np.iinfo(dtype)
    of_nan = limits.min or limits.max // 2 + 1 if 8 in (a.itemsize, dtype.itemsize) else 0
    # The largest integer may not be a float: values that reach it are set, not converted.
    high, low = a >= float(limits.max), a <= float(limits.min)
    inside = np.where(high | low | np.isnan(a), 0, a).astype(dtype)
    found = np.where(high, dtype.type(limits.max), np.where(low, dtype.type(limits.min), inside))
    return np.where(np.isnan(a), dtype.type(of_nan), found)


def to_whole(a: Array, mode: str) -> Array:
    """Round to an integer value of the same format: rni, rzi, rmi, rpi."""
    rounding: dict[str, Callable[[Array], Array]] = {
        "rni": np.rint,
        "rzi": np.trunc,
        "rmi": np.floor,
        "rpi": np.ceil,
    }
    return rounding[mode](a)


def to_bfloat16(a: Array, mode: str = "rn") -> Array:
    """Convert float32 to the bits of bfloat16."""
    bits = np.asarray(a, np.float32).view(np.uint32)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    upper = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(a), np.uint16(0x7FFF), upper).astype(np.uint16)


def from_bfloat16(bits: Array) -> Array:
    """Convert the bits of bfloat16 to float32, exactly."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_tf32(a: Array, mode: str = "rna") -> Array:
    """Convert float32 to the bits of TF32, which has 13 bits less; rna: ties go away from zero."""
    bits = np.asarray(a, np.float32).view(np.uint32)
    if mode == "rna":
        bits = bits + np.uint32(0x1000)
    elif mode == "rn":
        bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    found = np.where(np.isinf(a), np.asarray(a, np.float32).view(np.uint32), bits)
    return np.where(np.isnan(a), np.uint32(0x7FFFFFFF), found & np.uint32(0xFFFFE000))


def smallest(a: Array, b: Array, *, keep_nan: bool = False) -> Array:
    """The minimum, with -0 below +0; a number wins over a NaN unless ``keep_nan``."""
    lower = np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))
    return _canonical(a, b, lower, keep_nan)


def largest(a: Array, b: Array, *, keep_nan: bool = False) -> Array:
    """The maximum, with +0 above -0; a number wins over a NaN unless ``keep_nan``."""
    higher = np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))
    return _canonical(a, b, higher, keep_nan)


def _canonical(a: Array, b: Array, found: Array, keep_nan: bool) -> Array:
    if keep_nan:
        found = np.where(np.isnan(a) | np.isnan(b), np.nan, found)
    return found.astype(a.dtype)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """s and rest with a + b = s + rest exactly; the rest is 0 where s is not finite."""
    s = a + b
    t = s - a
    rest = (a - (s - t)) + (b - t)
    return s, np.where(np.isfinite(s), rest, 0.0)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """p and rest with a * b = p + rest, exactly within the safe range."""
    p = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    rest = ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low
    return p, np.where(np.isfinite(p) & np.isfinite(rest), rest, 0.0)


def _halves(a: Array) -> tuple[Array, Array]:
    t = _SPLIT * a
    high = t - (t - a)
    return high, a - high


def _odd(s: Array, rest: Array) -> Array:
    """s + rest rounded to odd: if it is not exact, the neighbour whose last bit is 1."""
    bits = np.asarray(s, np.float64).view(np.int64)
    even = (bits & 1) == 0
    # Move towards the rest: up in magnitude if both have the same sign, else down.
    away = np.where((rest > 0) == (s > 0), 1, -1)
    move = even & (rest != 0) & np.isfinite(s)
    found = np.where(move, bits + away, bits).view(np.float64)
    return np.where((s == 0) & (rest != 0), np.copysign(5e-324, rest), found)


def _shortened(s: Array, rest: Array, dtype: Any, mode: str) -> Array:
    """The exact sum s + rest of float64 values, rounded once to a shorter format."""
    exact = _odd(s, rest)
    near = exact.astype(dtype)
    if mode == "rn":
        return near
    over = np.isinf(near) & np.isfinite(s)  # overflow: the rest points back
    return _directed(near, np.where(over, -np.sign(s), exact - near.astype(np.float64)), mode)


def _directed(near: Array, rest: Array, mode: str) -> Array:
    """Turn the nearest value into the one rounded by ``mode``; ``rest`` is exact - near."""
    rest = np.where(np.isnan(rest), 0.0, rest)
    below, above = np.array(-inf, near.dtype), np.array(inf, near.dtype)
    if mode == "rn":
        return near
    if mode == "rm":
        return np.where(rest < 0, np.nextafter(near, below), near)
    if mode == "rp":
        return np.where(rest > 0, np.nextafter(near, above), near)
    if mode == "rz":
        inward = np.where(near > 0, rest < 0, rest > 0)
        return np.where(inward, np.nextafter(near, np.zeros_like(near)), near)
    raise ValueError(f"there is no rounding mode {mode}")


def _fma_double(a: Array, b: Array, c: Array, mode: str) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    p, p_rest = _two_product(a, b)
    t, t_rest = _two_sum(c, p_rest)
    s, s_rest = _two_sum(p, t)
    rests, their_rest = _two_sum(t_rest, s_rest)
    z = _odd(rests, their_rest)
    found, rest = _two_sum(s, z)
    found = _directed(found, rest, mode)
    # Zeros keep the sign that the plain sum gives them.
    found = _cancelled(np.where(found == 0, p + c, found), p, c, mode)
    unsafe = _unsafe(a, b, c, p) | ((p == 0) & (a != 0) & (b != 0))

    def exact(a: float, b: float, c: float) -> Fraction | float:
        if isfinite(a) and isfinite(b) and isfinite(c):
            value = Fraction(a) * Fraction(b) + Fraction(c)
            # A Fraction has no signed zero.
            return value or float(_cancelled(np.array(a * b + c), a * b, c, mode))
        return c if isfinite(a) and isfinite(b) else a * b + c  # the product itself is finite

    return _repaired(found, unsafe, exact, mode, a, b, c)


def _cancelled(found: Array, a: Array, b: Array, mode: str) -> Array:
    """Give a + b = 0 with operands of different signs its sign: -0 rounded down, else +0."""
    if mode != "rm":
        return found
    zero = (found == 0) & (a == -b) & (np.signbit(a) != np.signbit(b))
    return np.where(zero, -np.abs(found), found)


def _unsafe(*parts: Array) -> Array:
    """Where one of the parts is outside the safe bounds."""
    sizes = [np.abs(part) for part in parts]
    return np.any([~(s < _SAFE_HIGH) | ((s < _SAFE_LOW) & (s != 0)) for s in sizes], axis=0)


def _repaired(
    found: Array, unsafe: Array, exact: Callable[..., Fraction | float], mode: str, *operands: Array
) -> Array:
    """Compute the unsafe values again with exact fractions."""
    if unsafe.any():
        found = np.array(found)
        found[unsafe] = _by_fraction(exact, mode, *(operand[unsafe] for operand in operands))
    return found


def _exact_product(a: float, b: float) -> Fraction | float:
    if isfinite(a) and isfinite(b):
        return Fraction(a) * Fraction(b) or a * b  # a Fraction has no signed zero
    return a * b


def _quotient(a: float, b: float) -> Fraction | float:
    if isfinite(a) and isfinite(b) and b != 0 and a != 0:
        return Fraction(a) / Fraction(b)
    if b == 0 and a != 0 and a == a:
        return copysign(inf, a) * copysign(1, b)
    return nan if b == 0 or a != a else a / b


def _by_fraction(exact: Callable[..., Fraction | float], mode: str, *operands: Array) -> Array:
    """Compute value by value with exact fractions: slow, but correct for any value."""
    operands = np.broadcast_arrays(*operands)
    dtype = operands[0].dtype
    found = np.empty(operands[0].shape, dtype)
    for index in np.ndindex(found.shape):
        value = exact(*(float(operand[index]) for operand in operands))
        found[index] = _rounded(value, dtype, mode) if isinstance(value, Fraction) else value
    return found


def _rounded(value: Fraction, dtype: Any, mode: str) -> Any:
    try:
        wide = float(value)  # rounded to nearest, ties to even
    except OverflowError:
        wide = inf if value > 0 else -inf
    rest = 0.0 if not isfinite(wide) else _sign(value - Fraction(wide))
    if dtype == np.float64:
        back = -copysign(1, wide) if not isfinite(wide) else rest
        return _directed(np.array(wide), np.array(back), mode)[()]
    tiny = rest * 5e-324 if wide == 0 else rest * abs(wide) * 2.0**-60
    return _shortened(np.array(wide), np.array(tiny), dtype, mode)[()]


def _sign(value: Fraction) -> float:
    return float((value > 0) - (value < 0))
