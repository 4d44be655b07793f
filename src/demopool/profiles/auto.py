"""``auto``: the backend and route for a job, and why. One rule for everybody who asks.

``describe``, ``explain``, operations with ``route="auto"`` and the torch modules all ask here:

1. This case was measured on this machine (``demopool choose``): its recommendation.
2. Others were measured: the lowest time, measured or predicted. Predictions use coefficients fitted
   to those measurements, corrected by how far the model was off on cases of similar size. A
   prediction must be 1.5 times lower than a time measured on this very case.
3. Nothing was measured: the backend the array belongs to, by the cheapest route of the model as
   shipped. Devices that it does not know (all but CPUs and CUDA) are left out until ``choose`` has
   timed them; an array that lives on one is pooled there by the route with the least arithmetic.

Candidates that gave wrong results or crashed are ruled out, and so are those predicted not to fit
into memory, input and output included (``eligibility.limits_here``), and those whose known error
(``accuracy.py``) is larger than was asked for. If that leaves nothing, the
last resort is tried with a warning, never refused: predictions err, and a crash may have had
another cause. It is the candidate that needs the least memory; wrong ones come last.

Nothing is measured here. Arrays in the host's memory can go to any backend (``data="host"``, so a
GPU is judged with its transfers); an array on a device stays there.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import inf, prod
from typing import Any

from ..common.units import readable
from ..contract import registry
from ..errors import InvalidInput, Unsupported
from ..machine.system import usual_threads
from ..problem import routes
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.parameters import validated
from ..problem.vocabulary import Backend, Descriptor, Dtype, State, Verdict
from . import forks, store
from .accuracy import expected_error
from .eligibility import Ineligible, limits_here, too_large
from .options import DEFAULT, AutoQuestion, Option, options_for
from .records import Decided

ALWAYS_FITS = 2**25
"""Bytes that a call may use whatever is free: looking would cost small calls too much time."""

ROOM_SECONDS = 1.0
"""How long an answer about free memory is reused."""

OVERRULED = 2.0
"""A recommendation stands until another candidate is known to be this many times faster: a later
race measured it, or it was left out before because it was predicted to be slow."""

MARGIN = 1.5
"""A time measured at these sizes yields only to a prediction this many times lower: models err
more than clocks."""

_TOO_FAR_OFF = (State.INACCURATE, State.WRONG)


@dataclass(frozen=True)
class Explanation:
    """The pick, its grounds, and all options.

    because   ``measured``, ``model`` or ``default``
    warning   why a last resort may fail; part of the sentence
    """

    case: Case
    backend: str
    route: str
    because: str
    sentence: str
    options: tuple[Option, ...]
    warning: str = ""

    def as_result(self) -> dict[str, Any]:
        """As ``demopool explain --json`` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class _Survey:
    """What is known of a job, whatever memory is free."""

    case: Case
    options: tuple[Option, ...]
    known: Decided | None
    accuracy: str | float
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
    among: tuple[str, ...] | None = None,
    accuracy: str | float = "fast",
) -> Candidate:
    """Backend and route for a case; see :class:`AutoQuestion`. Asking again is cheap."""
    subject = subject or _descriptor(case)
    question = AutoQuestion(case, home, backend, route, subject, among, accuracy)
    found = _decide(_survey(question, *_world()), _room)
    taken = Candidate(found.backend, found.route)
    if found.warning:
        # Remembered by its state: the sentence changes with the free memory.
        state = next(o.state for o in found.options if o.candidate == taken)
        if (case, taken, state) not in _warned:
            _warned.add((case, taken, state))
            warnings.warn(found.sentence, RuntimeWarning, stacklevel=4)
    return taken


def pick_route(
    backend: str,
    operation: str,
    shape: tuple[int, ...],
    dtype: str,
    accuracy: str | float = "fast",
    **parameters: Any,
) -> str:
    """The route of one operation on an array of that backend and shape ``(..., n, d)``.

    A square matrix of ``matrix_power`` is the power of as many features as it has rows.
    """
    case = case_of(backend, routes.DESCRIPTOR_OF[operation], shape, dtype=dtype, **parameters)
    subject = Subject("operation", operation)
    return pick(case, home=backend, backend=backend, subject=subject, accuracy=accuracy).route


@lru_cache(maxsize=1024)
def case_of(home: str, descriptor: str, shape: tuple[int, ...], **parameters: Any) -> Case:
    """The case of an array of shape ``(..., n, d)`` that belongs to ``home``."""
    *leading, n, d = shape
    batch = max(prod(leading), 1)
    return Case(Descriptor(descriptor), batch, n, d, data=Backend(home).data, **parameters)


def explain(
    shape: Sequence[int],
    descriptor: str = "democratic",
    *,
    dtype: str = "float32",
    home: str = DEFAULT,
    backend: str = "auto",
    route: str = "auto",
    accuracy: str | float = "fast",
    **parameters: Any,
) -> Explanation:
    """What ``describe`` would take for features of shape ``(..., n, d)``, and why.

    ``home`` is the backend that the array belongs to: ``"torch:cuda"`` for a CUDA tensor, for which
    ``"triton:cuda"`` is one of the options.
    ``accuracy`` and ``parameters`` (k, order, gamma, tau, iterations, p): as for ``describe``.
    """
    if len(shape) < 2:
        raise InvalidInput(f"shape must be (..., n, d); got {tuple(shape)}.")
    if "data" in parameters:
        raise InvalidInput('explain has no data; use home="torch:cuda" for an array on a GPU.')
    *batch, n, d = shape
    images = max(prod(batch), 1)
    registry.demand(home)
    _demand_owner(home)
    sizes: dict[str, Any] = {"batch": images, "n": n, "d": d, "dtype": dtype}
    kind, data = Descriptor(validated(descriptor=descriptor)), Backend(home).data
    case = Case(kind, **sizes, data=data, **parameters)
    routes.demand(case.descriptor, route)
    accuracy = routes.left_to(accuracy, route)
    if backend != "auto":
        registry.demand(backend)
    question = AutoQuestion(case, home, backend, route, _descriptor(case), None, accuracy)
    return _decide(_survey(question, *_world()), _room)


def _demand_owner(home: str) -> None:
    """Several backends may work on the same arrays, which belong to the first of them."""
    arrays = Backend(home).arrays
    owner = next(name for name in registry.names() if Backend(name).arrays == arrays)
    if owner != home:
        raise InvalidInput(
            f"home must be the backend that the array belongs to; {arrays} belong to {owner}, "
            f"not to {home}."
        )


# --- the candidates ---


def _descriptor(case: Case) -> Subject:
    return Subject("descriptor", case.descriptor)


def _world() -> tuple[store.Version, frozenset[str] | None]:
    """What the options depend on beside the question."""
    return store.version_of_here(), forks.loaded_before


@lru_cache(maxsize=1024)
def _survey(
    question: AutoQuestion, version: store.Version, before_fork: frozenset[str] | None
) -> _Survey:
    case, profile = question.case, store.here()
    known = profile.record(case, version.threads)
    options = options_for(question, profile, known)
    possible = [option for option in options if option.state is not State.UNSUPPORTED]
    if not possible:
        reasons = "; ".join(dict.fromkeys(option.reason for option in options))
        raise Unsupported(
            f"{question.subject.name} by {question.route}", reasons or "no backend here has it"
        )
    inaccurate = [option for option in possible if option.state is State.INACCURATE]
    if inaccurate and all(option.state in _TOO_FAR_OFF for option in possible):
        raise _out_of_reach(question, inaccurate)
    known_cases = len(profile.decided), bool(profile.coefficients)
    found = _Survey(case, options, known, question.accuracy, *known_cases)
    return replace(
        found,
        unlimited=_decide(found, lambda name: inf),
        most_bytes=max(option.needed_bytes or 0.0 for option in possible),
    )


def _out_of_reach(question: AutoQuestion, options: Sequence[Option]) -> Unsupported:
    """The error to raise, with what would be as accurate."""
    case, limit = question.case, float(question.accuracy)
    best = min(options, key=lambda option: option.error or 0.0)
    reason = f"the most accurate route, {best.route}, is off by about {best.error:.1e}"
    wide = replace(case, dtype=Dtype("float64"))
    for what, other in ((f"in {case.dtype}", case), ("with dtype float64", wide)):
        errors = {r: expected_error(r, other) for r in question.subject.routes()}
        route = min(errors, key=lambda name: errors[name])
        if errors[route] <= limit:
            reason += f"; {route} {what} by about {errors[route]:.1e}"
            break
    name = f"{question.subject.name} in {case.dtype} with accuracy={limit:g}"
    return Unsupported(name, reason)


# --- the decision ---


def _decide(survey: _Survey, room: Callable[[str], float]) -> Explanation:
    """What to take; ``room`` is the memory that a call on a backend may use."""
    if survey.unlimited and survey.most_bytes <= ALWAYS_FITS:
        return survey.unlimited
    options = [_judged(option, room) for option in survey.options]
    usable = [option for option in options if option.state is State.OK]
    if not usable:
        best, why = _last_resort(options, room)
        return _explained(survey, best, f"{best.candidate}: {why}", options, warning=why)
    best = min(usable, key=_with_margin)
    # Of less accurate ones too: whether a recommendation stands does not depend on the accuracy.
    lowest = min(
        option.estimated_s
        for option in options
        if option in usable or (option.state is State.INACCURATE and not _shortage(option, room))
    )
    answer = survey.known if survey.known and survey.known.whole else None
    recommended = answer and next(
        (o for o in usable if (o.backend, o.route) == (answer.backend, answer.route)), None
    )
    if answer and recommended and recommended.estimated_s <= OVERRULED * lowest:
        verdict = "probably fastest" if answer.state == Verdict.UNKNOWN else answer.state
        sentence = (
            f"{recommended.candidate}: measured here{_with_threads(answer.threads)}, {verdict} "
            f"among {_count(len(answer.candidates), 'candidate')} "
            f"({readable(recommended.measured_s, 'time')})."
        )
        return _explained(survey, recommended, sentence, options, because="measured")
    grounds = _grounds(survey, usable, best)
    sentence = f"{best.candidate}: {grounds}{_faster_but_too_large(options, best)}"
    if recommended:
        sentence += (
            f" {recommended.candidate} was recommended, but takes over {OVERRULED:g} times as long."
        )
    return _explained(survey, best, sentence, options)


def _with_margin(option: Option) -> float:
    return option.measured_s or MARGIN * option.estimated_s


def _judged(option: Option, room: Callable[[str], float]) -> Option:
    """The option, ruled out for lack of memory unless it already is for something worse."""
    shortage = _shortage(option, room) if option.state is State.OK else None
    return replace(option, **shortage._asdict()) if shortage else option


def _shortage(option: Option, room: Callable[[str], float]) -> Ineligible | None:
    needed = option.needed_bytes or 0.0
    return None if needed <= ALWAYS_FITS else too_large(needed, room(option.backend))


def _last_resort(options: list[Option], room: Callable[[str], float]) -> tuple[Option, str]:
    """What to take when every option is ruled out, and what may go wrong."""
    crashed = [o for o in options if o.state is State.ERROR]
    large = [o for o in options if o.state is State.OUT_OF_MEMORY]
    fitting = [o for o in crashed if not _shortage(o, room)]
    if fitting:
        best = min(fitting, key=lambda option: option.estimated_s)
        return (
            best,
            f"it crashed when it was measured here ({best.reason}), but nothing else is left.",
        )
    if large or crashed:
        best = min(large or crashed, key=lambda option: option.needed_bytes or 0.0)
        shortage = _shortage(best, room)
        reason = f" ({shortage.reason})" if shortage else ""
        return best, f"nothing is predicted to fit into memory; this takes the least{reason}."
    wrong = [o for o in options if o.state is State.WRONG]
    best = min(wrong, key=lambda option: option.estimated_s)
    return (
        best,
        f"it was wrong when it was measured here ({best.reason}), but nothing else is left.",
    )


def _grounds(survey: _Survey, usable: list[Option], best: Option) -> str:
    """Why it is this one of the usable, if it is not a recommendation."""
    if best.measured_s is None and best.predicted_s is None:
        return (
            f"not measured yet, and there is no cost model of {Backend(best.backend).device}; the "
            "route with the least arithmetic. `demopool choose` would tell."
        )
    predicted = f"the lowest predicted time ({readable(best.predicted_s, 'time')})"
    timed = len(survey.known.candidates) if survey.known else 0
    if best.measured_s is not None:
        time_ = readable(best.measured_s, "time")
        among: int | str = sum(option.measured_s is not None for option in usable)
        if among == 1:
            only = "as no other was" if timed == 1 else "as no other in the choice was"
            return f"measured here ({time_}), {only}; none is predicted to be faster."
        among = among if survey.accuracy == "fast" else "those as accurate"
        return f"measured here ({time_}), the lowest of {among}; none is predicted to be faster."
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


def _faster_but_too_large(options: list[Option], best: Option) -> str:
    """A sentence on what would be faster if it fitted into memory."""
    faster = [
        o for o in options if o.state is State.OUT_OF_MEMORY and o.estimated_s < best.estimated_s
    ]
    if not faster:
        return ""
    quickest = min(faster, key=lambda option: option.estimated_s)
    return f" {quickest.candidate} would be faster, but does not fit ({quickest.reason})."


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
    if survey.accuracy != "fast":
        sentence += f" Its error is about {best.error:.1e}, for accuracy={survey.accuracy}."
    ordered = sorted(options, key=lambda o: (o.state is not State.OK, o.estimated_s))
    return Explanation(
        survey.case, best.backend, best.route, because, sentence, tuple(ordered), warning
    )


def _with_threads(measured: int) -> str:
    """Said only if this process has another number."""
    return "" if measured == usual_threads() else f" (with threads={measured})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


# --- the surroundings ---

_warned: set[tuple[Case, Candidate, State]] = set()
_rooms: dict[str, tuple[float, float]] = {}


def _room(backend: str) -> float:
    """What a call may use, looked up at most once in ``ROOM_SECONDS``."""
    now = time.monotonic()
    asked, found = _rooms.get(backend, (-inf, inf))
    if now - asked >= ROOM_SECONDS:
        limit = limits_here(backend).bytes
        found = inf if limit is None else limit
        _rooms[backend] = now, found
    return found
