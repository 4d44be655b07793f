"""Histories of races, timeouts, crashes, interrupted and restricted runs, and ``auto`` after each.

The test keeps its own books of what happened, by the rules as a user would put them: who was wrong
is not trusted with that descriptor and dtype, who crashed not with that size or a larger one, a
time once measured stays known, a call given up takes at least that long.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from effort import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from races import choice, without_time

from demopool.choosing.answer_types import Ranked
from demopool.common import places
from demopool.contract import registry
from demopool.errors import Unsupported
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.problem.vocabulary import DESCRIPTORS, State, Verdict
from demopool.profiles import auto, costs, store
from demopool.profiles.eligibility import CallLimits, predicted_bytes
from demopool.profiles.options import AutoQuestion

BACKENDS = tuple(
    name for name in ("numpy:cpu", "numba:cpu", "torch:cpu") if name in registry.available()
)
SIZES = (
    (1, 100, 64),
    (8, 196, 256),
    (1, 3136, 64),
    (8, 196, 2048),
    (1, 100_000, 64),
    (64, 49, 512),
)
Kind = tuple[str, str]
Known = tuple[Kind, tuple[int, ...]]


def _kind(case: Case) -> Kind:
    return case.descriptor, case.dtype


def _sizes(case: Case) -> tuple[int, ...]:
    return case.batch, case.n, case.d


def _no_smaller(sizes: tuple[int, ...], than: tuple[int, ...]) -> bool:
    return all(a >= b for a, b in zip(sizes, than, strict=True))


class Books:
    """What happened, and what follows from it."""

    def __init__(self) -> None:
        self.times: dict[tuple[Known, Candidate], float] = {}
        self.faults: dict[tuple[Known, Candidate], State] = {}
        self.bounds: list[tuple[Known, Candidate, float]] = []

    def enter(self, case: Case, rows: list[Ranked]) -> None:
        known = _kind(case), _sizes(case)
        for row in rows:
            entry = known, row.candidate
            timed = row.state is State.OK and row.median_s is not None
            if timed:
                self.times[entry] = row.median_s or 0.0
                self.faults.pop(entry, None)
            elif row.state is State.OK or self.faults.get(entry) is State.WRONG:
                continue  # interrupted, or an excuse of who was wrong
            elif entry in self.faults and row.state not in (State.WRONG, State.ERROR):
                continue  # or crashed
            elif row.state in (State.TIMEOUT, State.OUT_OF_MEMORY) and "predicted" in row.reason:
                continue  # it was not tried
            self.bounds = [b for b in self.bounds if b[:2] != entry]
            if row.state in (State.WRONG, State.ERROR):
                self.faults[entry] = row.state
            elif row.at_least_s is not None:
                self.bounds.append((*entry, row.at_least_s))

    def fault(self, case: Case, candidate: Candidate) -> State | None:
        found = None
        for ((kind, sizes), who), state in self.faults.items():
            if who != candidate or kind != _kind(case):
                continue
            if state is State.WRONG:
                return State.WRONG
            did_as_much = any(
                who == candidate and kind == _kind(case) and _no_smaller(done, _sizes(case))
                for ((kind, done), who) in self.times
            )
            larger = _no_smaller(_sizes(case), sizes)
            if sizes == _sizes(case) or (larger and not did_as_much):
                found = State.ERROR
        return found

    def needed(self, case: Case, candidate: Candidate) -> float:
        return predicted_bytes(Subject("descriptor", case.descriptor), candidate, case)


def _play(rng: np.random.Generator, case: Case) -> tuple[list[Ranked], bool]:
    """A race on a machine that is now quiet, now busy; some candidates are broken."""
    subject = Subject("descriptor", case.descriptor)
    backends = BACKENDS if rng.random() < 0.7 else (str(rng.choice(BACKENDS)),)
    restricted = backends != BACKENDS
    interrupted = rng.random() < 0.2
    busy = float(rng.choice([1.0, 1.0, 5.0, 100.0]))
    rows = []
    for candidate in subject.candidates(backends):
        if interrupted and rng.random() < 0.5:
            rows.append(Ranked(*candidate, State.OK, reason="interrupted before it was checked"))
            continue
        steps = subject.steps(candidate.route)
        model = sum(costs.seconds(candidate.backend, op, r, case) for op, r in steps.items())
        seconds = float(model * busy * np.exp(rng.normal(0, 1)))
        what = rng.choice(
            ["time", "late", "hopeless", "full", "too large", "crash", "wrong"],
            p=[0.55, 0.15, 0.1, 0.04, 0.06, 0.06, 0.04],
        )
        name = str(candidate)
        if what == "time":
            rows.append(Ranked(*candidate, State.OK, Verdict.SLOWER, median_s=seconds))
        elif what == "late":
            bound = max(15.0, seconds / 2)
            rows.append(without_time(name, State.TIMEOUT, "gave no answer", bound))
        elif what == "hopeless":
            reason = "predicted to take 9 s, may take 1 s"
            rows.append(without_time(name, State.TIMEOUT, reason, untried=True))
        elif what == "full":
            rows.append(without_time(name, State.OUT_OF_MEMORY, "the worker was killed"))
        elif what == "too large":
            reason = "predicted to need 9 GB"
            rows.append(without_time(name, State.OUT_OF_MEMORY, reason, untried=True))
        elif what == "crash":
            rows.append(without_time(name, State.ERROR, "died of signal 11"))
        else:
            rows.append(without_time(name, State.WRONG, "its error is 3"))
    return rows, not (restricted or interrupted)


def _case(rng: np.random.Generator) -> Case:
    batch, n, d = SIZES[rng.integers(len(SIZES))]
    descriptor = str(rng.choice(DESCRIPTORS, p=[0.1, 0.4, 0.2, 0.1, 0.1, 0.1]))
    return Case(
        descriptor=descriptor, batch=batch, n=n, d=d, dtype=str(rng.choice(["float32", "float64"]))
    )


def _questions(rng: np.random.Generator, case: Case) -> Iterator[Case]:
    """The very case, one near it, and any."""
    yield case
    sizes = {name: max(1, int(getattr(case, name) * rng.choice([0.5, 1, 2]))) for name in "nd"}
    yield Case(descriptor=case.descriptor, batch=case.batch, dtype=case.dtype, **sizes)
    yield _case(rng)


@settings(max_examples=cases(3_000, 120))
@given(seed=st.integers(0, 2**32 - 1))
def test_no_history_makes_auto_slow_wrong_or_fail(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    books, case = Books(), _case(rng)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        patch.setenv(places.VARIABLE, str(tmp_path_factory.mktemp("history")))
        store.forget()
        for _ in range(int(rng.integers(1, 6))):
            free = float(10 ** rng.uniform(7.6, 11))
            patch.setattr(auto, "limits_here", lambda name, free=free: CallLimits(None, free / 2))
            patch.setattr(auto, "_rooms", {})
            case = case if rng.random() < 0.4 else _case(rng)  # people ask again
            rows, whole = _play(rng, case)
            timed = [row for row in rows if row.median_s is not None]
            best = str(min(timed, key=lambda row: row.median_s or 0.0).candidate) if timed else ""
            state = Verdict(rng.choice(["fastest", "tie", "unknown"]) if timed else "unknown")
            told = choice(case, {}, best, rows=tuple(rows), whole=whole, state=state)
            assert store.remember(told) == ""
            books.enter(case, rows)
            for question in _questions(rng, case):
                for home in ("numpy:cpu", "torch:cpu"):
                    if home in BACKENDS:
                        _check(question, home, books, free / 2)


def _check(case: Case, home: str, books: Books, room: float) -> None:
    question = AutoQuestion(case, home, "auto", "auto", Subject("descriptor", case.descriptor))
    survey = auto._survey(question, *auto._world())
    found = auto._decide(survey, auto._room)
    taken = auto.pick(case, home=home)
    assert taken == Candidate(found.backend, found.route)
    possible = [o for o in found.options if o.state is not State.UNSUPPORTED]
    by_name = {Candidate(o.backend, o.route): o for o in possible}
    assert taken in by_name

    known = _kind(case), _sizes(case)
    for candidate, option in by_name.items():
        assert option.measured_s == books.times.get((known, candidate))
        assert option.needed_bytes == books.needed(case, candidate)
        if option.measured_s is not None:
            assert option.estimated_s == option.measured_s
    for (kind, sizes), who, bound in books.bounds:
        alike = who in by_name and kind == _kind(case) and _no_smaller(_sizes(case), sizes)
        disproved = any(
            time < bound and name == who and kind == of and _no_smaller(done, sizes)
            for ((of, done), name), time in books.times.items()
        )
        if alike and not disproved:
            assert (by_name[who].predicted_s or 0.0) >= bound

    fault = {candidate: books.fault(case, candidate) for candidate in by_name}
    fits = {
        candidate: books.needed(case, candidate) <= max(room, auto.ALWAYS_FITS)
        for candidate in by_name
    }
    feasible = [c for c in by_name if fault[c] is None and fits[c]]
    if feasible:
        assert taken in feasible
        best = min(by_name[c].estimated_s for c in feasible)
        assert by_name[taken].estimated_s <= 2 * best
        assert not found.warning
    else:
        assert found.warning
        right = [c for c in by_name if fault[c] is not State.WRONG]
        if right:
            assert taken in right
        if any(fits[c] for c in right):
            assert fits[taken]


def test_only_what_nothing_can_do_is_refused() -> None:
    with pytest.raises(Unsupported):
        auto.pick(Case(descriptor="power", p=0.3), home="numpy:cpu", route="polar")
