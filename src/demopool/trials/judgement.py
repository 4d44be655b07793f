"""Is a candidate right on a case? The reference judges the descriptor it makes, before it competes.

The descriptor is compared before its final norm, entry by entry relative to the largest one: the
signed square root would turn an error of eps near zero into one of sqrt(eps). The tolerance is the
sum of those of its operations (``tolerance.py``). Where the reference would take too long, a twin
of the case is judged, with the same route, dtype and parameters on fewer, smaller images.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import reference
from ..conformance import tolerance
from ..problem.cases import Case
from ..problem.hashing import hashes
from ..problem.operations import OPERATIONS
from . import streams
from .streams import ImagePool

# What the reference does in about a second: multiply-adds of products, of an eigendecomposition.
_PRODUCTS, _EIGEN = 2e9, 2e8


class Judgement(NamedTuple):
    """The image that uses most of its tolerance, and the case it is of."""

    error: float
    tolerance: float
    case: Case

    @property
    def is_right(self) -> bool:
        return self.error <= self.tolerance


def twin(case: Case, effort: float = 1.0) -> Case:
    """The case itself, or one of the same kind that the reference can judge in good time.

    ``effort`` is about the seconds the reference may take.
    """
    n, d = case.n, case.d
    powers = case.descriptor.method == "power"
    tall = n >= d  # some routes exist for one kind only, so a twin is of the same
    while n * n * d > effort * _PRODUCTS and n > 1:
        n = (n + 1) // 2
        d = (d + 1) // 2 if tall and n < d else d
    while powers and d**3 > effort * _EIGEN and d > 1:
        n, d = (n + 1) // 2, (d + 1) // 2
    return replace(case, n=n, d=d, batch=min(case.batch, 2))


def images(case: Case, pool: ImagePool) -> NDArray[Any]:
    """A batch that nobody could foresee."""
    return np.stack([streams.image(case, pool, number) for number in range(case.batch)])


def run_judgement(route: str, case: Case, pool: ImagePool, found: NDArray[Any]) -> Judgement:
    """In the judge's process: of descriptors of :func:`images`, before their final norm."""
    wanted = expected(case, pool)
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return Judgement(float("inf"), 0.0, case)
    largest = np.abs(wanted).max(axis=-1)
    errors = np.abs(found.astype(np.float64) - wanted).max(axis=-1) / largest
    limits = np.broadcast_to(allowed(images(case, pool), wanted, route, case), errors.shape)
    worst = int(np.argmax(errors / limits))
    return Judgement(float(errors[worst]), float(limits[worst]), case)


def options(case: Case) -> dict[str, Any]:
    return {**case.parameters_of(*OPERATIONS.values()), "normalize": "none"}


@lru_cache(maxsize=2)
def expected(case: Case, pool: ImagePool) -> NDArray[Any]:
    """One answer of the reference judges all candidates of a case."""
    X = images(case, pool)
    hashing = hashes(case.d, case.k) if case.descriptor.is_sketched else None
    return reference.describe(X, case.descriptor, hashes=hashing, **options(case))


def allowed(X: NDArray[Any], expected: NDArray[Any], route: str, case: Case) -> Any:
    """Tolerance of every image, before the final norm."""
    n, d, dtype = case.n, case.d, case.dtype
    if case.descriptor.method == "power":
        spectrum = reference.spectrum(X)
        if case.descriptor == "power":
            matrices = expected.reshape(-1, d, d)
            return tolerance.for_power(spectrum, n, matrices, dtype, p=case.p, route=route)
        return tolerance.for_power_sketch(
            spectrum, n, expected, case.k, dtype, p=case.p, route=route
        )
    a, of_weights = None, np.zeros(1)
    if case.descriptor.method == "democratic":
        options = case.parameters_of(OPERATIONS["weights"])
        a = reference.weights(X, **options)
        of_weights = tolerance.for_weights(X, dtype, **options, route=route)
    if not case.descriptor.is_sketched:
        shaped = expected if case.order == 1 else expected.reshape(-1, d, d)
        more: dict[str, Any] = {"of_weights": of_weights, "route": route}
        return tolerance.for_pool(X, a, shaped, dtype, order=case.order, **more)
    # An error of the weights enters as a share of the energy, which is spread over the bins.
    energy = (X.astype(np.float64) ** 2).sum(axis=-1)
    energy = (energy if a is None else energy * a).sum(axis=-1)
    spread = np.maximum(energy / sqrt(case.k) / np.abs(expected).max(axis=-1), 1.0)
    return of_weights * spread + tolerance.for_sketch(X, a, expected, case.k, dtype)
