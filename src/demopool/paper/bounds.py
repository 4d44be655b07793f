"""Figure 2: contributions and their bounds (Propositions 4 and 5), against p and against gamma.

Democratic weights are covered by the same propositions: A = sum_i a_i x_i x_i^T is the sum of
y_i y_i^T with y_i = sqrt(a_i) x_i, and the contribution of y_i at p = 1 is that of x_i with its
weight.
"""

from __future__ import annotations

import numpy as np

from .images import Analysed, Array
from .sinkhorn import weights
from .spectra import weighted_contributions, weighted_eigenvalues

POWERS = tuple(round(0.1 * step, 1) for step in range(1, 11))
GAMMAS = tuple(round(0.1 * step, 1) for step in range(11))
QUANTITIES = (
    *("upper", "maximum", "mean", "minimum", "lower"),
    *("variance", "bhatia_davis", "popoviciu", "radius"),
)
CHAIN = ("variance", "bhatia_davis", "popoviciu", "radius")
"""Of Proposition 5: each at most the next."""


def over_p(image: Analysed) -> dict[str, Array]:
    """Every quantity for every p; features have a largest norm of 1."""
    norms = (image.X**2).sum(axis=1)
    rows = []
    for p in POWERS:
        first, last = image.eigenvalues[0] ** p, image.eigenvalues[-1] ** p
        rho = image.norm(p)
        C = image.power_contributions(p)
        total = float((image.eigenvalues ** (1 + p)).sum() / rho)
        rows.append(_quantities(C, norms, first / rho, last / rho, total))
    return _columns(rows)


def over_gamma(image: Analysed) -> dict[str, Array]:
    """The same of weighted features, divided by the mean contribution: weights have a scale of
    their own for every gamma, which the final norm takes away."""
    norms = (image.X**2).sum(axis=1)
    rows = []
    for gamma in GAMMAS:
        a = weights(image.K, gamma)
        C = weighted_contributions(image, a)
        values = weighted_eigenvalues(image, a)
        rho = float(np.sqrt((values**2).sum()))
        one = _quantities(C, a * norms, values[0] / rho, values[-1] / rho, rho)
        mean = one["mean"]
        squares = {name: one[name] / mean**2 for name in CHAIN}
        rest = {k: v / mean for k, v in one.items() if k not in CHAIN and k != "total_error"}
        rows.append(squares | rest | {"total_error": one["total_error"]})
    return _columns(rows)


def _quantities(
    C: Array, norms: Array, first: float, last: float, total: float
) -> dict[str, float]:
    """``first`` and ``last`` are the extreme eigenvalues over rho, ``total`` what C sums to."""
    highest, lowest, mean = float(C.max()), float(C.min()), float(C.mean())
    upper = float(norms.max()) * first
    return {
        "upper": upper,
        "maximum": highest,
        "mean": mean,
        "minimum": lowest,
        "lower": float(norms.min()) * last,
        "variance": float(C.var()),
        "bhatia_davis": (highest - mean) * (mean - lowest),
        "popoviciu": (highest - lowest) ** 2 / 4,
        "radius": upper**2 / 4,
        "total_error": abs(float(C.sum()) / total - 1.0),
    }


def _columns(rows: list[dict[str, float]]) -> dict[str, Array]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
