"""The least work of a case, whatever the route: what the limit of a machine is derived from."""

from __future__ import annotations

from math import log2

from ..machine.limits import Limits
from ..problem.cases import Case


def least_seconds(case: Case, limits: Limits) -> float:
    """Of one call: the longer of computing at full speed and of moving input and output once."""
    return max(
        least_flops(case) / limits.flops, moved_bytes(case) / limits.bytes(moved_bytes(case))
    )


def moved_bytes(case: Case) -> float:
    """Features are read once, descriptors are written once."""
    read, written = case.n * case.d * case.dtype.bytes, case.length * case.dtype.result.bytes
    return float(case.batch * (read + written))


def least_flops(case: Case) -> float:
    """In matrix products and transforms that every route needs, symmetric products counted half."""
    n, d = case.n, case.d
    second_moment, kernel = n * d * (d + 1.0), n * d * (n + 1.0)
    method, flops = case.descriptor.method, 0.0
    if method == "democratic" and case.gamma < 1 and case.iterations > 0:
        flops += min(second_moment, kernel) if case.order == 2 else 0.0
    if method == "power":
        flops += min(second_moment, kernel)
    elif case.descriptor.is_sketched:
        flops += min(second_moment, n * 5.0 * case.k * log2(max(case.k, 2)))
    elif case.order == 2:
        flops += second_moment
    return case.batch * flops
