"""How far off a route is expected to be: what ``accuracy`` is compared with.

Relative to the largest entry of the descriptor before its final norm, for features like those of
networks. The growth is that of the tolerances (``conformance/tolerance.py``); the constants are
what was seen on VGG-16 features and rectified noise, rounded up, where the tolerances must hold for
any features. With u the rounding unit of the work and q = 1.4 u (sqrt(n) + sqrt(d)), with log2 k
in the sum for sketches, it is:

sums, weights   q, and what products of TF32 leave out
svd             2p q for a power, for p < 1/2 times 100^(1 - 2p), never below q / 2
eigh, gram      q^p + q for a power, but at most 2 %, which these routes promise
others          2 q^p for a power by products only

An expectation is no bound: where an image has next to no rank, every route in float32 can be off by
some 1e-5. What ``demopool choose`` measured here on the same case counts if it is larger: its
features are noise, easier for eigh and gram than those of a network.
"""

from __future__ import annotations

from math import log2, sqrt

from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.routes import left_out
from ..problem.vocabulary import Dtype
from .records import Profile

_UNITS = {"float32": 2.0**-23, "float64": 2.0**-52}
_CONSTANT, _CONDITION, _PROMISED = 1.4, 100.0, 0.02


def known_error(candidate: Candidate, case: Case, profile: Profile) -> float:
    """What is expected, or what was measured on this case if that is more."""
    return max(expected_error(candidate.route, case), profile.error(case, candidate) or 0.0)


def expected_error(route: str, case: Case) -> float:
    growth = sqrt(case.n) + sqrt(case.d)
    if case.descriptor.is_sketched:
        growth += log2(case.k)
    q = _CONSTANT * _UNITS[Dtype(case.dtype).result] * growth
    if case.descriptor.method != "power":
        return q + left_out(route)
    p, solver = case.p, route.partition("+")[0]
    if solver == "svd":
        return q * max(2 * p * _CONDITION ** max(1 - 2 * p, 0.0), 0.5)
    if solver in ("eigh", "gram"):
        return min(q**p + q, _PROMISED)
    return float(2 * q**p)
