"""Runners of a race, the processes they run in, and asking one of them for something.

Every backend has a worker, a process of its own. What is asked of it is in the budget, but for the
set-up of libraries; what it says is kept as samples at once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import random
from typing import Any

from ..common.units import readable
from ..measurement.worker import SETUP_SECONDS, Answer, Worker
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import State
from ..profiles.eligibility import Ineligible, too_inaccurate
from ..trials import requests
from ..trials.measures import MEASURES
from ..trials.samples import Sample
from .budget import Budget, OutOfTime
from .conforming import Conformance
from .referee import Referee

# Threads of OpenBLAS spin for 25 to 93 ms after a call, as measured here, against whoever has the
# next turn. With this they spin for about 3 ms (2^23 cycles): long enough to stay awake between the
# calls of one block, also where BLAS and loops of ours alternate, and asleep after the pause.
# Those of Intel's OpenMP would spin for 200 ms.
QUIET_THREADS = {"OPENBLAS_THREAD_TIMEOUT": "23", "KMP_BLOCKTIME": "3"}


ProgressCallback = Callable[[float, str], None]
"""Seconds of the budget so far, and a few words about what is being done."""

# What was asked for, in the words of a reason.
_WORDS: dict[Callable[..., Any], str] = {
    requests.run_loading: "setting up its libraries",
    requests.run_placing: "placing its data",
    requests.run_first_call: "its first call",
    requests.run_descriptors: "its check against the reference",
    requests.run_turn: "its turn in the race",
    requests.run_measure: "the measurement of its {words}",
}

_CALLS = (requests.run_first_call, requests.run_turn)
"""What makes calls of the whole case."""


@dataclass
class Runner:
    """A candidate, what it was found to be, and what it was measured with.

    predicted   seconds of a call by the cost model
    once        what is measured once, by the name of the measure
    aside       it was timed and takes no part in the rounds: they would not fit the budget
    needs       seconds it would have taken until it could race, if it was left out
    untried     it failed without having run: its state shows nothing of it
    case        its own, in a race between descriptors; it then has a process of its own too
    leaks       work was seen to go on after its calls had returned
    watched     it had a thorough turn
    doubted     a turn of it was not believed and made again in a new process: once, not twice
    max_error   the largest error with which it may compete
    cores       that its process used during the calls of each thorough turn
    """

    candidate: Candidate
    predicted: float = 0.0
    state: State = State.OK
    reason: str = ""
    identity: dict[str, Any] = field(default_factory=dict)
    once: dict[str, float] = field(default_factory=dict)
    warning: str = ""
    aside: bool = False
    needs: float = 0.0
    untried: bool = False
    case: Case | None = None
    leaks: bool = False
    watched: bool = False
    doubted: bool = False
    max_error: float | None = None
    cores: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.case.descriptor} {self.candidate}" if self.case else str(self.candidate)

    @property
    def process(self) -> str:
        """Which of the workers is its own."""
        backend = self.candidate.backend
        return f"{self.case.descriptor} {backend}" if self.case else backend

    @property
    def is_right(self) -> bool:
        return self.state is State.OK and "error" in self.once

    @property
    def bound(self) -> float | None:
        """A call took at least this long; None if no such call is known."""
        return self.once.get("at_least_s") or (self.once.get("call_s") if self.aside else None)

    def judge(self) -> None:
        """Out, if it conforms but is not as accurate as was asked for."""
        refusal = too_inaccurate(self.once.get("error"), self.max_error)
        if refusal and self.state is State.OK:
            self.fail(*refusal)

    def fail(self, state: State, reason: str, *, untried: bool = False) -> None:
        self.state, self.reason, self.untried = state, reason, untried


class Workers:
    """A process for every backend, started when it is first asked; several races can share them."""

    def __init__(self, threads: int, images: str = "") -> None:
        """``images`` is a .npy of those to time, instead of noise."""
        self.threads = threads
        self._running: dict[str, Worker] = {}
        self._stack = ExitStack()
        self.conformance = Conformance(threads)
        self._stack.callback(self.conformance.close)
        judge = Worker(threads, environment=QUIET_THREADS)
        self.referee = Referee(self._stack.enter_context(judge), images)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def of(self, name: str) -> Worker:
        """Usually a backend's."""
        if name not in self._running:
            worker = Worker(self.threads, environment=QUIET_THREADS)
            self._running[name] = self._stack.enter_context(worker)
        return self._running[name]

    def pids(self) -> Iterator[int]:
        """Of the processes that are running."""
        yield from (worker.pid for worker in self._running.values() if worker.pid is not None)


HANGS, HANGS_SECONDS = 10.0, 5.0
"""A turn that exceeds this multiple of its usual time plus these seconds is given up."""


FLUSH_SECONDS = 1.0
"""At most, to empty the caches before a call; it is not timed."""

THOROUGH = 0.1
"""Of the turns after the first: those with more evidence, which takes longer."""


class Asking:
    """Of runners of one case, within a budget."""

    def __init__(
        self,
        case: Case,
        workers: Workers,
        budget: Budget,
        *,
        save: Callable[[Sample], None] = lambda sample: None,
        progress: ProgressCallback = lambda seconds, what: None,
    ) -> None:
        self.case, self.budget = case, budget
        self.session = uuid.uuid4().hex[:12]
        self._workers, self.referee = workers, workers.referee
        self.conformance = workers.conformance
        self._save, self._progress = save, progress
        self._ready: dict[str, int | None] = {}
        self._warm: dict[str, int | None] = {}
        self._stuck: dict[str, str] = {}

    def progress(self, what: str) -> None:
        self._progress(self.budget.spent, what)

    def keep(self, runner: Runner, measure: str, value: float, **extra: Any) -> None:
        if "phase" not in extra:
            runner.once[measure] = value
        self._put(runner, measure=measure, value=value, **extra)

    def keep_failure(self, runner: Runner) -> None:
        """Store it, so that it is not tried again as long as nothing changes."""
        self._put(runner, measure="call_s", value=None, state=runner.state, reason=runner.reason)

    def _put(self, runner: Runner, **values: Any) -> None:
        self._save(
            Sample(
                backend=runner.candidate.backend,
                route=runner.candidate.route,
                case=runner.case or self.case,
                session=self.session,
                threads=self._workers.threads,
                **runner.identity,
                **values,
            )
        )

    def ask(
        self,
        runner: Runner,
        function: Callable[..., Any],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> Answer:
        """In the worker of its backend; whatever goes wrong there puts the runner out."""
        if not self.make_ready(runner):
            return Answer(runner.state, None, runner.reason)
        return self._ask(
            runner, function, self.budget.patience if timeout is None else timeout, options
        )

    def is_warm(self, runner: Runner) -> bool:
        """Whether it has made a call in its present process."""
        pid = self._workers.of(runner.process).pid
        return pid is not None and self._warm.get(runner.name) == pid

    def was_loaded(self, runner: Runner) -> bool:
        """Whether its library was, in this race."""
        return runner.name in self._ready

    def make_ready(self, runner: Runner) -> bool:
        """Its library is loaded, which is set-up, and its data in place, in the present process."""
        worker = self._workers.of(runner.process)
        if worker.pid is not None and self._ready.get(runner.name) == worker.pid:
            return True
        if runner.process in self._stuck and not self.was_loaded(runner):
            runner.fail(State.TIMEOUT, self._stuck[runner.process], untried=True)
            return False
        with self.budget.setting_up():
            self.progress(f"setting up {runner.name}")
            threads = {"threads": self._workers.threads}
            answer = self._ask(runner, requests.run_loading, SETUP_SECONDS, threads)
            if answer.state is State.OK:
                # The judge's preparations: its process, the answers, the speed of the machine.
                case = runner.case or self.case
                source = {"source": self.referee.source(case)}
                self.referee.floor(runner.candidate, case)
        if answer.state is State.TIMEOUT:  # the others of this library would be waited for as long
            self._stuck[runner.process] = runner.reason
        if isinstance(answer.value, Ineligible):
            runner.fail(*answer.value, untried=True)
        if runner.state is not State.OK:
            return False
        if "compile_s" not in runner.once:
            self.keep(runner, "compile_s", answer.value)
        self._ready[runner.name] = worker.pid
        placed = self._ask(runner, requests.run_placing, self.budget.patience, source)
        return placed.state is State.OK

    def _ask(
        self, runner: Runner, function: Callable[..., Any], timeout: float, options: dict[str, Any]
    ) -> Answer:
        case = runner.case or self.case
        asked_for = MEASURES.get(options.get("measure", ""))
        words = _WORDS[function].format(words=asked_for and asked_for.words)
        answer = self._workers.of(runner.process).ask(
            function,
            Subject("descriptor", case.descriptor),
            runner.candidate,
            case,
            timeout=timeout,
            words=words,
            **options,
        )
        if answer.state is State.OK and function in _CALLS:
            self._warm[runner.name] = self._workers.of(runner.process).pid
        if answer.state is State.TIMEOUT:
            after = f"given up after {readable(timeout, 'time')}"
            reason = f"{after}: {words} had not ended"
            runner.fail(answer.state, reason, untried=not answer.asked)
        elif answer.state is not State.OK:
            runner.fail(answer.state, answer.reason, untried=not answer.asked)
            if answer.asked and answer.state in (State.ERROR, State.OUT_OF_MEMORY):
                self.keep_failure(runner)
        return answer

    def turn(self, runner: Runner, calls: int, discard: int, seconds: float) -> Answer:
        """One that only ran out of the budget has not failed."""
        if not self.make_ready(runner):
            return Answer(runner.state, None, runner.reason)
        case = runner.case or self.case
        least = HANGS * (calls + discard) * max(seconds, runner.predicted) + HANGS_SECONDS
        hangs = least + (FLUSH_SECONDS * (calls + discard) if case.is_cold else 0.0)
        patience = self.budget.patience
        thorough = runner.leaks or not runner.watched or random() < THOROUGH
        asked = time.perf_counter()
        answer = self.ask(
            runner,
            requests.run_turn,
            timeout=min(hangs, patience),
            source=self.referee.source(case),
            calls=calls,
            discard=discard,
            thorough=thorough,
        )
        if answer.state is State.TIMEOUT:
            if patience <= hangs:
                runner.fail(State.OK, "")
                raise OutOfTime
            self.keep(runner, "at_least_s", least / (calls + discard))
        if answer.state is not State.OK:
            return answer
        runner.watched = runner.watched or thorough
        turn = answer.value
        answered = time.perf_counter()
        objection = self.referee.objection(runner.candidate, case, turn, asked, answered)
        if objection and objection.by_chance and not runner.doubted:
            return self._once_more(runner, calls, discard, seconds)
        if objection:
            runner.fail(State.WRONG, objection.reason)
            self.keep_failure(runner)
            return Answer(State.WRONG, None, objection.reason)
        runner.leaks = runner.leaks or turn.leaked > 0
        if turn.cores:
            runner.cores.append(turn.cores)
        charged = turn.leaked / len(turn.sums)
        return Answer(State.OK, [seconds + charged for seconds in turn.seconds])

    def _once_more(self, runner: Runner, calls: int, discard: int, seconds: float) -> Answer:
        """In a new process, before it is called wrong for what a busy machine may have done."""
        runner.doubted, runner.watched = True, False
        self._workers.of(runner.process).close()
        return self.turn(runner, calls, max(discard, 1), seconds)
