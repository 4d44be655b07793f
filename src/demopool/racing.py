"""A race: candidates of one case take turns in workers, until the decision is made.

Every backend has a worker, a process of its own. What is measured is handed over as samples at once
and can be put in again later: a race goes on where it was interrupted. Who takes part is found in
``qualifying.py``, the decision itself in ``decision.py``, what may be spent in ``budget.py``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from . import decision, trials
from .budget import Budget
from .candidates import Candidate, Obstacle, Subject
from .cases import Case
from .decision import Round, Standing
from .measurement.others import Others
from .measurement.worker import Answer, Worker
from .samples import Sample
from .units import readable
from .vocabulary import State, Verdict

# Threads of OpenBLAS spin for 25 to 93 ms after a call, as measured here, against whoever has the
# next turn. With this they spin for about 3 ms (2^23 cycles): long enough to stay awake between the
# calls of one block, also where BLAS and loops of ours alternate, and asleep after the pause.
QUIET_THREADS = {"OPENBLAS_THREAD_TIMEOUT": "23"}
PAUSE = 0.006
"""Seconds between two blocks, in which threads of the last one fall asleep."""

COLD_CALL = 0.02
"""Calls shorter than this are run once, uncounted, at the start of a block."""

SETUP_SECONDS = 60.0
"""For a library to load and compile, before it is given up."""

HANGS, HANGS_SECONDS = 10.0, 5.0
"""A turn that takes so many times what it took before, and so many seconds more, is given up."""

Report = Callable[[float, str], None]
"""Seconds of the budget so far, and a few words about what is being done."""

# What was asked for, in the words of a reason.
_WORDS: dict[Callable[..., Any], str] = {
    trials.run_loading: "setting up its libraries",
    trials.run_placing: "placing its data",
    trials.run_first_call: "its first call",
    trials.run_judgement: "its check against the reference",
    trials.run_turn: "its turn in the race",
    trials.run_with_transfer: "its call with transfers",
    trials.run_peak_host: "its call whose memory was measured",
    trials.run_peak_device: "its call whose memory was measured",
}


class OutOfTime(Exception):
    """The budget ended in the middle of something."""


@dataclass
class Runner:
    """A candidate, what it was found to be, and what it was measured with.

    predicted   seconds of a call by the cost model
    once        what is measured once, by the name of the measure
    aside       it was timed and takes no part in the rounds: they would not fit the budget
    needs       seconds it would have taken until it could race, if it was left out
    case        its own, in a race between descriptors; it then has a process of its own too
    """

    candidate: Candidate
    predicted: float = 0.0
    state: State = State.OK
    reason: str = ""
    identity: dict[str, Any] = field(default_factory=dict)
    once: dict[str, float] = field(default_factory=dict)
    remark: str = ""
    aside: bool = False
    needs: float = 0.0
    case: Case | None = None

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
        """A call was seen to take so long, or longer; None if nothing of the kind is known."""
        return self.once.get("at_least_s") or (self.once.get("call_s") if self.aside else None)

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

    def pids(self) -> Iterator[int]:
        """Of the processes that are running."""
        yield from (worker.pid for worker in self._running.values() if worker.pid is not None)


class Race:
    """The candidates of one case, and the rounds so far."""

    def __init__(
        self,
        case: Case,
        runners: Iterable[Runner],
        workers: Workers,
        budget: Budget,
        *,
        save: Callable[[Sample], None] = lambda sample: None,
        report: Report = lambda seconds, what: None,
    ) -> None:
        self.case = case
        self.runners = list(runners)
        self.budget = budget
        self.rounds: list[Round] = []
        self.confirming: list[Round] = []
        self.calls = 1
        self.session = uuid.uuid4().hex[:12]
        self._at_most = 170
        self._workers = workers
        self._save, self._report = save, report
        self._rng = np.random.default_rng()
        self._ready: dict[str, int | None] = {}
        self._others = Others(workers.pids)

    @property
    def fit(self) -> list[Runner]:
        return [runner for runner in self.runners if runner.state is State.OK]

    @property
    def racing(self) -> list[Runner]:
        """Those who take part in the rounds."""
        return [runner for runner in self.runners if runner.is_right and not runner.aside]

    def open(self, standing: Standing) -> list[Runner]:
        """Those who could be the best for all that is known: not in the rounds, nor out of them."""
        timed = self.rounds[0].lowest if self.rounds else {}
        undecided = [
            r
            for r in self.runners
            if r.state in (State.OK, State.TIMEOUT) and (r.name not in timed or r not in self.fit)
        ]
        lead, rounds = standing.lead, self.rounds
        return [
            r for r in undecided if r.bound is None or not self.is_far(r, r.bound, lead, rounds)
        ]

    def is_far(
        self, runner: Runner, bound: float, lead: str | None, rounds: Sequence[Round]
    ) -> bool:
        """Whether a call that took so long, or longer, shows that the runner is slower."""
        best = next((r for r in self.runners if r.name == lead), None)
        if best is None:
            return False
        by_model = runner.predicted / best.predicted
        return decision.is_far(bound, rounds, best.name, by_model)

    @property
    def _bounded(self) -> bool:
        return any(runner.bound is not None for runner in self.runners)

    def standing(self, at_most: int = 0) -> Standing:
        """``at_most``: rounds that there could have been, if they were put in."""
        return decision.judge(
            self.rounds,
            calls=self.calls,
            at_most=max(self._at_most, at_most),
            bounded=self._bounded,
        )

    # --- rounds ---

    def run(self) -> Standing:
        """Rounds, after those that were put in, until it is decided or the budget is spent."""
        if decision.ROUND_SECONDS > 0:
            could = int(self.budget.seconds / decision.ROUND_SECONDS)
            self._at_most = max(170, len(self.rounds) + could)
        standing = self.standing()
        if standing.verdict is not None:
            return standing
        try:
            times = self._warm_up()
            standing = self.standing()
            while standing.verdict is None:
                alive = [r for r in self.racing if not self.rounds or r.name in standing.alive]
                if not alive or self._round_seconds(alive, times) > self.budget.left:
                    break
                self.report(f"round {len(self.rounds) + 1}, {len(alive)} left")
                made = self._round(alive, len(self.rounds) + 1, times)
                if made is not None:
                    self.rounds.append(made)
                elif not self.racing:
                    break
                else:
                    # Somebody failed: without it the rounds are those of a smaller field.
                    smaller = [without(r, self.racing) for r in self.rounds]
                    names = [runner.name for runner in self.racing]
                    self.rounds = decision.consistent(
                        smaller, names, self.calls, bounded=self._bounded
                    )
                standing = self.standing()
        except OutOfTime:
            standing = self.standing()
        return standing

    def confirm(self, standing: Standing) -> str:
        """The winner and those close to it once more, as new processes: why it does not hold.

        What was put in of earlier confirming rounds counts: a doubt is not measured away.
        """
        assert standing.lead is not None
        names = {standing.lead, *standing.close}
        runners = [runner for runner in self.fit if runner.name in names]
        wanted = decision.confirming_rounds(self.rounds)
        self.confirming = [r for r in self.confirming if names <= r.lowest.keys()]
        times = {
            name: min(r.lowest[name] for r in self.rounds if name in r.lowest) for name in names
        }
        needed = (wanted - len(self.confirming)) * self._round_seconds(runners, times)
        late = "the budget ended before new processes had confirmed it"
        if needed > self.budget.patience:
            return late
        if needed > 0:
            for process in {runner.process for runner in runners}:
                self._workers.of(process).close()
        try:
            while len(self.confirming) < wanted:
                count = len(self.confirming)
                self.report(f"new processes, round {count + 1} of {wanted}")
                made = self._round(runners, -1 - count, times)
                if made is None:
                    return "a candidate failed in a new process"
                self.confirming.append(made)
        except OutOfTime:
            return late
        return decision.confirms(self.confirming, standing.lead, standing.close)

    def _warm_up(self) -> dict[str, float]:
        """A call of each; tells how many make a block, the same for all, and who is far behind."""
        times: dict[str, float] = {}
        for runner in self.racing:
            self.report(f"warming up {runner.name}")
            if self.budget.is_spent:
                raise OutOfTime
            guess = runner.once.get("call_s", 0.0)
            short = guess < decision.LONG_BLOCK
            answer = self._turn(runner, calls=1, discard=int(short), seconds=guess)
            if answer.state is State.OK and answer.value[0] > 0:
                times[runner.name] = answer.value[0]
                self.keep(runner, "call_s", answer.value[0])
        if times and not self.rounds:
            self.calls = decision.calls_per_block(min(times.values()))
            self._set_aside(times)
            for runner in self.racing:
                self.keep(runner, "calls", self.calls)
                self.keep(runner, "budget_s", self.budget.seconds)
            taken = {r.name: times[r.name] for r in self.racing if r.name in times}
            # Long calls make a round of one turn each, and this was one.
            if self.calls == 1 and sum(taken.values()) > decision.ROUND_SECONDS > 0:
                others = self._others.cores() or 0.0
                self.rounds.append(self._keep_round(1, taken, taken, others))
        return times

    def _set_aside(self, times: Mapping[str, float]) -> None:
        """Who is so slow that rounds would not fit, and so far behind that one call tells it."""
        best = min(times.values())
        for runner in sorted(self.racing, key=lambda r: times.get(r.name, 0.0), reverse=True):
            needed = decision.LEAST_ROUNDS * self._round_seconds(self.racing, times)
            if needed <= self.budget.left or times.get(runner.name, 0.0) <= decision.FAR * best:
                break
            runner.aside = True

    def _round_seconds(self, runners: Sequence[Runner], times: Mapping[str, float]) -> float:
        """About what a round of them takes."""
        blocks = [self.calls * times.get(runner.name, 0.0) for runner in runners]
        return max(decision.ROUND_SECONDS, sum(blocks))

    def _round(
        self, runners: Sequence[Runner], number: int, times: Mapping[str, float]
    ) -> Round | None:
        """Turns that fill a round; None if a runner failed, which is then out."""
        timed: dict[str, list[float]] = {runner.name: [] for runner in runners}
        for runner in runners:
            if not self._make_ready(runner):
                return None
        self._others.cores()
        end = self.budget.now() + decision.ROUND_SECONDS
        while True:
            for i in self._rng.permutation(len(runners)):
                runner = runners[i]
                if self.budget.is_spent:
                    raise OutOfTime
                usual = times.get(runner.name, 0.0)
                short = min(timed[runner.name], default=usual) < COLD_CALL
                answer = self._turn(runner, self.calls, int(short), usual)
                if answer.state is not State.OK:
                    return None
                if min(answer.value) <= 0:
                    continue  # a clock that went backwards: that block tells nothing
                timed[runner.name] += answer.value
                time.sleep(PAUSE)
            if self.budget.now() >= end and all(timed.values()):
                break
            if self.budget.now() >= end + 60 * decision.ROUND_SECONDS:
                return None
        lowest = {name: min(calls) for name, calls in timed.items()}
        mean = {name: fmean(calls) for name, calls in timed.items()}
        return self._keep_round(number, lowest, mean, self._others.cores() or 0.0)

    def _keep_round(
        self, number: int, lowest: dict[str, float], mean: dict[str, float], others: float
    ) -> Round:
        for runner in self.runners:
            if runner.name in lowest:
                self.keep(runner, "lowest_s", lowest[runner.name], round=number)
                self.keep(runner, "mean_s", mean[runner.name], round=number)
                self.keep(runner, "others_cores", others, round=number)
        return Round(lowest, mean, others)

    def _turn(self, runner: Runner, calls: int, discard: int, seconds: float) -> Answer:
        """One that only ran out of the budget has not failed."""
        hangs = HANGS * (calls + discard) * max(seconds, runner.predicted) + HANGS_SECONDS
        patience = self.budget.patience
        answer = self.ask(
            runner, trials.run_turn, timeout=min(hangs, patience), calls=calls, discard=discard
        )
        if answer.state is State.TIMEOUT:
            if patience <= hangs:
                runner.fail(State.OK, "")
                raise OutOfTime
            self.keep(runner, "at_least_s", hangs / (calls + discard))
        return answer

    # --- asking and keeping ---

    def report(self, what: str) -> None:
        self._report(self.budget.spent, what)

    def keep(self, runner: Runner, measure: str, value: float, **extra: Any) -> None:
        if "round" not in extra:
            runner.once[measure] = value
        reason = runner.remark if measure == "with_transfer_s" else ""
        self._put(runner, measure=measure, value=value, reason=reason, **extra)

    def keep_failure(self, runner: Runner) -> None:
        """So that it is not found out again as long as nothing changes."""
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
        if not self._make_ready(runner):
            return Answer(runner.state, None, runner.reason)
        return self._ask(
            runner, function, self.budget.patience if timeout is None else timeout, options
        )

    def _make_ready(self, runner: Runner) -> bool:
        """Its library is loaded, which is set-up, and its data in place, in the present process."""
        worker = self._workers.of(runner.process)
        if worker.pid is not None and self._ready.get(runner.name) == worker.pid:
            return True
        with self.budget.setting_up():
            self.report(f"setting up {runner.name}")
            threads = {"threads": self._workers.threads}
            answer = self._ask(runner, trials.run_loading, SETUP_SECONDS, threads)
        if isinstance(answer.value, Obstacle):
            runner.fail(*answer.value)
        if runner.state is not State.OK:
            return False
        first, second = answer.value
        # What is computed on the way is no set-up.
        self.budget.charge(min(first, second) + second)
        runner.once.setdefault("loading_s", max(first - second, 0.0))
        self._ready[runner.name] = worker.pid
        return self._ask(runner, trials.run_placing, self.budget.patience, {}).state is State.OK

    def _ask(
        self, runner: Runner, function: Callable[..., Any], timeout: float, options: dict[str, Any]
    ) -> Answer:
        case = runner.case or self.case
        answer = self._workers.of(runner.process).ask(
            function,
            Subject("descriptor", case.descriptor),
            runner.candidate,
            case,
            timeout=timeout,
            words=_WORDS[function],
            **options,
        )
        if answer.state is State.TIMEOUT:
            after = f"given up after {readable(timeout, 'time')}: {_WORDS[function]}"
            runner.fail(answer.state, f"{after} had not ended")
        elif answer.state is not State.OK:
            runner.fail(answer.state, answer.reason)
            if answer.state in (State.ERROR, State.OUT_OF_MEMORY):
                self.keep_failure(runner)
        return answer


def without(found: Round, fit: Sequence[Runner]) -> Round:
    names = {runner.name for runner in fit}
    return Round(
        {name: t for name, t in found.lowest.items() if name in names},
        {name: t for name, t in found.mean.items() if name in names},
        found.others,
    )


def overall(standing: Standing, doubt: str, undecided: Sequence[Runner] = ()) -> Verdict:
    """The verdict on the whole comparison."""
    if standing.verdict is None or doubt or undecided:
        return Verdict.UNKNOWN
    return standing.verdict
