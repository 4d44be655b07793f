"""What was measured before, for a race that goes on.

One file of samples per case and number of threads. They count while the fingerprint of the machine
and its software and the code of the candidate are what they were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ..errors import InvalidInput
from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.vocabulary import State
from ..trials import samples
from ..trials.samples import Phase, Sample
from . import rule
from .racing import Earlier, Known, Race
from .rule import Round, Standing
from .runners import Runner

# Only together with the rounds of the same race: what was seen at another time, under another load,
# says nothing about who was fastest then.
_OF_A_RACE = ("at_least_s", "call_s", "calls", "needs_s", "budget_s", "job_calls")
_OF_A_ROUND = ("lowest_s", "mean_s", "others_cores")
SHORTEST, LONGEST = 1e-9, 1e8


def file(case: Case, threads: int) -> Path:
    """One file per case; its name is for people, the digest for what the name leaves out."""
    fields = asdict(case)
    if not case.is_cold:
        del fields["caches"]  # which cases did not have when the first files were written
    described = json.dumps([fields, threads], sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    name = f"{case.descriptor}-b{case.batch}-n{case.n}-d{case.d}-{case.dtype}-{digest}.jsonl"
    return samples.folder() / name


class EarlierSamples:
    """The samples of a file that fit the runners of a race: same machine, libraries and code.

    ``retry``: without what is known of candidates that were wrong, crashed or were given up.
    """

    def __init__(self, found: Path | Iterable[Sample], race: Race, *, retry: bool = False) -> None:
        self._race, self._retry = race, retry
        if isinstance(found, Path):
            try:
                found = list(samples.read(found))
            except InvalidInput:
                found = []
        same = {runner.name: runner.identity for runner in race.fit}
        self._fitting = [s for s in found if _identity(s) == same.get(name_of(s))]

    def known(self, session: str = "") -> dict[str, Known]:
        """What is measured once, and who was wrong or crashed, or failed in this ``session``.

        A lack of memory may have been that of another moment: it is tried again.
        """
        found: dict[str, Known] = {}
        for s in self._fitting:
            state, reason, once = found.get(name_of(s), (State.OK, "", {}))
            if s.value is None:
                if s.state in (State.WRONG, State.ERROR) or s.session == session:
                    state, reason = s.state, s.reason
            elif s.phase is not Phase.ONCE:
                if state is State.OUT_OF_MEMORY:
                    state, reason = State.OK, ""  # it raced again since
            elif s.measure not in _OF_A_RACE:
                once = {**once, s.measure: s.value}
                if s.measure == "error":
                    state, reason = State.OK, ""  # it was checked again since, and is right
            found[name_of(s)] = Known(state, reason, once)
        if self._retry:
            return {name: known for name, known in found.items() if known.state is State.OK}
        return found

    def earlier(self, field: Sequence[Runner], *, goes_on: bool = True) -> Earlier | None:
        """The latest race of this field, with who was far behind it or set aside.

        A candidate of the field that was never seen in it would be new to its rounds: the race
        begins anew. So it does if a longer budget could decide what these rounds leave open, and if
        they leave open a job of another number of calls: other candidates were dropped.
        """
        race = self._race
        runners = {runner.name: runner for runner in race.fit}
        raced = (s.session for s in reversed(self._fitting) if s.phase is Phase.ROUND)
        for session in dict.fromkeys(raced):
            of_session = [s for s in self._fitting if s.session == session]
            calls = [int(s.value) for s in of_session if s.measure == "calls" and s.value]
            # A candidate that failed in the middle is not in the rounds of the others.
            rounds = [r.only(runners) for r in rounds_of(of_session)]
            if not calls or not rounds or not rounds[0].lowest:
                continue
            bounds = {
                name: bound
                for name, bound in _bounds(of_session, rounds).items()
                if not (self._retry and bound[0] == "at_least_s")
            }
            totals = race.totals
            if totals and not rounds[0].lowest.keys() <= totals.first.keys():
                continue
            rounds = self._consistent(rounds, rounds[0].lowest.keys(), calls[0], bounded=True)
            standing = rule.standing_of(race.judged(rounds), calls=calls[0], bounded=True)
            is_open = standing.verdict is None or standing.close
            if goes_on and is_open and job_calls(of_session) != race.job_calls:
                continue
            slow = {
                name: bound
                for name, bound in bounds.items()
                if name in runners
                and (
                    race.is_far(runners[name], bound[1], standing.lead, race.judged(rounds))
                    or (
                        bound[0] == "call_s"
                        and not self._should_return(of_session, bound[1], standing, rounds)
                    )
                )
            }
            names = [runner.name for runner in field if runner.name not in slow]
            rounds = self._consistent(rounds, names, calls[0], bounded=bool(slow))
            if rounds:
                again = rounds_of(of_session, Phase.CONFIRMING)
                return Earlier(session, calls[0], rounds, again, slow)
        return None

    def _consistent(
        self, rounds: list[Round], names: Collection[str], calls: int, *, bounded: bool
    ) -> list[Round]:
        kept = rule.consistent(self._race.judged(rounds), names, calls, bounded=bounded)
        return rounds[: len(kept)]

    def _should_return(
        self,
        of_session: Sequence[Sample],
        seconds: float,
        standing: Standing,
        rounds: Sequence[Round],
    ) -> bool:
        """Whether new rounds may decide if a candidate that was set aside is slower."""
        budget = self._race.budget.seconds
        before = [s.value or 0.0 for s in of_session if s.measure == "budget_s"]
        if len(rounds) < rule.LEAST_ROUNDS or budget <= max(before, default=budget):
            return False
        calls = max(s.value or 1.0 for s in of_session if s.measure == "calls")
        needed = rule.LEAST_ROUNDS * calls * (seconds + sum(rounds[0].lowest.values()))
        return standing.verdict is not None or needed <= budget


def job_calls(of_session: Iterable[Sample]) -> int | None:
    """What a race was for; None if it was for calls alone."""
    return next((int(s.value) for s in of_session if s.measure == "job_calls" and s.value), None)


def name_of(sample: Sample) -> str:
    return str(Candidate(sample.backend, sample.route))


def _identity(sample: Sample) -> dict[str, str]:
    return {"fingerprint": sample.fingerprint, "code": sample.code}


def _bounds(of_session: Sequence[Sample], rounds: Sequence[Round]) -> dict[str, tuple[str, float]]:
    """Of candidates outside the rounds: a call that was given up, or the only one timed.

    Those that were to take part have a number of calls, and those that failed have no value.
    """
    entered = {name_of(s) for s in of_session if s.measure == "calls" or s.value is None}
    found: dict[str, tuple[str, float]] = {}
    for s in of_session:
        bound = s.measure == "at_least_s" or (s.measure == "call_s" and name_of(s) not in entered)
        if bound and s.value is not None and name_of(s) not in rounds[0].lowest:
            found[name_of(s)] = (s.measure, s.value)
    return found


def rounds_of(
    of_session: Iterable[Sample],
    phase: Phase = Phase.ROUND,
    name: Callable[[Sample], str] = name_of,
) -> list[Round]:
    """Of a session, in order.

    A race that goes on warms up first. Rounds that it then makes again, because other candidates
    take part, replace those from before: one round is of one moment.
    """
    measured: dict[int, dict[str, dict[str, float]]] = {}
    warmed_up = False
    for s in of_session:
        if warmed_up and s.phase is phase:
            measured = {number: found for number, found in measured.items() if number < s.round}
        warmed_up = s.measure == "call_s" or (warmed_up and s.phase is not phase)
        if (
            s.phase is phase
            and s.measure in _OF_A_ROUND
            and s.value is not None
            and _can_be(s.measure, s.value)
        ):
            by_measure = measured.setdefault(s.round, {m: {} for m in _OF_A_ROUND})
            by_measure[s.measure][name(s)] = s.value
    found: list[Round] = []
    while len(found) + 1 in measured:
        lowest, mean, others = measured[len(found) + 1].values()
        names = [n for n in lowest if n in mean]
        if not names:
            break
        found.append(
            Round(
                {n: lowest[n] for n in names},
                {n: mean[n] for n in names},
                max(others.values(), default=0.0),
            )
        )
    return found


def _can_be(measure: str, value: float) -> bool:
    """Files can be damaged: no clock here reads less than a nanosecond, nobody waits for years."""
    return value >= 0 if measure == "others_cores" else SHORTEST <= value <= LONGEST
