"""The cost model's coefficients, fitted to what was measured on a machine."""

from __future__ import annotations

from statistics import median

import numpy as np

from ..problem.candidates import Subject
from . import costs
from .records import Decided

# Trust in the shipped coefficients: a predicted time that is off by x counts as much as a
# coefficient that differs by x / _PRIOR from the shipped one.
_PRIOR = 0.1

# Bounds of fitted over shipped coefficients. A kind of work at no cost at all would make a route
# free that was never measured.
_FACTORS = (1e-3, 1e3)


def fit(
    decided: tuple[Decided, ...], threads: int | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """Coefficients for every backend and dtype that was measured.

    Least squares of (predicted / measured - 1), and of (coefficient / shipped - 1) with a small
    weight: kinds of work that no measurement shows keep the shipped coefficient. Only measurements
    with this number of ``threads`` count, if there are any.
    """
    rows: dict[tuple[str, str], list[tuple[int, dict[str, float], float]]] = {}
    for answer in decided:
        subject = Subject("descriptor", answer.case.descriptor)
        dtype: str = answer.case.dtype.result
        for m in answer.candidates:
            counts = costs.counts_of(m.backend, subject.steps(m.route), answer.case)
            rows.setdefault((m.backend, dtype), []).append((answer.threads, counts, m.seconds))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (backend, dtype), known in rows.items():
        wanted = [row for row in known if row[0] == threads] or known
        measured = [(counts, seconds) for _, counts, seconds in wanted]
        shipped = costs.coefficients(backend, dtype)
        if not costs.is_modelled(backend):
            shipped = _on_its_level(shipped, measured)
        found.setdefault(backend, {})[dtype] = _solve(shipped, measured)
    return found


def _on_its_level(
    prices: dict[str, float], measured: list[tuple[dict[str, float], float]]
) -> dict[str, float]:
    """Of a device that nothing is known of, prices of the host: only their proportions count."""
    level = median(
        seconds / sum(prices[kind] * count for kind, count in counts.items())
        for counts, seconds in measured
    )
    return {kind: level * price for kind, price in prices.items()}


def _solve(
    shipped: dict[str, float], measured: list[tuple[dict[str, float], float]]
) -> dict[str, float]:
    from scipy.optimize import nnls

    kinds = [kind for kind in costs.KINDS if shipped[kind] > 0]
    # Unknowns are factors of what was shipped.
    ratios = np.array(
        [[counts.get(kind, 0.0) * shipped[kind] / s for kind in kinds] for counts, s in measured]
    )
    matrix = np.vstack([ratios, _PRIOR * np.eye(len(kinds))])
    target = np.concatenate([np.ones(len(measured)), np.full(len(kinds), _PRIOR)])
    try:
        factors, _ = nnls(matrix, target)
    except RuntimeError:  # it does not converge on absurd times; what is shipped is no worse
        return shipped
    factors = np.clip(factors, *_FACTORS)
    return {**shipped, **{k: float(f * shipped[k]) for k, f in zip(kinds, factors, strict=True)}}
