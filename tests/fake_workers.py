"""Workers that compute nothing and take the time they are told to, on a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from demopool.choosing import chooser
from demopool.choosing.answer_types import Choice
from demopool.choosing.conforming import Conformance
from demopool.choosing.referee import Objection
from demopool.measurement.worker import Answer
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State
from demopool.trials import requests
from demopool.trials.judgement import Judgement
from demopool.trials.measures import MeasuredValue
from demopool.trials.streams import ImagePool, Source, Turn

Told = float | Answer | Callable[[int], float | Answer]
_pids = count(1)


class FakeClock:
    """Stands still unless somebody works."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class FakeWorker:
    """Of one backend. ``asked`` is what it did: the function's name, the candidate, the seconds."""

    def __init__(self, workers: FakeWorkers) -> None:
        self._workers = workers
        self.pid: int | None = None

    def close(self) -> None:
        self.pid = None

    def ask(
        self,
        function: Any,
        subject: Any,
        candidate: Any,
        case: Any,
        *,
        timeout: float,
        **options: Any,
    ) -> Answer:
        workers = self._workers
        if self.pid is None:
            self.pid = next(_pids)
            workers.clock.time += workers.start
        answer, seconds = workers.play(function, str(candidate), case, options)
        workers.asked.append((function.__name__, str(candidate), min(seconds, timeout)))
        if seconds > timeout:
            workers.clock.time += timeout
            self.pid = None
            return Answer(State.TIMEOUT, None, f"gave no answer within {timeout:g} s")
        workers.clock.time += seconds
        if answer.state is State.ERROR:
            self.pid = None
        return answer


class FakeReferee:
    """Believes every turn but those it is told not to: values are not computed here.

    objections   to the next turns of a candidate, None to a turn that counts
    floors       seconds of the limit, which change when a test says so
    """

    pool = ImagePool(0)

    def __init__(self, workers: FakeWorkers) -> None:
        self._workers = workers
        self.objections: dict[str, list[Objection | None]] = {}
        self.floors: dict[str, float] = {}

    def source(self, case: Any) -> Source:
        return Source(self.pool, 1)

    def judge(self, candidate: Any, case: Any, found: Any) -> Judgement:
        if found in self._workers.errors:
            return Judgement(self._workers.errors[found], 1e-2, case)
        return Judgement(1.0 if found in self._workers.wrong else 1e-7, 1e-5, case)

    def floor(self, candidate: Any, case: Any) -> float | None:
        return self.floors.get(str(candidate))

    known_floor = floor

    def objection(
        self, candidate: Any, case: Any, turn: Turn, asked: float, answered: float
    ) -> Objection | None:
        told = self.objections.get(str(candidate))
        return told.pop(0) if told else None


class FakeWorkers:
    """``calls`` are seconds of a call of each candidate, or a function of its number of turns.

    start, loading   set-up: of a process, of a library
    judging          a check against the reference
    wrong            candidates whose results are
    """

    def __init__(
        self,
        calls: Mapping[str, Told],
        *,
        start: float = 0.0,
        loading: float = 0.0,
        placing: float = 0.0,
        judging: float = 0.0,
        wrong: tuple[str, ...] = (),
    ) -> None:
        self.threads = 1
        self.calls, self.clock = dict(calls), FakeClock()
        self.start, self.loading, self.placing, self.judging = start, loading, placing, judging
        self.wrong, self.errors = wrong, dict[str, float]()
        self.referee = FakeReferee(self)
        self.conformance = Conformance(1)  # judges none of ours (conftest.py)
        self.asked: list[tuple[str, str, float]] = []
        self.turns = dict.fromkeys(self.calls, 0)
        self._running: dict[str, FakeWorker] = {}

    def of(self, backend: str) -> FakeWorker:
        return self._running.setdefault(backend, FakeWorker(self))

    def pids(self) -> Iterator[int]:
        return iter(())

    def play(
        self, function: Any, name: str, case: Any, options: dict[str, Any]
    ) -> tuple[Answer, float]:
        if function is requests.run_loading:
            return Answer(State.OK, self.loading), self.loading
        if function is requests.run_placing:
            return Answer(State.OK), self.placing
        if function is requests.run_descriptors:
            return Answer(State.OK, name), self.judging
        told = self.calls[name]
        if function is requests.run_turn:
            seconds = told(self.turns[name]) if callable(told) else told
            self.turns[name] += 1
        else:
            seconds = told(0) if callable(told) else told
        if isinstance(seconds, Answer):
            return seconds, 0.0
        if function is requests.run_turn:
            calls = options["calls"]
            made = calls + options["discard"]
            turn = Turn([seconds] * calls, [(0,)] * made, [[(0.0, 1.0)]] * made)
            return Answer(State.OK, turn), max(seconds, 0.0) * made
        if function is requests.run_first_call:
            return Answer(State.OK, seconds), max(seconds, 0.0)
        return Answer(State.OK, MeasuredValue(1e6)), max(seconds, 0.0)


def chosen(case: Case, workers: FakeWorkers) -> Choice:
    """By the clock of the fakes, in five seconds."""
    return chooser.choose(
        case,
        backends=("numpy:cpu",),
        budget=5.0,
        workers=workers,  # type: ignore[arg-type]
        now=workers.clock,
    )
