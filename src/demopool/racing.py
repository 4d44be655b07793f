"""A race: candidates of one case take turns in workers, until the decision is made.

Every backend has a worker, a process of its own. What is measured is handed over as samples at once
and can be put in again later: a race goes on where it was interrupted. The decision itself is in
``decision.py``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from . import decision, trials
from .candidates import Candidate, Obstacle, Subject
from .cases import Case
from .decision import Round, Standing
from .measurement.worker import Answer, Worker
from .samples import Sample
from .vocabulary import State, Verdict

# Threads of OpenBLAS spin for 25 to 93 ms after a call, as measured here, against whoever has the
# next turn. With this they spin for about 3 ms (2^23 cycles): long enough to stay awake between the
# calls of one block, also where BLAS and loops of ours alternate, and asleep after the pause.
QUIET_THREADS = {"OPENBLAS_THREAD_TIMEOUT": "23"}
PAUSE = 0.006
"""Seconds between two blocks, in which threads of the last one fall asleep."""

COLD_CALL = 0.02
"""Calls shorter than this are run once, uncounted, at the start of a block."""

Report = Callable[[float, str], None]
"""Seconds of measuring so far, and a few words about what is being done."""


@dataclass
class Runner:
    """A candidate, what it was found to be, and what it was measured with.

    ``case`` is its own, in a race between descriptors; it then has a process of its own too.
    """

    candidate: Candidate
    state: State = State.OK
    reason: str = ""
    identity: dict[str, Any] = field(default_factory=dict)
    once: dict[str, float] = field(default_factory=dict)
    remark: str = ""
    case: Case | None = None

    @property
    def name(self) -> str:
        return f"{self.case.descriptor} {self.candidate}" if self.case else str(self.candidate)

    @property
    def process(self) -> str:
        """Which of the workers is its own."""
        backend = self.candidate.backend
        return f"{self.case.descriptor} {backend}" if self.case else backend

    def fail(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason


class Workers:
    """A process for every name, usually a backend's, started when it is first asked; several races
    can share them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._running: dict[str, Worker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def of(self, name: str) -> Worker:
        if name not in self._running:
            worker = Worker(self.threads, environment=QUIET_THREADS)
            self._running[name] = self._stack.enter_context(worker)
        return self._running[name]


class Race:
    """The candidates of one case, and the rounds so far."""

    def __init__(
        self,
        case: Case,
        candidates: Iterable[Candidate],
        workers: Workers,
        *,
        seconds_per_call: float,
        memory_bytes: float | None,
        timeout: float = trials.TIMEOUT,
        save: Callable[[Sample], None] = lambda sample: None,
        report: Report = lambda seconds, what: None,
    ) -> None:
        self.case = case
        self.runners = [Runner(candidate) for candidate in candidates]
        self.rounds: list[Round] = []
        self.confirming: list[Round] = []
        self.calls = 1
        self._at_most = 170
        self.session = uuid.uuid4().hex[:12]
        self.spent = 0.0
        self._workers, self._timeout = workers, timeout
        self._limits = (seconds_per_call, memory_bytes)
        self._save, self._report = save, report
        self._rng = np.random.default_rng()

    @property
    def fit(self) -> list[Runner]:
        return [runner for runner in self.runners if runner.state is State.OK]

    def prepare(self) -> None:
        """Load libraries, place the data; who cannot run, or would not fit, is out."""
        seconds, most = self._limits
        for runner in self.runners:
            self._report(self.spent, f"preparing {runner.name}")
            answer = self._ask(runner, trials.run_preparation, seconds=seconds, bytes=most)
            if isinstance(answer.value, Obstacle):
                runner.fail(*answer.value)
            elif answer.state is State.OK:
                runner.identity = answer.value

    def qualify(self, known: dict[str, dict[str, float]]) -> None:
        """Only who is right competes. What is ``known`` of a runner is not measured again."""
        for runner in self.fit:
            runner.once.update(known.get(runner.name, {}))
            if "error" not in runner.once:
                self._judge(runner)
            for measure, function in trials.ONCE.items():
                if runner.state is not State.OK or measure in runner.once:
                    continue
                self._report(self.spent, f"{measure.removesuffix('_s')} of {runner.name}")
                answer = self._ask(runner, function)
                value = answer.value
                if isinstance(value, trials.Remarked):
                    value, runner.remark = value
                if answer.state is State.OK and value is not None:
                    self._keep(runner, measure, value)

    def _judge(self, runner: Runner) -> None:
        # The first call of all is timed before the reference is asked.
        first = self._ask(runner, trials.run_first_call)
        if first.state is not State.OK:
            return
        self._keep(runner, "first_call_s", first.value)
        self._report(self.spent, f"checking {runner.name}")
        answer = self._ask(runner, trials.run_judgement)
        if answer.state is not State.OK:
            return
        judgement = answer.value
        if not judgement.is_right:
            on = judgement.case
            runner.fail(
                State.WRONG,
                f"its error is {judgement.error:.2g}, allowed are {judgement.tolerance:.2g} "
                f"(judged on {on.batch} images, n={on.n}, d={on.d})",
            )
            return
        self._keep(runner, "error", judgement.error)

    def run(self, budget: float) -> Standing:
        """Rounds, after those that were put in, until it is decided or the budget is spent."""
        if decision.ROUND_SECONDS > 0:
            self._at_most = max(170, len(self.rounds) + int(budget / decision.ROUND_SECONDS))
        standing = self.standing()
        if standing.verdict is not None:
            return standing
        self._warm_up()
        began = time.monotonic()
        while self.fit and standing.verdict is None and time.monotonic() - began < budget:
            alive = [r for r in self.fit if not self.rounds or r.name in standing.alive]
            if not alive:
                break
            words = f"round {len(self.rounds) + 1}, {len(alive)} left"
            self._report(time.monotonic() - began, words)
            made = self._round(alive, len(self.rounds) + 1)
            if made is not None:
                self.rounds.append(made)
            elif not self.fit:
                break
            else:
                # Somebody failed: without it the rounds are those of a smaller field.
                smaller = [_without(r, self.fit) for r in self.rounds]
                names = [runner.name for runner in self.fit]
                self.rounds = decision.consistent(smaller, names, self.calls)
            standing = self.standing()
        self.spent = time.monotonic() - began
        return standing

    def standing(self) -> Standing:
        return decision.judge(self.rounds, calls=self.calls, at_most=self._at_most)

    def confirm(self, standing: Standing) -> str:
        """The winner and those close to it once more, as new processes: why it does not hold.

        What was put in of earlier confirming rounds counts: a doubt is not measured away.
        """
        assert standing.lead is not None
        names = {standing.lead, *standing.close}
        runners = [runner for runner in self.fit if runner.name in names]
        self.confirming = [r for r in self.confirming if names <= r.lowest.keys()]
        if len(self.confirming) >= decision.CONFIRMING_ROUNDS:
            return decision.confirms(self.confirming, standing.lead, standing.close)
        for process in {runner.process for runner in runners}:
            self._workers.of(process).close()
        while len(self.confirming) < decision.CONFIRMING_ROUNDS:
            count = len(self.confirming)
            self._report(self.spent, f"new processes, round {count + 1}")
            made = self._round(runners, -1 - count)
            if made is None:
                return "a candidate failed in a new process"
            self.confirming.append(made)
        return decision.confirms(self.confirming, standing.lead, standing.close)

    def _warm_up(self) -> None:
        """Also tells how many calls make a block, the same for all."""
        times = []
        for runner in self.fit:
            answer = self._ask(runner, trials.run_turn, calls=1, discard=1)
            if answer.state is State.OK:
                times.append(answer.value[0])
        if times and not self.rounds:
            self.calls = decision.calls_per_block(min(times))
            for runner in self.fit:
                self._keep(runner, "calls", self.calls)

    def _round(self, runners: Sequence[Runner], number: int) -> Round | None:
        """Turns that fill a round; None if a runner failed, which is then out."""
        timed: dict[str, list[float]] = {runner.name: [] for runner in runners}
        end = time.monotonic() + decision.ROUND_SECONDS
        while True:
            for i in self._rng.permutation(len(runners)):
                runner = runners[i]
                short = not timed[runner.name] or min(timed[runner.name]) < COLD_CALL
                answer = self._ask(runner, trials.run_turn, calls=self.calls, discard=int(short))
                if answer.state is not State.OK:
                    return None
                if min(answer.value) <= 0:
                    continue  # a clock that went backwards: that block tells nothing
                timed[runner.name] += answer.value
                time.sleep(PAUSE)
            if time.monotonic() >= end and all(timed.values()):
                break
            if time.monotonic() >= end + 60 * decision.ROUND_SECONDS:
                return None
        lowest = {name: min(calls) for name, calls in timed.items()}
        mean = {name: fmean(calls) for name, calls in timed.items()}
        for runner in runners:
            self._keep(runner, "lowest_s", lowest[runner.name], round=number)
            self._keep(runner, "mean_s", mean[runner.name], round=number)
        return Round(lowest, mean)

    def _keep(self, runner: Runner, measure: str, value: float, **extra: Any) -> None:
        if "round" not in extra:
            runner.once[measure] = value
        self._save(
            Sample(
                runner.candidate.backend,
                runner.candidate.route,
                runner.case or self.case,
                measure,
                value,
                reason=runner.remark if measure == "with_transfer_s" else "",
                session=self.session,
                threads=self._workers.threads,
                **runner.identity,
                **extra,
            )
        )

    def _ask(self, runner: Runner, function: Callable[..., Any], **options: Any) -> Answer:
        """In the worker of its backend; whatever goes wrong there puts the runner out."""
        case = runner.case or self.case
        subject = Subject("descriptor", case.descriptor)
        answer = self._workers.of(runner.process).ask(
            function, subject, runner.candidate, case, timeout=self._timeout, **options
        )
        if answer.state is not State.OK:
            runner.fail(answer.state, answer.reason)
        return answer


def _without(found: Round, fit: Sequence[Runner]) -> Round:
    names = {runner.name for runner in fit}
    return Round(
        {name: t for name, t in found.lowest.items() if name in names},
        {name: t for name, t in found.mean.items() if name in names},
    )


def overall(standing: Standing, doubt: str) -> Verdict:
    """The verdict on the whole comparison."""
    return Verdict.UNKNOWN if standing.verdict is None or doubt else standing.verdict
