"""The judge: what a race's images should give, in a process in which no candidate ever runs.

The answers are those of the reference where it takes about a second, else of ``numpy:cpu`` in
float64 by its cheapest route, which conformance compares with the reference. Tolerances are those
of ``judgement.py``: of each image, or where that would take too long the largest of some images of
a smaller twin, which grows with the square root of the sizes.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2, sqrt
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import pooling, reference
from ..problem.cases import Case
from ..problem.hashing import hashes
from . import judgement, streams
from .streams import ImagePool

Array = NDArray[Any]

MOST_IMAGES = 6
"""In the pool of a race."""

_MOST_BYTES = 256 * 2**20
"""Of the answers that are kept, of all cases together."""

_TWINS = 4
"""Images of a twin, whose largest tolerance counts."""

_LIKELY = 6.0
"""Standard deviations: a sum with random signs is never so far off by chance."""


class Answers(NamedTuple):
    """For every image of the pool: sums with random signs; and the largest share of a value."""

    signed: list[float]
    largest: list[float]
    length: int


def run_answers(case: Case, pool: ImagePool, *, seconds: float) -> Answers:
    """As many images as fit the time, one at least."""
    began = perf_counter()
    found = Answers([], [], case.length)
    signs = streams.signs(case.length, pool.seed)
    for number in range(1, MOST_IMAGES + 1):
        shares = _shares(case, pool, number - 1)
        found.signed.append(float(shares @ signs))
        found.largest.append(float(np.abs(shares).max()))
        spent = perf_counter() - began
        if spent * (1 + 1 / number) > seconds or shares.nbytes * (number + 1) > _MOST_BYTES:
            break
    return found


def run_tolerances(case: Case, pool: ImagePool, images: int, route: str) -> list[float]:
    """Of one entry of each image, relative to its largest before the final norm."""
    small = replace(judgement.twin(case), batch=images)
    if (small.n, small.d) == (case.n, case.d):
        expected = np.stack([_described(case, pool, number) for number in range(images)])
        found = judgement.allowed(judgement.images(small, pool), expected, route, small)
        return [float(t) + of_norm(case) for t in np.broadcast_to(found, (images,))]
    small = replace(small, batch=_TWINS)
    X = judgement.images(small, pool)
    growth = sqrt(case.n * case.d / (small.n * small.d))
    largest = np.max(judgement.allowed(X, judgement.expected(small, pool), route, small))
    return [growth * float(largest) + of_norm(case)] * images


def run_comparison(case: Case, pool: ImagePool, number: int, values: Array) -> float:
    """Error of a result for an image of the pool, relative to its largest entry."""
    wanted = _shares(case, pool, number)
    found = streams.squares(values.astype(np.float64))
    if not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def of_norm(case: Case) -> float:
    """What the final norm may add: the sum of magnitudes is 1 up to this."""
    eps = float(np.finfo(case.dtype.result).eps)
    return 8 * eps * (1 + log2(case.length))


def explained(answers: Answers, image: int, tolerance: float) -> float:
    """How far a sum with random signs may be off: entries are off independently of the signs."""
    each = tolerance * answers.largest[image]
    return _LIKELY * each * sqrt(answers.length) + tolerance * abs(answers.signed[image])


def _shares(case: Case, pool: ImagePool, number: int) -> Array:
    """The descriptor of an image before its final norm, divided by its sum of magnitudes."""
    v = _described(case, pool, number)
    return v / np.abs(v).sum()


_kept: dict[tuple[Case, ImagePool, int], Array] = {}
"""The oldest first."""


def _described(case: Case, pool: ImagePool, number: int) -> Array:
    """The descriptor of an image before its final norm; kept while there is room."""
    key = (case, pool, number)
    if key not in _kept:
        found = _computed(*key)
        while _kept and sum(v.nbytes for v in _kept.values()) + found.nbytes > _MOST_BYTES:
            del _kept[next(iter(_kept))]
        _kept[key] = found
    return _kept[key]


def _computed(case: Case, pool: ImagePool, number: int) -> Array:
    X = streams.image(case, pool, number)
    parameters = judgement.options(case)
    small = judgement.twin(case)
    if (small.n, small.d) == (case.n, case.d):
        hashing = hashes(case.d, case.k) if case.descriptor.is_sketched else None
        v = reference.describe(X, case.descriptor, hashes=hashing, **parameters)
    else:
        v = pooling.describe(
            X.astype(np.float64),
            str(case.descriptor),
            backend="numpy:cpu",
            k=case.k,
            **parameters,
        )
    return np.asarray(v, np.float64).reshape(-1)
