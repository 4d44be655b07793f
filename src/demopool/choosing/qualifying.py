"""Which candidates are eligible to race: those that conform and fit the budget.

The cost model, with prices fitted to this machine where there are some, plans it: candidates that
are predicted to be fastest are tried first, and what does not fit is left out, with the reason. The
model knows nothing of today's load, so what was measured so far corrects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ..common.units import readable
from ..contract import registry
from ..machine import fingerprint
from ..measurement.code_identity import code_key
from ..measurement.worker import SETUP_SECONDS
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import State
from ..profiles import estimates
from ..profiles.eligibility import CallLimits, ineligible, limits_here, predicted_seconds
from ..trials import requests
from ..trials.judgement import twin
from ..trials.measures import ONCE, Where
from .budget import QUALIFYING, SOON
from .racing import Race
from .runners import Runner

GIVEN_UP, GIVEN_UP_SECONDS = 12.0, 2.0
"""A first call is given up when it exceeds both: this multiple of the best one's, these seconds."""

_REFERENCE_SECONDS = 1.0
_EFFORT_OF_BUDGET = 0.05
"""The reference may take about a second for a check, or this share of a small budget."""

_CHECKED = ("first_call_s", "error")
"""Measured while a candidate is checked; the others of ``ONCE`` come after it."""


def runners(
    case: Case,
    candidates: Sequence[Candidate],
    memory_bytes: float | None,
    max_error: float | None = None,
) -> list[Runner]:
    """With what is known without starting a process, the fastest by prediction first."""
    subject = Subject("descriptor", case.descriptor)
    machine = fingerprint.key(fingerprint.fingerprint())
    found = []
    for candidate in candidates:
        prices = estimates.prices(candidate.backend, case.dtype)
        runner = Runner(candidate, predicted_seconds(subject, candidate, case, prices))
        runner.max_error = max_error
        runner.identity = {"fingerprint": machine, "code": code_key(candidate.backend)}
        limits = limits_here(candidate.backend)
        if memory_bytes is not None:
            limits = CallLimits(None, min(memory_bytes, limits.bytes or memory_bytes))
        refusal = ineligible(subject, candidate, case, limits)
        if refusal:
            runner.fail(*refusal, untried=True)
        found.append(runner)
    return sorted(found, key=lambda runner: runner.predicted)


def qualify(race: Race) -> None:
    """First calls, checks and memory, as far as a part of the budget goes."""
    try:
        _qualify(race)
    finally:
        race.conformance.close()


def rule_out(race: Race) -> None:
    """Those that are known not to conform, without starting a process."""
    if race.conformance.retry:
        return
    for runner in race.fit:
        refusal = race.conformance.known_refusal(runner.candidate, runner.case or race.case)
        if refusal:
            runner.fail(*refusal)


def _qualify(race: Race) -> None:
    checks: list[float] = []
    tried = False  # one is, however small the budget
    for runner in race.fit:
        needed = _seconds(race, runner, checks)
        late = any(r.is_right for r in race.runners) and needed > _left(race)
        if late or (tried and race.budget.is_spent):
            if not runner.is_right:
                race.keep(runner, "needs_s", needed)
                runner.needs = needed
                runner.fail(
                    State.TIMEOUT,
                    f"left out: about {readable(needed, 'time')} to check and time it would not "
                    f"fit the budget of {readable(race.budget.seconds, 'time')}",
                    untried=True,
                )
            continue
        if not _conforms(race, runner):
            continue
        if not runner.is_right:
            tried = True
            _check(race, runner, checks)
        if runner.is_right:
            _measure_once(race, runner)


def _conforms(race: Race, runner: Runner) -> bool:
    """By the quick examples of ``demopool check``, which is set-up."""
    case = runner.case or race.case
    with race.budget.setting_up():
        refusal = race.conformance.refusal(runner.candidate, case, race.progress)
    if refusal:
        runner.fail(*refusal)
    return refusal is None


def _left(race: Race) -> float:
    """Seconds that may be spent before the race; all there are, if it would be a race of one."""
    share = QUALIFYING if sum(runner.is_right for runner in race.runners) > 1 else 1.0
    return share * race.budget.seconds - race.budget.spent


def _seconds(race: Race, runner: Runner, checks: Sequence[float]) -> float:
    """About what it takes until the runner can race, or is given up, from what others took."""
    call = _slowness(race) * runner.predicted
    calls = 2 + len(_missing(race, runner))
    if runner.is_right:
        return calls * call
    given_up = _patience(race, runner)
    if call > given_up:
        return given_up
    check = max(checks) if checks else _effort(race)
    return (calls + 1) * call + check


def _patience(race: Race, runner: Runner) -> float:
    """How long a first call is waited for."""
    best = min((r.once["call_s"] for r in race.racing if "call_s" in r.once), default=None)
    if best is None:
        # The best one by prediction must not cost all others their chance.
        return max(_left(race) / 4, GIVEN_UP * runner.predicted, SOON)
    return max(GIVEN_UP_SECONDS, GIVEN_UP * best)


def _slowness(race: Race) -> float:
    """How many times what was predicted the calls took so far; never less than once."""
    ratios = [r.once["call_s"] / r.predicted for r in race.runners if "call_s" in r.once]
    return max(1.0, median(ratios)) if ratios else 1.0


def _effort(race: Race) -> float:
    """Seconds for the reference to check a candidate."""
    return min(_REFERENCE_SECONDS, _EFFORT_OF_BUDGET * race.budget.seconds)


def _check(race: Race, runner: Runner, checks: list[float]) -> None:
    """The first call of all is timed before the reference is asked."""
    if not race.make_ready(runner):
        return
    patience = min(_patience(race, runner), race.budget.patience)
    race.progress(f"first call of {runner.name}")
    first = race.ask(runner, requests.run_first_call, timeout=patience)
    if first.state is State.TIMEOUT:
        race.keep(runner, "at_least_s", patience)
    if first.state is not State.OK:
        return
    if first.value > 0:  # else the clock went backwards
        race.keep(runner, "call_s", first.value)
    # What loading it took belongs to the first call that a process makes. So may what was loaded
    # and compiled before, in the same process, for another route of its backend.
    others = [r for r in race.runners if r.process == runner.process and r is not runner]
    shared = max((r.once["compile_s"] for r in others if race.was_loaded(r)), default=0.0)
    compiling = runner.once.get("compile_s", 0.0) + shared
    race.keep(runner, "first_call_s", first.value + compiling)
    race.progress(f"checking {runner.name}")
    on = twin(runner.case or race.case, _effort(race))
    if not _compile_twin(race, runner, on):
        return
    before = race.budget.spent
    answer = race.ask(runner, requests.run_descriptors, on=on, pool=race.referee.pool)
    if answer.state is not State.OK:
        return
    judgement = race.referee.judge(runner.candidate, on, answer.value)
    checks.append(race.budget.spent - before)
    if judgement.is_right:
        race.keep(runner, "error", judgement.error)
        limit = race.referee.floor(runner.candidate, runner.case or race.case)
        if limit is not None:
            race.keep(runner, "limit_s", limit)
        runner.judge()
        return
    runner.fail(
        State.WRONG,
        f"its error is {judgement.error:.2g}, allowed are {judgement.tolerance:.2g} "
        f"(judged on {on.batch} images, n={on.n}, d={on.d})",
    )
    race.keep_failure(runner)


def _compile_twin(race: Race, runner: Runner, on: Case) -> bool:
    """Of a library that compiles for every shape, as set-up; whether it went well."""
    if registry.compiles_per(runner.candidate.backend) != "shape":
        return True
    with race.budget.setting_up():
        asked = {"on": on, "pool": race.referee.pool}
        answer = race.ask(runner, requests.run_descriptors, timeout=SETUP_SECONDS, **asked)
    return answer.state is State.OK


def _missing(race: Race, runner: Runner) -> list[str]:
    """What is measured once, apart from the first call and the error."""
    on_host = runner.candidate.backend.on_host
    wanted = {Where.EVERYWHERE} if on_host else {Where.EVERYWHERE, Where.DEVICES}
    if not on_host and race.case.data == "device" and not race.case.is_cold:
        wanted.add(Where.TRANSFERS)  # else it is what the race times, or would be warm
    known = {*_CHECKED, *runner.once}
    return [m.name for m in ONCE.values() if m.where in wanted and m.name not in known]


def _measure_once(race: Race, runner: Runner) -> None:
    """Memory, and transfers where the race leaves them out; what does not fit is not measured."""
    for measure in _missing(race, runner):
        call = runner.once.get("call_s", runner.predicted)
        calls = 5 if ONCE[measure].where is Where.TRANSFERS else 1
        if calls * call > _left(race):
            continue
        race.progress(f"{ONCE[measure].words} of {runner.name}")
        answer = race.ask(runner, requests.run_measure, measure=measure, warm=race.is_warm(runner))
        if answer.state is State.OK:
            found = answer.value
            if found.value is not None:
                runner.warning = found.warning or runner.warning
                race.keep(runner, measure, found.value, reason=found.warning)
        elif answer.state is State.TIMEOUT:
            runner.fail(State.OK, "")  # it was checked and can race; only this is not known
        else:
            return
