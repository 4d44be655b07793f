"""How well two ways to run a kernel must agree."""

from __future__ import annotations

import numpy as np

from .arrays import Array
from .backends import Backend, Launch

ORDERS = (0, 1, 2)
"""Threads and blocks as they are numbered, from the last one, shuffled."""


def units(b: Backend, launch: Launch) -> float:
    """By how many eps results may differ.

    Two powers differ by 5: CUDA's may be off by 4, that of the host by 1. One that is raised again
    has its error times tau, and so has what is multiplied before it. In sums of squares the device
    does not round a square, once for every value that a thread adds. All else is exact: features
    are small integers, divisions and roots are rounded correctly.
    """
    given = dict(zip(b.parameters(launch), launch[2], strict=True))
    kernel = getattr(launch[0], "__name__", launch[0])
    if "tau" in given:
        all_of_them = kernel in ("small_image", "resident")
        steps = int(given["iterations"]) if all_of_them else 1
        return 6 * (1 + float(given["tau"])) * steps
    if kernel == "normalized_at_once":
        return float(given["V"].shape[-1]) / 256 + 2
    return 0


def difference(found: list[Array], wanted: list[Array]) -> float:
    """The largest, in eps of each number; inf where only one is a number, or an integer differs."""
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        if same.all():
            continue
        if one.dtype.kind != "f":
            return np.inf
        limits = np.finfo(one.dtype)
        a, b = (array[~same].astype(float) for array in (one, other))
        with np.errstate(all="ignore"):
            apart = np.abs(a - b) / np.maximum(np.abs(b), limits.tiny) / float(limits.eps)
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max()))
    return worst
