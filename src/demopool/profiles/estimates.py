"""Time and memory of a candidate on a case: the cost model, corrected and bounded by records."""

from __future__ import annotations

from math import exp, log, log2

from ..machine.system import usual_threads
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import Dtype
from . import costs, store
from .eligibility import predicted_bytes
from .records import Profile, sizes

# The model's error on a measured case corrects its predictions for others of the same descriptor,
# the more the nearer they are: a case four times as large in one size (_REACH doublings) has weight
# exp(-1/2). _MODEL_WEIGHT is the weight of no correction at all.
_REACH = 2.0
_MODEL_WEIGHT = 0.5


def prices(backend: str, dtype: str, profile: Profile | None = None) -> dict[str, float]:
    """Coefficients fitted to this machine where there are some, else those shipped."""
    known = (profile or store.here()).coefficients
    fitted = known.get(backend, {}).get(Dtype(dtype).result)
    return fitted or costs.coefficients(backend, dtype)


def can_predict(backend: str, dtype: str, profile: Profile) -> bool:
    """Whether a prediction says something: there is a cost model, or one fitted to this machine."""
    fitted = Dtype(dtype).result in profile.coefficients.get(backend, {})
    return fitted or costs.is_modelled(backend)


def seconds(candidate: Candidate, case: Case, profile: Profile) -> float:
    """By the model, corrected by its errors nearby, and no less than was seen."""
    predicted = modelled(candidate, case, profile) * correction(candidate, case, profile)
    return max(predicted, profile.at_least_seconds(case, candidate, usual_threads()))


def bytes_needed(subject: Subject, candidate: Candidate, case: Case, profile: Profile) -> float:
    """Peak of one call, input and output included; no less than was seen not to fit."""
    return max(predicted_bytes(subject, candidate, case), profile.at_least_bytes(case, candidate))


def modelled(candidate: Candidate, case: Case, profile: Profile) -> float:
    """The cost model with this machine's coefficients."""
    steps = Subject("descriptor", case.descriptor).steps(candidate.route)
    known = prices(candidate.backend, case.dtype, profile)
    counts = costs.counts_of(candidate.backend, steps, case)
    return sum(known[kind] * count for kind, count in counts.items())


def correction(candidate: Candidate, case: Case, profile: Profile) -> float:
    """Measured over predicted time of this candidate, averaged with more weight on near cases.

    A call that was given up counts too, if the corrected model predicts that it ends earlier.
    """
    total, weights, threads = 0.0, _MODEL_WEIGHT, usual_threads()
    for decided, m in profile.times(case, candidate, threads):
        known = modelled(candidate, decided.case, profile)
        if known > 0:
            weight = _nearness(decided.case, case)
            total += weight * log(m.seconds / known)
            weights += weight
    measured = total / weights
    for other, bound in profile.time_bounds(case, candidate, threads):
        known = modelled(candidate, other, profile)
        if known > 0 and log(bound / known) > measured:
            weight = _nearness(other, case)
            total += weight * log(bound / known)
            weights += weight
    return exp(total / weights)


def _nearness(measured: Case, case: Case) -> float:
    steps = (_doublings(getattr(measured, size), getattr(case, size)) for size in sizes(case))
    return exp(-sum(step * step for step in steps) / (2 * _REACH**2))


def _doublings(size: int, other: int) -> float:
    """How many doublings lead from one size to the other; zero iterations are a size too."""
    return log2((1 + size) / (1 + other))
