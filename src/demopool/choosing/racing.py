"""A race: candidates of one case take turns in workers, until the decision is made.

Every backend has a worker, a process of its own. What is measured is handed over as samples at once
and can be resumed later: a race goes on where it was interrupted. Who is eligible is found in
``qualifying.py``, the decision itself in ``rule.py``, what may be spent in ``budget.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from ..common.units import readable
from ..measurement.others import Others
from ..problem.cases import Case
from ..problem.vocabulary import State, Verdict
from ..profiles import costs
from ..trials.samples import Phase, Sample
from . import rule
from .budget import Budget, OutOfTime
from .rule import Round, Standing
from .runners import Asking, ProgressCallback, Runner, Workers
from .totals import Totals

PAUSE = 0.006
"""Seconds between two blocks, in which threads of the last one fall asleep."""

COLD_CALL = 0.02
"""Calls shorter than this are run once, uncounted, at the start of a block."""


class Known(NamedTuple):
    """What earlier races found out about a candidate: its state, and what is measured once."""

    state: State
    reason: str
    once: Mapping[str, float]


@dataclass(frozen=True)
class Earlier:
    """An earlier race that can go on; ``bounds`` has a measure and seconds of who is out of it."""

    session: str
    calls: int
    rounds: Sequence[Round]
    confirming: Sequence[Round]
    bounds: Mapping[str, tuple[str, float]]


@dataclass(frozen=True)
class Result:
    """What a race has shown, when it is over: a copy, which nothing changes any more.

    reason      why the verdict of the rounds does not hold
    undecided   who could be the best for all that is known
    judged      the rounds as the rule saw them: of a job of many calls, its totals
    """

    case: Case
    session: str
    runners: tuple[Runner, ...]
    undecided: tuple[Runner, ...]
    rounds: tuple[Round, ...]
    confirming: tuple[Round, ...]
    standing: Standing
    reason: str
    budget_s: float
    spent_s: float
    setup_s: float
    judged: tuple[Round, ...]
    totals: Totals | None

    @property
    def state(self) -> Verdict:
        """The verdict on the whole comparison."""
        if self.standing.verdict is None or self.reason or self.undecided:
            return Verdict.UNKNOWN
        return self.standing.verdict


class Race(Asking):
    """The candidates of one case, and the rounds so far."""

    def __init__(
        self,
        case: Case,
        runners: Iterable[Runner],
        workers: Workers,
        budget: Budget,
        *,
        save: Callable[[Sample], None] = lambda sample: None,
        progress: ProgressCallback = lambda seconds, what: None,
        job_calls: int | None = None,
    ) -> None:
        super().__init__(case, workers, budget, save=save, progress=progress)
        self.runners = list(runners)
        self.job_calls = job_calls
        self.rounds: list[Round] = []
        self.confirming: list[Round] = []
        self.calls = 1
        self._at_most = 170
        self._rng = np.random.default_rng()
        self._others = Others(workers.pids)

    @property
    def fit(self) -> list[Runner]:
        return [runner for runner in self.runners if runner.state is State.OK]

    @property
    def racing(self) -> list[Runner]:
        """Candidates that take part in the rounds."""
        return [runner for runner in self.runners if runner.is_right and not runner.aside]

    @property
    def totals(self) -> Totals | None:
        """Decide, if the job is one of many calls."""
        first = {r.name: r.once["first_call_s"] for r in self.runners if "first_call_s" in r.once}
        return None if self.job_calls is None else Totals(self.job_calls, first)

    def judged(self, rounds: Sequence[Round]) -> list[Round]:
        """Rounds as the rule is to see them."""
        return self.totals.rounds(rounds) if self.totals else list(rounds)

    def open(self, standing: Standing) -> list[Runner]:
        """Candidates that could still be the best: neither in the rounds nor shown to be slower."""
        timed = self.rounds[0].lowest if self.rounds else {}
        undecided = [
            r
            for r in self.runners
            if r.state in (State.OK, State.TIMEOUT) and (r.name not in timed or r not in self.fit)
        ]
        lead, rounds = standing.lead, self.judged(self.rounds)
        return [
            r for r in undecided if r.bound is None or not self.is_far(r, r.bound, lead, rounds)
        ]

    def is_far(
        self, runner: Runner, bound: float, lead: str | None, rounds: Sequence[Round]
    ) -> bool:
        """Whether a call that took at least ``bound`` seconds shows that the runner is slower."""
        best = next((r for r in self.runners if r.name == lead), None)
        if best is None or not all(costs.is_modelled(r.candidate.backend) for r in (runner, best)):
            return False
        by_model = runner.predicted / best.predicted
        return rule.is_far(bound, rounds, best.name, by_model)

    def recall(self, known: Mapping[str, Known]) -> None:
        """Take over what earlier races found out about candidates."""
        for runner in self.fit:
            if runner.name in known:
                state, reason, once = known[runner.name]
                runner.fail(state, reason)
                runner.once.update(once)
                runner.judge()

    def resume(self, earlier: Earlier | None) -> None:
        """Go on with an earlier race, if there is one."""
        if earlier is None:
            return
        for runner in self.runners:
            if runner.name in earlier.bounds:
                measure, seconds = earlier.bounds[runner.name]
                runner.once[measure] = seconds
                runner.aside = measure == "call_s"
                if not runner.aside:
                    runner.fail(State.TIMEOUT, f"given up after {readable(seconds, 'time')}")
        self.session, self.calls = earlier.session, earlier.calls
        self.rounds, self.confirming = list(earlier.rounds), list(earlier.confirming)

    def result(self, standing: Standing, reason: str = "") -> Result:
        """As it stands now; ``reason`` is why a verdict does not hold."""
        self._renew_limits()
        for runner in self.runners:
            if runner.cores:
                self.keep(runner, "cores", median(runner.cores))
        copies = {
            runner.name: replace(runner, identity={**runner.identity}, once={**runner.once})
            for runner in self.runners
        }
        return Result(
            self.case,
            self.session,
            tuple(copies.values()),
            tuple(copies[runner.name] for runner in self.open(standing)),
            tuple(self.rounds),
            tuple(self.confirming),
            standing,
            reason,
            self.budget.seconds,
            self.budget.spent,
            self.budget.setup,
            tuple(self.judged(self.rounds)),
            self.totals,
        )

    def _renew_limits(self) -> None:
        """The machine may have been measured again since a candidate was checked."""
        for runner in self.runners:
            limit = self.referee.known_floor(runner.candidate, runner.case or self.case)
            if limit is not None and runner.once.get("limit_s", limit) != limit:
                self.keep(runner, "limit_s", limit)

    @property
    def _bounded(self) -> bool:
        return any(runner.bound is not None for runner in self.runners)

    def standing(self, at_most: int = 0) -> Standing:
        """``at_most``: rounds that there could have been, if they were put in."""
        return rule.standing_of(
            self.judged(self.rounds),
            calls=self.calls,
            at_most=max(self._at_most, at_most),
            bounded=self._bounded,
        )

    # --- rounds ---

    def run(self) -> Standing:
        """Rounds, after those that were put in, until it is decided or the budget is spent."""
        if rule.ROUND_SECONDS > 0:
            could = int(self.budget.seconds / rule.ROUND_SECONDS)
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
                self.progress(f"round {len(self.rounds) + 1}, {len(alive)} left")
                made = self._round(alive, len(self.rounds) + 1, times)
                if made is not None:
                    self.rounds.append(made)
                elif not self.racing:
                    break
                else:
                    # A candidate failed: without it the rounds are those of a smaller field.
                    names = [runner.name for runner in self.racing]
                    smaller = [r.only(names) for r in self.rounds]
                    judged, bounded = self.judged(smaller), self._bounded
                    kept = rule.consistent(judged, names, self.calls, bounded=bounded)
                    self.rounds = smaller[: len(kept)]
                standing = self.standing()
        except OutOfTime:
            standing = self.standing()
        return standing

    def confirm(self, standing: Standing) -> str:
        """The winner and those close to it once more, as new processes: why it does not hold.

        What was put in of earlier confirming rounds counts: bad luck is not measured away.
        """
        assert standing.lead is not None
        names = {standing.lead, *standing.close}
        runners = [runner for runner in self.fit if runner.name in names]
        wanted = rule.confirming_rounds(self.rounds)
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
                self.progress(f"new processes, round {count + 1} of {wanted}")
                made = self._round(runners, count + 1, times, Phase.CONFIRMING)
                if made is None:
                    return "a candidate failed in a new process"
                self.confirming.append(made)
        except OutOfTime:
            return late
        return rule.confirms(self.judged(self.confirming), standing.lead, standing.close)

    def _warm_up(self) -> dict[str, float]:
        """One call each: fixes the calls of a block, the same for all, and who is far behind."""
        times: dict[str, float] = {}
        for runner in self.racing:
            self.progress(f"warming up {runner.name}")
            if self.budget.is_spent:
                raise OutOfTime
            guess = runner.once.get("call_s", 0.0)
            short = guess < rule.LONG_BLOCK and not self.case.is_cold
            answer = self.turn(runner, calls=1, discard=int(short), seconds=guess)
            if answer.state is State.OK and answer.value[0] > 0:
                times[runner.name] = answer.value[0]
                self.keep(runner, "call_s", answer.value[0])
        if times and not self.rounds:
            # The calls of a cold block are not warmer than its first.
            self.calls = 1 if self.case.is_cold else rule.calls_per_block(min(times.values()))
            self._set_aside(times)
            for runner in self.racing:
                self.keep(runner, "calls", self.calls)
                self.keep(runner, "budget_s", self.budget.seconds)
                if self.job_calls is not None:
                    self.keep(runner, "job_calls", self.job_calls)
            taken = {r.name: times[r.name] for r in self.racing if r.name in times}
            # Long calls make a round of one turn each, and this was one.
            if self.calls == 1 and sum(taken.values()) > rule.ROUND_SECONDS > 0:
                others = self._others.cores() or 0.0
                self.rounds.append(self._keep_round(1, taken, taken, others))
        return times

    def _set_aside(self, times: Mapping[str, float]) -> None:
        """Candidates whose rounds would not fit, and that one call shows to be far behind."""
        for field in self._fields():
            timed = [runner for runner in field if runner in self.racing and runner.name in times]
            best = min((times[runner.name] for runner in timed), default=0.0)
            for runner in sorted(timed, key=lambda r: times[r.name], reverse=True):
                needed = rule.LEAST_ROUNDS * self._round_seconds(self.racing, times)
                if needed <= self.budget.left or times[runner.name] <= rule.FAR * best:
                    break
                runner.aside = True

    def _fields(self) -> Sequence[Sequence[Runner]]:
        """Groups that are compared when a candidate is set aside; the best of a group never is."""
        return [self.runners]

    def _round_seconds(self, runners: Sequence[Runner], times: Mapping[str, float]) -> float:
        """About what a round of them takes."""
        blocks = [self.calls * times.get(runner.name, 0.0) for runner in runners]
        return max(rule.ROUND_SECONDS, sum(blocks))

    def _round(
        self,
        runners: Sequence[Runner],
        number: int,
        times: Mapping[str, float],
        phase: Phase = Phase.ROUND,
    ) -> Round | None:
        """Turns that fill a round; None if a runner failed, which is then out."""
        timed: dict[str, list[float]] = {runner.name: [] for runner in runners}
        for runner in runners:
            if not self.make_ready(runner):
                return None
        self._others.cores()
        end = self.budget.now() + rule.ROUND_SECONDS
        while True:
            for i in self._rng.permutation(len(runners)):
                runner = runners[i]
                if self.budget.is_spent:
                    raise OutOfTime
                usual = times.get(runner.name, 0.0)
                short = min(timed[runner.name], default=usual) < COLD_CALL
                short = short and not self.case.is_cold
                answer = self.turn(runner, self.calls, int(short), usual)
                if answer.state is not State.OK:
                    return None
                if min(answer.value) <= 0:
                    continue  # a clock that went backwards: that block is void
                timed[runner.name] += answer.value
                time.sleep(PAUSE)
            if self.budget.now() >= end and all(timed.values()):
                break
            if self.budget.now() >= end + 60 * rule.ROUND_SECONDS:
                return None
        lowest = {name: min(calls) for name, calls in timed.items()}
        mean = {name: fmean(calls) for name, calls in timed.items()}
        return self._keep_round(number, lowest, mean, self._others.cores() or 0.0, phase)

    def _keep_round(
        self,
        number: int,
        lowest: dict[str, float],
        mean: dict[str, float],
        others: float,
        phase: Phase = Phase.ROUND,
    ) -> Round:
        of: dict[str, Any] = {"phase": phase, "round": number}
        for runner in self.runners:
            if runner.name in lowest:
                self.keep(runner, "lowest_s", lowest[runner.name], **of)
                self.keep(runner, "mean_s", mean[runner.name], **of)
                self.keep(runner, "others_cores", others, **of)
        return Round(lowest, mean, others)
