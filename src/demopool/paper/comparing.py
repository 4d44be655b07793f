"""Two classifiers on the same images: paired tests, and what many comparisons do to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .images import Array


class Paired(NamedTuple):
    """``only_one`` images are right by the first alone, ``only_other`` by the second alone."""

    difference: float
    low: float
    high: float
    only_one: int
    only_other: int
    p_value: float


def paired(one: Array, other: Array) -> Paired:
    """The difference of two accuracies with its 95 % interval (normal, paired), and McNemar's exact
    test: whether those that only one gets right are split as by a fair coin."""
    from scipy.stats import binomtest

    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    n, unequal = len(one), only_one + only_other
    difference = (only_one - only_other) / n
    error = float(np.sqrt(max(unequal / n - difference**2, 0.0) / n))
    p_value = float(binomtest(only_one, unequal).pvalue) if unequal else 1.0
    interval = (difference - 1.96 * error, difference + 1.96 * error)
    return Paired(difference, *interval, only_one, only_other, p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for their number (Holm, 1979): below 5 % still means what it says."""
    order = np.argsort(p_values, kind="stable")
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted
