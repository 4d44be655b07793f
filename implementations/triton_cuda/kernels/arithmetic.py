"""Powers of numbers, and how sums and maxima are reduced.

Triton's own ``tl.sum`` and ``tl.max`` are jitted when Triton is imported, compiled or interpreted.
These kernels may be both in one process (``launcher.py``), so they reduce by ``tl.reduce``.
"""

import triton
import triton.language as tl

ADD = tl.standard._sum_combine
MAXIMUM = tl.standard._elementwise_max


@triton.jit
def two_to_the(e):
    """2^e for whole e from -126 to 127."""
    return ((e + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def times_power_of_two(x, e):
    """x 2^e in four steps, because 2^e may be out of range where the result is not."""
    quarter = e >> 2
    part = two_to_the(quarter)
    return x * part * part * part * two_to_the(e - 3 * quarter)


@triton.jit
def power_of(x, y, y_rest):
    """x^(y + y_rest) for x > 0 and powers from -1 to 1; NaN for what is not finite.

    The mantissa and the exponent of x go separate ways: y has few digits, so its product with the
    exponent is exact (``shared/scaling.py``), and what ``exp2`` is given is small. Rounded as a
    whole, log2(x) would cost many units in the last place. ``tl`` has no power of its own but that
    of libdevice, which the interpreter does not know.
    """
    is_tiny = x < 1.1754943508222875e-38
    normal = tl.where(is_tiny, x * 18446744073709551616.0, x)  # 2^64
    bits = normal.to(tl.int32, bitcast=True)
    exponent = ((bits >> 23) - 127 - tl.where(is_tiny, 64, 0)).to(tl.float32)
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    whole = tl.floor(exponent * y)
    rest = exponent * y - whole + (exponent * y_rest + (y + y_rest) * tl.log2(mantissa))
    found = times_power_of_two(tl.exp2(rest), whole.to(tl.int32))
    return tl.where(x < float("inf"), found, float("nan"))
