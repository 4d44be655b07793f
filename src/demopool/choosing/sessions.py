"""Races as their samples have them: the way back from what is stored to the answer.

The same code puts the samples into a race as when ``choose`` goes on, and the same code says what
they show: so that the command line, JSON and the report say the same of the same race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..common.units import readable
from ..errors import DemopoolError
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import State, Verdict
from ..profiles import estimates
from ..profiles.eligibility import predicted_seconds
from ..trials.samples import Phase, Sample
from . import rule
from .answer_types import Choice
from .budget import Budget
from .earlier_samples import EarlierSamples, name_of
from .racing import Race
from .ranking import answer
from .runners import Runner, Workers

_UNCONFIRMED = "the budget ended before new processes had confirmed it"


@dataclass(frozen=True)
class Rebuilt:
    """The newest race of a case on one machine and number of threads, and its answer.

    load   how many cores others used meanwhile; None if it was not written down
    """

    fingerprint: str
    threads: int
    case: Case
    choice: Choice
    measured_at: str
    load: float | None = None


def rebuilt(found: Iterable[Sample]) -> Iterator[Rebuilt]:
    """Of every machine, number of threads and case with at least one whole round."""
    groups: dict[tuple[str, int, Case], list[Sample]] = {}
    for s in found:
        groups.setdefault((s.fingerprint, s.threads, s.case), []).append(s)
    for (fingerprint, threads, case), own in groups.items():
        own.sort(key=lambda s: s.measured_at)
        race = _race(case, threads, own)
        if race is None:
            continue
        of_session = [s for s in own if s.session == race.session]
        choice = _answer(race, threads)
        loads = [s for s in of_session if s.measure == "others_cores" and s.phase is Phase.ROUND]
        load = choice.others_cores if loads else None
        last = max(s.measured_at for s in of_session)
        yield Rebuilt(fingerprint, threads, case, choice, last, load)


def _race(case: Case, threads: int, own: Sequence[Sample]) -> Race | None:
    """The newest race with its rounds put in; None if there is none."""
    raced = dict.fromkeys(s.session for s in reversed(own) if s.phase is not Phase.ONCE)
    if not raced:
        return None
    # A race for a job of many calls says less about a call: it counts if there is no other.
    of_jobs = {s.session for s in own if s.measure == "job_calls"}
    session = next((name for name in raced if name not in of_jobs), next(iter(raced)))
    runners = list(_runners(case, [s for s in own if s.session == session]))
    budgets = [s.value for s in own if s.session == session and s.measure == "budget_s"]
    budget = Budget(budgets[-1] or 0.0 if budgets else 0.0, now=lambda: 0.0)
    race = Race(case, runners, Workers(threads), budget)
    before = EarlierSamples(own, race)
    race.recall(before.known(session))
    # First all that were eligible; if some of them never raced, only those that did.
    for field in (race.fit, race.racing):
        if not race.rounds:
            race.resume(before.earlier(field, goes_on=False))
    return race if race.rounds else None


def _runners(case: Case, of_session: Sequence[Sample]) -> Iterator[Runner]:
    """Every candidate of a session: raced, failed or left out."""
    subject = Subject("descriptor", case.descriptor)
    newest = {name_of(s): s for s in of_session}
    for name, last in newest.items():
        candidate = Candidate.parse(name)
        try:
            prices = estimates.prices(candidate.backend, case.dtype)
            predicted = predicted_seconds(subject, candidate, case, prices)
        except (DemopoolError, KeyError, ArithmeticError):
            continue  # a route, or a backend, that this version has never heard of
        runner = Runner(candidate, predicted)
        runner.identity = {"fingerprint": last.fingerprint, "code": last.code}
        if last.measure == "needs_s":
            runner.needs = last.value or 0.0
            needed = readable(runner.needs, "time")
            reason = f"left out: about {needed} to check and time it did not fit"
            runner.fail(State.TIMEOUT, reason, untried=True)
        yield runner


def _answer(race: Race, threads: int) -> Choice:
    """What ``choose`` says to these rounds, in its words."""
    could = int(race.budget.seconds / rule.ROUND_SECONDS) if rule.ROUND_SECONDS else 0
    standing = race.standing(at_most=max(len(race.rounds), could))
    reason = ""
    if standing.verdict is Verdict.FASTEST and standing.close and standing.lead:
        names = {standing.lead, *standing.close}
        again = [r for r in race.confirming if names <= r.lowest.keys()]
        reason = _UNCONFIRMED
        if len(again) >= rule.confirming_rounds(race.rounds):
            reason = rule.confirms(again, standing.lead, standing.close)
    return answer(
        race.result(standing, reason),
        (),
        threads=threads,
        reused=True,
        interrupted=False,
        restricted=False,
        warnings=(),
    )
