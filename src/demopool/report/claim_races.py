"""The races that the paper's claims need: for each one race of exactly the candidates it compares.

Entrants of both sides take turns as in ``choose``, each descriptor and backend in a process of its
own. Within a side, a candidate that was slower than its best by more than 1 + 4 / rounds in every
round does not go on; the two sides' best stay until the end. The number of rounds is fixed
beforehand, so that the interval of the ratio is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

from ..choosing import qualifying
from ..choosing.budget import Budget, OutOfTime
from ..choosing.racing import Race
from ..choosing.referee import JudgeFailed
from ..choosing.runners import ProgressCallback, Runner, Workers
from ..contract import registry
from ..errors import InvalidInput
from ..machine import fingerprint, system
from ..measurement import code_identity
from ..problem.candidates import Candidate, Subject
from ..problem.routes import Sizes, find
from ..problem.vocabulary import TIMED_BACKENDS, State
from ..profiles.eligibility import predicted_bytes, predicted_seconds
from ..trials import requests, samples
from ..trials.samples import Phase, Sample
from . import claims
from .claims import CLAIMS, SESSION, Claim, Side

BUDGET = 60.0
"""Seconds for one claim; starting processes, importing and compiling come on top."""

ROUNDS = 15
FAR_BEHIND = {"lowest_s": 6.0, "peak_host_bytes": 2.0}
"""Times the best prediction of a side: the cost model is within a factor of 2 of most times, and
nearer to the memory."""

_BEFORE_ANYBODY_STOPS = 3


def measure(
    known: list[Sample],
    *,
    budget: float = BUDGET,
    threads: int | None = None,
    fresh: bool = False,
    progress: ProgressCallback = lambda seconds, what: None,
) -> list[Sample]:
    """Race every claim that has no race of this machine and its present code; all new samples."""
    threads = threads or system.usual_threads()
    here = fingerprint.key(fingerprint.fingerprint())
    measured = claims.races(known)
    found: list[Sample] = []
    for claim in CLAIMS:
        before = measured.get(claim.key, {}).get((here, threads), [])
        if not fresh and before and _is_current(before) and claims.verify(claim, before).measured:
            continue
        with Workers(threads) as workers:
            found += race(claim, workers, budget=budget, progress=progress)
    return found


def _is_current(of_session: list[Sample]) -> bool:
    return all(s.code == code_identity.code_key(s.backend) for s in of_session)


def race(
    claim: Claim,
    workers: Workers,
    *,
    budget: float = BUDGET,
    progress: ProgressCallback = lambda seconds, what: None,
) -> list[Sample]:
    """The samples, which are on disk the moment they are measured."""
    found: list[Sample] = []
    path = samples.folder() / "claims" / f"{claim.key}-t{workers.threads}.jsonl"

    def save(sample: Sample) -> None:
        found.append(sample)
        with suppress(InvalidInput):  # a cache that cannot be written must not cost the measurement
            samples.append(path, [sample])

    def of_claim(seconds: float, what: str) -> None:
        progress(seconds, f"{claim.key}: {what}")

    running = ClaimRace(claim, workers, budget, save, of_claim)
    with suppress(OutOfTime, JudgeFailed):
        qualifying.qualify(running)
        if claim.measure == "lowest_s":
            running.take_turns()
        else:
            running.weigh(claim)
    return found


def entrants(claim: Claim, side: Side, backends: list[str]) -> list[Candidate]:
    """Possible best of a side: all candidates that the cost model does not put far behind."""
    subject = Subject("descriptor", side.case.descriptor)
    predicted = predicted_seconds if claim.measure == "lowest_s" else predicted_bytes
    sizes = Sizes(side.case.n, side.case.d, side.case.p)
    costs = {
        candidate: predicted(subject, candidate, side.case)
        for candidate in side.candidates(backends)
        if not any(
            isinstance(found := find(*step), str) or found.domain.excludes(sizes)
            for step in subject.steps(candidate.route).items()
        )
    }
    least = min(costs.values(), default=0.0)
    return [
        candidate for candidate, cost in costs.items() if cost <= FAR_BEHIND[claim.measure] * least
    ]


class ClaimRace(Race):
    """Its runners have cases of their own."""

    def __init__(
        self,
        claim: Claim,
        workers: Workers,
        budget: float,
        save: Callable[[Sample], None],
        progress: ProgressCallback,
    ) -> None:
        present: list[str] = [
            name for name in TIMED_BACKENDS if registry.probe(name).state is State.OK
        ]
        self.sides = [
            [
                replace(runner, case=side.case)
                for runner in qualifying.runners(side.case, entrants(claim, side, present), None)
            ]
            for side in claim.sides
        ]
        # The sides take turns here too: a budget that ends early should not cost one of them.
        order = [r for turn in zip_longest(*self.sides) for r in turn if r is not None]
        super().__init__(
            claim.ours.case, order, workers, Budget(budget), save=save, progress=progress
        )
        self.session = f"{SESSION}{claim.key}:{self.session}"

    def take_turns(self) -> None:
        """Rounds of the candidates that are left of each side."""
        times = self._warm_up()
        while len(self.rounds) < ROUNDS and not self.budget.is_spent:
            left = [self._left(side) for side in self.sides]
            if not all(left):
                return  # there is nothing to compare with
            alive = [runner for side in left for runner in side]
            self.progress(f"round {len(self.rounds) + 1} of {ROUNDS}")
            made = self._round(alive, len(self.rounds) + 1, times)
            if made is not None:
                self.rounds.append(made)
            elif not self.racing:
                return

    def _fields(self) -> list[list[Runner]]:
        return self.sides

    def _left(self, side: list[Runner]) -> list[Runner]:
        """Candidates in all rounds that were not slower than the side's best in every one."""
        fit = [runner for runner in side if runner in self.racing]
        whole = [r for r in fit if all(r.name in made.lowest for made in self.rounds)]
        best = claims.best_of(self.rounds, {r.name for r in whole})
        count = len(self.rounds)
        if best is None or count < _BEFORE_ANYBODY_STOPS:
            return fit if not self.rounds else whole
        return [
            r
            for r in whole
            if any(m.lowest[r.name] < (1 + 4 / count) * m.lowest[best] for m in self.rounds)
        ]

    def weigh(self, claim: Claim) -> None:
        """The memory of a call, a few times; the first is from the qualification."""
        for runner in self.racing:
            for number in range(2, claims.READINGS + 1):
                answer = self.ask(runner, requests.run_measure, measure=claim.measure, warm=True)
                if answer.state is State.OK and answer.value.value is not None:
                    of = {"phase": Phase.ROUND, "round": number}
                    self.keep(runner, claim.measure, answer.value.value, **of)
