"""Answers of races that never took place, for tests of what is learnt from them."""

from __future__ import annotations

from typing import Any

from demopool.choosing.answer_types import Choice, Ranked
from demopool.machine.system import usual_threads
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State, Verdict
from demopool.profiles import store

HERE = store._key()

CASE = Case(batch=2, n=40, d=12)
TIMES = {"numpy:cpu/dense": 3e-4, "numpy:cpu/matrix-free": 4e-4, "numba:cpu/dense": 2.5e-4}
"""A small job, and a race for it that numba:cpu wins by a little."""


def choice(
    case: Case, times: dict[str, float], best: str, *others: Ranked, **changes: Any
) -> Choice:
    """The answer of a race: times by name of the candidate, the winner, and rows without a time."""
    rows = []
    for name, seconds in times.items():
        verdict = Verdict.FASTEST if name == best else Verdict.SLOWER
        rows.append(Ranked(*Candidate.parse(name), State.OK, verdict, median_s=seconds))
    won = Candidate.found_in(best)
    fields = {"fingerprint": HERE, "threads": usual_threads(), **changes}
    fields = {
        "state": Verdict.FASTEST,
        "rows": (*rows, *others),
        "seconds": 1.0,
        "rounds": 15,
        **fields,
    }
    return Choice(
        case=case, backend=won and won.backend, route=won and won.route, sentence="", **fields
    )


def without_time(
    name: str, state: State, reason: str, at_least_s: float | None = None, *, untried: bool = False
) -> Ranked:
    """A candidate that was wrong, crashed, ran out of time or memory, or was left out."""
    candidate = Candidate.parse(name)
    return Ranked(*candidate, state, reason=reason, at_least_s=at_least_s, untried=untried)
