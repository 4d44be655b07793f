"""``auto``: the backend and route for a job, and why.

1. The very case was measured on this machine (``demopool choose``): what was recommended.
2. Something was measured: the lowest predicted time, by the cost model with coefficients fitted to
   those measurements and corrected by what it missed on cases of about the same size, among
   backends that were right when they were measured.
3. Nothing was: the backend the array belongs to, by the cheapest route of the model as shipped.

Nothing is measured here. Arrays in the host's memory can go to any backend (``data="host"``, so a
GPU was judged with its transfers); an array on a device stays on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import exp, log, log2
from typing import Any

from . import capabilities, costs, profiles, registry
from .candidates import Candidate, Subject
from .cases import Case
from .errors import InvalidInput, Unsupported
from .measurement.fingerprint import usual_threads
from .profiles import Profile
from .routes import Sizes, find, split
from .units import readable
from .vocabulary import State, result_dtype

DEFAULT = "numpy:cpu"

# What the model missed on a measured case corrects its predictions for others of the same
# descriptor, the more the nearer they are: a case four times as large in one size (_REACH
# doublings) weighs exp(-1/2), and _DOUBT weighs for leaving the model alone.
_SAME = ("descriptor", "dtype", "order", "data")
_SIZES = ("batch", "n", "d", "k", "iterations")
_REACH = 2.0
_DOUBT = 0.5


@dataclass(frozen=True)
class Option:
    """One candidate: what was predicted and measured, or why it does not come into question."""

    backend: str
    route: str
    predicted_s: float | None = None
    measured_s: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Explanation:
    """The answer, ``because`` of what (``measured``, ``model`` or ``default``), and all options."""

    case: Case
    backend: str
    route: str
    because: str
    sentence: str
    options: tuple[Option, ...]

    def as_result(self) -> dict[str, Any]:
        return {
            "case": asdict(self.case),
            "backend": self.backend,
            "route": self.route,
            "because": self.because,
            "sentence": self.sentence,
            "options": [asdict(option) for option in self.options],
        }


def prices(backend: str, dtype: str, profile: Profile | None = None) -> dict[str, float]:
    """Coefficients fitted to this machine where there are some, else those shipped."""
    known = (profile or profiles.here()).coefficients
    fitted = known.get(backend, {}).get(result_dtype(dtype))
    return fitted or costs.coefficients(backend, dtype)


def pick(case: Case, *, home: str, backend: str = "auto", route: str = "auto") -> Candidate:
    """Backend and route for a case whose array belongs to ``home``; asking again costs nothing."""
    return _pick(case, home, backend, route, profiles.version_of_here())


@lru_cache(maxsize=1024)
def _pick(case: Case, home: str, backend: str, route: str, profile: Any) -> Candidate:
    found = _decide(case, home, backend, route)
    return Candidate(found.backend, found.route)


def explain(
    shape: Sequence[int],
    descriptor: str = "democratic",
    *,
    dtype: str = "float32",
    data: str = "host",
    backend: str = "auto",
    route: str = "auto",
    **parameters: Any,
) -> Explanation:
    """What ``describe`` would take for features of a shape ``(..., n, d)``, and why.

    ``parameters`` are k, order, gamma, tau, iterations and p of ``describe``.
    """
    if len(shape) < 2:
        raise InvalidInput(f"shape must be (..., n, d); got {tuple(shape)}.")
    *batch, n, d = shape
    images = 1
    for size in batch:
        images *= size
    case = Case(
        descriptor=descriptor, batch=max(images, 1), n=n, d=d, dtype=dtype, data=data, **parameters
    )
    return _decide(case, DEFAULT, backend, route)


def _decide(case: Case, home: str, backend: str, route: str) -> Explanation:
    profile = profiles.here()
    options = [
        _option(case, Candidate(name, each), profile, route)
        for name in _backends(profile, home, backend, case.data)
        for each in Subject("descriptor", case.descriptor).routes()
        if _matches(case.descriptor, each, route)
    ]
    usable = [option for option in options if not option.reason]
    if not usable:
        reasons = "; ".join(dict.fromkeys(option.reason for option in options))
        raise Unsupported(f"{case.descriptor} by {route}", reasons or "no backend has it")
    decided = profile.of(case, usual_threads())
    names = {(option.backend, option.route): option for option in usable}
    if decided and (decided.backend, decided.route) in names:
        best = names[decided.backend, decided.route]
        sentence = (
            f"{best.backend} by {best.route}: measured here{_with_threads(decided.threads)}, "
            f"{decided.state} among {len(decided.candidates)} candidates "
            f"({readable(best.measured_s, 'time')})."
        )
        return _explained(case, best, "measured", sentence, options)
    best = min(usable, key=lambda option: option.predicted_s or 0.0)
    time = readable(best.predicted_s, "time")
    if profile.coefficients:
        sentence = (
            f"{best.backend} by {best.route}: not measured; the lowest predicted time ({time}), by "
            f"a model fitted to what was measured here ({len(profile.decided)} cases)."
        )
        return _explained(case, best, "model", sentence, options)
    sentence = (
        f"{best.backend} by {best.route}: nothing was measured here; the cheapest route by the "
        f"model as shipped ({time}). `demopool choose` would tell."
    )
    return _explained(case, best, "default", sentence, options)


def _explained(
    case: Case, best: Option, because: str, sentence: str, options: list[Option]
) -> Explanation:
    ordered = sorted(options, key=lambda o: (bool(o.reason), o.predicted_s or 0.0))
    return Explanation(case, best.backend, best.route, because, sentence, tuple(ordered))


def _backends(profile: Profile, home: str, backend: str, data: str) -> tuple[str, ...]:
    """Those that come into question: the one named, or home, and who was right when measured."""
    if backend != "auto":
        return (backend,)
    if data == "device" or home != DEFAULT:
        return (home,)
    known = registry.names()  # a plug-in may have gone since
    return tuple(dict.fromkeys((home, *(name for name in profile.backends if name in known))))


def _matches(descriptor: str, candidate_route: str, wanted: str) -> bool:
    """Whether a route is one that was asked for; parts may be ``auto``."""
    asked, has = split(descriptor, wanted), split(descriptor, candidate_route)
    return all(name in ("auto", has[operation]) for operation, name in asked.items())


def _option(case: Case, candidate: Candidate, profile: Profile, asked: str) -> Option:
    steps = Subject("descriptor", case.descriptor).steps(candidate.route)
    reason = _obstacle(case, candidate, steps, asked) or profile.failure(case, candidate)
    if reason:
        return Option(*candidate, reason=reason)
    predicted = _modelled(candidate, case, profile) * _correction(candidate, case, profile)
    decided = profile.of(case, usual_threads())
    of_case = decided.candidates if decided else ()
    times = [m.seconds for m in of_case if (m.backend, m.route) == tuple(candidate)]
    return Option(*candidate, predicted, times[0] if times else None)


def _with_threads(measured: int) -> str:
    """Only worth a word if this process has another number."""
    return "" if measured == usual_threads() else f" (with threads={measured})"


def _modelled(candidate: Candidate, case: Case, profile: Profile) -> float:
    steps = Subject("descriptor", case.descriptor).steps(candidate.route)
    known = prices(candidate.backend, case.dtype, profile)
    counts = costs.counts_of(candidate.backend, steps, case)
    return sum(known[kind] * count for kind, count in counts.items())


def _correction(candidate: Candidate, case: Case, profile: Profile) -> float:
    """How far the model was off where this candidate was measured, the near cases first."""
    total, weights = 0.0, _DOUBT
    for decided in profile.decided:
        measured = decided.case
        if any(getattr(measured, name) != getattr(case, name) for name in _SAME):
            continue
        steps = (_doublings(getattr(measured, size), getattr(case, size)) for size in _SIZES)
        weight = exp(-sum(step * step for step in steps) / (2 * _REACH**2))
        for m in decided.candidates:
            if (m.backend, m.route) == tuple(candidate):
                total += weight * log(m.seconds / _modelled(candidate, measured, profile))
                weights += weight
    return exp(total / weights)


def _doublings(size: int, other: int) -> float:
    """How often one is doubled to get the other; zero iterations are a size too."""
    return log2((1 + size) / (1 + other))


def _obstacle(case: Case, candidate: Candidate, steps: dict[str, str], asked: str) -> str:
    probe = registry.probe(candidate.backend)
    if probe.state is not State.OK:
        return probe.reason
    for operation, name in steps.items():
        route = find(operation, name)
        if not isinstance(route, str) and route.by_name_only and "auto" in asked:
            return "kept as a baseline, never picked by auto"
        supported = capabilities.supports(
            candidate.backend,
            operation,
            route=name,
            dtype=case.dtype,
            order=case.order,
            sizes=Sizes(case.n, case.d, case.p),
        )
        if not supported:
            return supported.reason
    return ""
