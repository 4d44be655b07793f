"""``auto``: the backend and route for a job, and why.

1. The very case was measured on this machine (``demopool choose``): what was recommended.
2. Something was measured: the lowest time, measured or else predicted by the cost model with
   coefficients fitted to those measurements and corrected by what it missed on cases of about the
   same size, among backends that were right when they were measured. A prediction must be 1.5 times
   lower than what was timed at the very sizes.
3. Nothing was: the backend the array belongs to, by the cheapest route of the model as shipped.

Who was wrong, or crashed, is not taken, nor what is predicted not to fit into memory (the rule of
``candidates.limits_here``, input and output included), unless nothing else is left: a prediction
may err and a crash may have had another cause, so the last candidate is tried, with a warning, and
never refused. It is the one that needs the least memory; who was wrong comes last of all.

Nothing is measured here. Arrays in the host's memory can go to any backend (``data="host"``, so a
GPU was judged with its transfers); an array on a device stays on it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import inf
from typing import Any

from ..common.units import readable
from ..contract import registry
from ..errors import InvalidInput, Unsupported
from ..machine.system import usual_threads
from ..problem import routes
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.parameters import validated
from ..problem.vocabulary import Backend, Descriptor, State, Verdict
from . import forks, store
from .eligibility import limits_here
from .learnt import Decided
from .options import DEFAULT, Option, options_for

ALWAYS_FITS = 2**25
"""Bytes that a call may need without a look at what is free, which would cost such calls time."""

ROOM_SECONDS = 1.0
"""How long an answer to that question is good for."""

OVERRULED = 2.0
"""A recommendation stands until another candidate is known to be so many times faster: a later race
measured it, or it was left out then because it was thought to be slow."""

MARGIN = 1.5
"""What was timed at these sizes makes way for a prediction only if that is so many times lower: the
model errs, a clock does not."""

DESCRIPTOR_OF = {
    "weights": "democratic",
    "pool_sketch": "sketched-sum",
    "power": "power",
    "power_sketch": "sketched-power",
}
"""Operations whose routes are those of a descriptor, and differ in nothing else: what was measured
of one holds for the other."""


@dataclass(frozen=True)
class Explanation:
    """The answer, ``because`` of what (``measured``, ``model`` or ``default``), and all options.

    warning   why it may fail all the same, if it is the last one left; part of the sentence
    """

    case: Case
    backend: str
    route: str
    because: str
    sentence: str
    options: tuple[Option, ...]
    warning: str = ""

    def as_result(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Survey:
    """All that can be known of a job without asking what is free."""

    case: Case
    options: tuple[Option, ...]
    known: Decided | None
    cases: int
    fitted: bool
    unlimited: Explanation | None = None
    most_bytes: float = 0.0


def pick(
    case: Case,
    *,
    home: str,
    backend: str = "auto",
    route: str = "auto",
    subject: Subject | None = None,
) -> Candidate:
    """Backend and route for a case whose array belongs to ``home``; asking again costs nothing."""
    found = _decide(_survey(case, home, backend, route, subject, *_world()), _room)
    taken = Candidate(found.backend, found.route)
    if found.warning:
        # Not by its sentence: that has what is free at the moment.
        kind = next(o.state for o in found.options if (o.backend, o.route) == tuple(taken))
        if (case, taken, kind) not in _warned:
            _warned.add((case, taken, kind))
            warnings.warn(found.sentence, RuntimeWarning, stacklevel=4)
    return taken


def pick_route(backend: str, operation: str, **job: Any) -> str:
    """The route of one operation, for arrays of that backend; ``job`` is fields of a case."""
    case, subject = _operation(backend, operation, **job)
    return pick(case, home=backend, backend=backend, subject=subject).route


@lru_cache(maxsize=1024)
def _operation(backend: str, operation: str, **job: Any) -> tuple[Case, Subject]:
    data = Backend(backend).data
    case = Case(descriptor=Descriptor(DESCRIPTOR_OF[operation]), data=data, **job)
    return case, Subject("operation", operation)


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
        validated(descriptor=descriptor),
        max(images, 1),
        n,
        d,
        dtype=validated(dtype=dtype),
        data=data,
        **parameters,
    )
    routes.demand(case.descriptor, route)
    if backend != "auto":
        registry.demand(backend)
    return _decide(_survey(case, DEFAULT, backend, route, None, *_world()), _room)


# --- the candidates ---


def _world() -> tuple[Any, ...]:
    """What else the options depend on."""
    return store.version_of_here(), usual_threads(), forks.loaded_before


@lru_cache(maxsize=1024)
def _survey(
    case: Case,
    home: str,
    backend: str,
    route: str,
    subject: Subject | None,
    version: Any,
    threads: int,
    before_fork: frozenset[str] | None,
) -> _Survey:
    profile = store.here()
    of = Subject("descriptor", case.descriptor)
    known = profile.record(case, threads)
    options = options_for(case, home, backend, route, subject or of, profile, known)
    possible = [option for option in options if option.state is not State.UNSUPPORTED]
    if not possible:
        reasons = "; ".join(dict.fromkeys(option.reason for option in options))
        raise Unsupported(f"{case.descriptor} by {route}", reasons or "no backend has it")
    found = _Survey(case, options, known, len(profile.decided), bool(profile.coefficients))
    return replace(
        found,
        unlimited=_decide(found, lambda name: inf),
        most_bytes=max(option.needed_bytes or 0.0 for option in possible),
    )


# --- the decision ---


def _decide(survey: _Survey, room: Callable[[str], float]) -> Explanation:
    """What to take where a backend may use so many bytes."""
    if survey.unlimited and survey.most_bytes <= ALWAYS_FITS:
        return survey.unlimited
    options = [_judged(option, room) for option in survey.options]
    usable = [option for option in options if option.state is State.OK]
    if not usable:
        best, why = _last(options, room)
        return _explained(survey, best, f"{best.name}: {why}", options, warning=why)
    best = min(usable, key=_with_margin)
    lowest = min(option.estimated_s for option in usable)
    answer = survey.known if survey.known and survey.known.whole else None
    recommended = answer and next(
        (o for o in usable if (o.backend, o.route) == (answer.backend, answer.route)), None
    )
    if answer and recommended and recommended.estimated_s <= OVERRULED * lowest:
        verdict = "probably fastest" if answer.state == Verdict.UNKNOWN else answer.state
        sentence = (
            f"{recommended.name}: measured here{_with_threads(answer.threads)}, {verdict} among "
            f"{_count(len(answer.candidates), 'candidate')} "
            f"({readable(recommended.measured_s, 'time')})."
        )
        return _explained(survey, recommended, sentence, options, because="measured")
    sentence = f"{best.name}: {_grounds(survey, best)}{_spared(options, best)}"
    if recommended:
        sentence += (
            f" {recommended.name} was recommended, but takes over {OVERRULED:g} times as long."
        )
    return _explained(survey, best, sentence, options)


def _with_margin(option: Option) -> float:
    return option.measured_s or MARGIN * option.estimated_s


def _judged(option: Option, room: Callable[[str], float]) -> Option:
    """With the lack of memory, unless something worse is known."""
    if option.state is not State.OK or _fits(option, room):
        return option
    return replace(option, state=State.OUT_OF_MEMORY, reason=_shortage(option, room))


def _fits(option: Option, room: Callable[[str], float]) -> bool:
    needed = option.needed_bytes or 0.0
    return needed <= ALWAYS_FITS or needed <= room(option.backend)


def _shortage(option: Option, room: Callable[[str], float]) -> str:
    needed, most = option.needed_bytes, room(option.backend)
    return f"{readable(needed, 'memory')} needed, {readable(most, 'memory')} may be used"


def _last(options: list[Option], room: Callable[[str], float]) -> tuple[Option, str]:
    """Whom to take when something speaks against everybody, and what it is."""
    crashed = [o for o in options if o.state is State.ERROR]
    large = [o for o in options if o.state is State.OUT_OF_MEMORY]
    fitting = [o for o in crashed if _fits(o, room)]
    if fitting:
        best = min(fitting, key=lambda option: option.estimated_s)
        return (
            best,
            f"it crashed when it was measured here ({best.reason}), but nothing else is left.",
        )
    if large or crashed:
        best = min(large or crashed, key=lambda option: option.needed_bytes or 0.0)
        return best, (
            "nothing is predicted to fit into memory; this takes the least "
            f"({_shortage(best, room)})."
        )
    wrong = [o for o in options if o.state is State.WRONG]
    best = min(wrong, key=lambda option: option.estimated_s)
    return (
        best,
        f"it was wrong when it was measured here ({best.reason}), but nothing else is left.",
    )


def _grounds(survey: _Survey, best: Option) -> str:
    """Why it is this one, when it is not an answer that stands."""
    predicted = f"the lowest predicted time ({readable(best.predicted_s, 'time')})"
    timed = len(survey.known.candidates) if survey.known else 0
    if best.measured_s is not None:
        time_ = readable(best.measured_s, "time")
        if timed == 1:
            return f"measured here ({time_}), as no other was; none is predicted to be faster."
        return f"measured here ({time_}), the lowest of {timed}; none is predicted to be faster."
    if best.at_least_s is not None:
        given_up = readable(best.at_least_s, "time")
        return f"{predicted}, though a call was once given up after {given_up}."
    if timed:
        others = "1 other was" if timed == 1 else f"{timed} others were"
        return f"not timed at these sizes, where {others}; {predicted}."
    if survey.fitted:
        cases = _count(survey.cases, "case")
        return f"not measured; {predicted}, by a model fitted to what was measured here ({cases})."
    return (
        "nothing was measured here; the cheapest route by the model as shipped "
        f"({readable(best.predicted_s, 'time')}). `demopool choose` would tell."
    )


def _spared(options: list[Option], best: Option) -> str:
    """A word on who would be faster, if it had the memory."""
    faster = [
        o for o in options if o.state is State.OUT_OF_MEMORY and o.estimated_s < best.estimated_s
    ]
    if not faster:
        return ""
    quickest = min(faster, key=lambda option: option.estimated_s)
    return f" {quickest.name} would be faster, but does not fit ({quickest.reason})."


def _explained(
    survey: _Survey,
    best: Option,
    sentence: str,
    options: list[Option],
    *,
    because: str = "",
    warning: str = "",
) -> Explanation:
    because = because or ("model" if survey.fitted or survey.known else "default")
    ordered = sorted(options, key=lambda o: (o.state is not State.OK, o.estimated_s))
    return Explanation(
        survey.case, best.backend, best.route, because, sentence, tuple(ordered), warning
    )


def _with_threads(measured: int) -> str:
    """Only worth a word if this process has another number."""
    return "" if measured == usual_threads() else f" (with threads={measured})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


# --- the surroundings ---

_warned: set[tuple[Case, Candidate, State]] = set()
_rooms: dict[str, tuple[float, float]] = {}


def _room(backend: str) -> float:
    """What a call may use, asked for at most once in a while."""
    now = time.monotonic()
    asked, found = _rooms.get(backend, (-inf, inf))
    if now - asked >= ROOM_SECONDS:
        limit = limits_here(backend).bytes
        found = inf if limit is None else limit
        _rooms[backend] = now, found
    return found
