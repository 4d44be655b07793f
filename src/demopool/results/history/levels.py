"""Constant levels of a series of measured values: where it stays, and where it steps.

Levels are fitted to the whole series, with the solver asv has for it
(``asv.step_detect``) but another price of a step. asv's ``detect_steps`` finds that price by itself
and takes slow changes for correlated noise: it is blind to what comes and goes. Here a step costs
8 times the noise, which is read off the differences of neighbours, or assumed where there are
too few. Simulated series with normal noise of 4 %, 500 a cell (2000 where there is no step; of the
prices 5, 6 and 8 the last had the fewest false alarms on other draws); steps found in the right
place, percent, here / by ``detect_steps``:

=============================  =========  =========  =========  =========  =========
values in the series           4          8          12         20         40
no step: any of 10 % found     0 / 5      0.1 / 0    0.2 / 0    0.1 / 0    0 / 0
the same with noise of 8 %     0.4 / 19   0.9 / 0.2  0.8 / 0    0.2 / 0    0.1 / 0
1.2 since half of them         32 / 85    66 / 39    91 / 37    96 / 43    98 / 77
1.3 since the newest           12 / 82    19 / 30    23 / 17    21 / 5     17 / 0
1.3 since the newest but one   88 / 98    64 / 52    73 / 45    84 / 45    91 / 38
1.5 since the newest           96 / 95    54 / 81    61 / 75    72 / 58    80 / 32
2 since the newest             100 / 100  93 / 99    97 / 100   100 / 100  100 / 100
1.5 for a third, then back     0.2 / 66   31 / 8     96 / 8     100 / 10   100 / 40
2 up, back, and up again       93 / 0     70 / 16    100 / 3    100 / 15   100 / 71
=============================  =========  =========  =========  =========  =========

The price of seeing what comes and goes is to see spikes too: with one value in 33 raised by 1.4 but
no step, 3 % of series of 20 values, 11 % of 30 and 7 % of 60 had a step (``detect_steps``: 1,
0.2 and 0 %; 500 series each, on the draws the price was chosen with). One that is gone with the
next commit is reported as fixed. All this is simulated; real noise is not normal.

So a short history shows only what is large, one value alone shows nothing, and a step of 1.3 at the
newest commit is seen when the next one is measured. asv's confidence intervals would not help: they
know the noise within one run, not between two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import median

from ...errors import DemopoolError

STEP_PRICE = 8.0
"""Of a step in the fit, in units of the noise."""
HINT_PRICE = 3.0
"""The same where every step is measured again (``--confirm``) before it is believed."""
SHORT = 8
"""With fewer values the noise cannot be read off them and is taken from ``NOISE``."""
NOISE = {
    "time": 0.04,
    "tracked time": 0.12,
    "memory": 0.001,
    "error": 0.3,
    "count": 0.0005,
    "other": 0.001,
}
"""Between runs of identical code: a quartile, a median or single call, what repeats exactly, and
rounding, which in float32 can be three times as large where arrays lie at other addresses."""
LEAST_NOISE = {"time": 0.01, "tracked time": 0.01}
"""What a lucky series may read off at the lowest; for what repeats exactly it is ``NOISE``."""


@dataclass(frozen=True)
class Level:
    """Points ``first`` to ``last`` of a series stay at this value."""

    first: int
    last: int
    value: float


def levels_of(
    values: Sequence[float | None], kind: str, price: float = STEP_PRICE
) -> tuple[Level, ...]:
    """The levels of a series; ``kind`` is a key of ``NOISE``."""
    places = [place for place, value in enumerate(values) if value is not None]
    known = [value for value in values if value is not None]
    if not known:
        return ()
    heights = _heights(known)
    ends, *_ = _solver()(heights, [1.0] * len(known), gamma=price * _noise(heights, kind))
    return tuple(
        Level(places[start], places[end - 1], median(known[start:end]))
        for start, end in pairwise([0, *ends])
    )


def noise_of(values: Sequence[float], kind: str) -> float:
    """Standard deviation of the logarithms of a series of positive values."""
    return _noise(_heights(values), kind)


def _heights(known: Sequence[float]) -> list[float]:
    """What is fitted: noise is a share of the value, so logarithms; a zero has none."""
    # Divided by the largest first, so that what is found does not depend on the unit.
    scale = max(map(abs, known)) or 1.0
    heights = [value / scale for value in known]
    return [log(height) for height in heights] if min(heights) > 0 else heights


def _noise(heights: Sequence[float], kind: str) -> float:
    """The standard deviation, from the median difference of neighbours: steps hardly move it."""
    if len(heights) < SHORT:
        return NOISE[kind]
    difference = median(abs(after - before) for before, after in pairwise(heights))
    # The difference of two normal values is within 0.954 standard deviations half of the time.
    return max(difference / 0.954, LEAST_NOISE.get(kind, NOISE[kind]))


def _solver() -> Callable[..., tuple[list[int], list[float], list[float]]]:
    try:
        from asv.step_detect import solve_potts_approx
    except ImportError:
        raise DemopoolError(
            "Finding steps needs asv, which is not installed: pip install '.[bench]' (in a clone)"
        ) from None
    return solve_potts_approx
