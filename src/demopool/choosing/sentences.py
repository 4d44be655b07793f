"""What an answer says in words: the sentence to act on, and what disturbed the race."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, inf, log

from ..common.units import readable
from ..measurement import clock
from ..problem.vocabulary import State, Verdict
from . import printing, rule
from .answer_types import Ranked
from .budget import QUALIFYING
from .racing import Result
from .rule import BUSY_CORES, Round, Standing
from .totals import DOUBT, FIRST_CALL_OFF, pays_after

UNASKED_CORES = 0.3
"""More than the threads that were asked for, from which on it is told."""

LONG_ENOUGH = 8
"""Rounds, so that the halves of a race can be compared."""


class Sentence:
    """The sentence to act on, and its parts."""

    def __init__(
        self,
        race: Result,
        restricted: bool = False,
        max_memory: float | None = None,
        interrupted: bool = False,
        max_error: float | None = None,
    ) -> None:
        self.interrupted, self.max_error = interrupted, max_error
        self.budget, self.rounds = race.budget_s, race.rounds
        self.restricted, self.max_memory = restricted, max_memory
        self.standing, self.state, self.dtype = race.standing, race.state, race.case.dtype
        self.reason, self.undecided = race.reason, race.undecided
        self.calls = race.totals.calls if race.totals else None
        self.cold = " with cold caches" if race.case.is_cold else ""
        cores = rule.cores_of_others(race.rounds)
        self.others = f"Others used {cores:.1f} cores meanwhile" if cores > BUSY_CORES else ""

    def sentence(
        self, best: Ranked | None, why: str, competing: Sequence[Ranked], others: Sequence[Ranked]
    ) -> str:
        if best is None:
            return self._nothing(others)
        what = best.candidate
        memory = best.peak_host_bytes
        size = "" if memory is None else f", {readable(memory, 'memory')}"
        if self.max_error is not None:
            size += f", error {readable(best.error, 'error')}"
        rivals = [row for row in competing if row is not best and row.ratio is not None]
        if self.state is Verdict.FASTEST:
            lead = self._lead(best, rivals, others)
            compared = bool(rivals) or any(row.at_least_s is not None for row in others)
            held = f" {self.others}; it held all the same." if self.others and compared else ""
            return f"Use {what}: {lead}{size}.{self._pays(best, rivals)}{_compiles(best)}{held}"
        if self.state is Verdict.TIE:
            names = _some([str(r.candidate) for r in rivals if r.verdict is Verdict.TIE])
            load = f" {self.others}." if self.others else ""
            tie = f"a tie with {names}{self._job()}, recommended because of {why}"
            return f"Use {what}: {tie}{size}.{self._pays(best, rivals)}{_compiles(best)}{load}"
        if best.median_s is None:
            return f"Unknown: nothing was timed. {what} is right and fits. {self._more()}"
        return f"Unknown: probably {what}{self.cold}{size}. {self._what_would_decide()}"

    def _nothing(self, others: Sequence[Ranked]) -> str:
        if any(row.state is State.OK for row in others):
            return "Unknown: interrupted before a candidate was checked and timed."
        if self.undecided:
            seconds = readable(self.budget, "time")
            ended = f"the budget of {seconds} ended before a candidate was checked and timed"
            return f"Unknown: {ended}. {self._more()}"
        reasons = "; ".join(dict.fromkeys(f"{r.backend}: {r.reason}" for r in others))
        if self.max_memory and any(row.state is State.OUT_OF_MEMORY for row in others):
            limit = readable(self.max_memory, "memory")
            return f"Nothing is within --max-memory {limit} ({reasons})."
        if any(row.state is State.INACCURATE for row in others):
            more = "a larger limit" if self.dtype == "float64" else "--dtype float64"
            limit = f"--max-error {self.max_error:g}"
            return f"Nothing is as accurate as {limit} ({reasons}); {more} would help."
        return f"Nothing can do this here ({reasons})."

    def _lead(self, best: Ranked, rivals: Sequence[Ranked], others: Sequence[Ranked]) -> str:
        """By how much the best is ahead of who is nearest to it, as far as that is known."""
        ratio = min((row.ratio for row in rivals if row.ratio is not None), default=inf)
        bounds = [row.at_least_s for row in others if row.at_least_s is not None]
        call = best.total_s / self.calls if best.total_s and self.calls else best.median_s
        bound = min(bounds, default=inf) / (call or inf)
        if bound < ratio:
            return f"at least {_times(bound)} faster than the next{self._job()}"
        if ratio < inf:
            return f"{_times(ratio)} faster than the next{self._job()}"
        who = "was allowed to compete" if self.restricted else "can do this here"
        return f"the only one that {who}"

    def _job(self) -> str:
        return ("" if self.calls is None else f" in {_counted(self.calls)}") + self.cold

    def _pays(self, best: Ranked, rivals: Sequence[Ranked]) -> str:
        """What to use for few calls, if another is faster in total until the best one pays."""
        if self.calls is not None or best.first_call_s is None or best.median_s is None:
            return ""
        until: dict[Ranked, float] = {}
        for row in rivals:
            first, ratio = row.first_call_s, (row.ratio or 1) / (best.ratio or 1)
            if first is None or best.first_call_s <= FIRST_CALL_OFF * first:
                continue
            if row.verdict is Verdict.TIE and best.first_call_s > first + best.median_s:
                until[row] = inf
            elif row.verdict is Verdict.SLOWER and ratio > 1:
                call = best.median_s
                until[row] = pays_after(best.first_call_s, call, first, ratio * call)
        if not until or max(until.values()) < 2:
            return ""
        other = max(until, key=lambda row: (until[row], -(row.first_call_s or 0.0)))
        use = f"use {other.candidate}"
        if until[other] == inf:
            seconds = [readable(row.first_call_s, "time") for row in (other, best)]
            return f" For few calls {use}: its first takes {seconds[0]}, not {seconds[1]}."
        calls = int(float(f"{until[other]:.2g}"))
        where = "of one shape" if best.compiles_per == "shape" else "in one process"
        return f" Pays after about {_counted(calls)} {where}; for fewer {use}."

    def _what_would_decide(self) -> str:
        if self.reason:
            once = self.reason.startswith(DOUBT)
            return f"But {self.reason}. {'--fresh times them again.' if once else self._more()}"
        lead, rounds = self.standing.lead, self.rounds
        left = [name for name in self.standing.alive if name != lead]
        near = [name for name in left if self._is_near(name)]
        least = rule.least_rounds(rounds)
        known = ""
        if not rounds:
            known = "No whole round was timed. "
        elif len(rounds) < least:
            known = f"{len(rounds)} of at least {least} rounds were made. "
        if near:
            known += f"Not told apart from {_some(near)}. "
        elif left and not known:
            known = f"Slower so far, but not for sure: {_some(left)}. "
        if self.undecided:
            known += f"Not timed enough: {_some([runner.name for runner in self.undecided])}. "
        return known + self._more()

    def _is_near(self, name: str) -> bool:
        """Whether it could be tied with the lead, by the interval of its ratios."""
        lead = self.standing.lead
        own = [r.lowest for r in self.rounds if name in r.lowest and lead in r.lowest]
        if not own:
            return True
        low, _, _ = rule.interval([times[name] / times[lead or name] for times in own])
        return low <= 1 + rule.TIE_LIMIT

    def _more(self) -> str:
        """What would help."""
        load = f"{self.others}, so more was asked for; a" if self.others else "A"
        wanted = sum(runner.needs for runner in self.undecided) / QUALIFYING + self.budget
        longer = "longer --budget"
        if self.interrupted:
            load, longer = f"{self.others}; the" if self.others else "The", "same command"
        elif wanted > self.budget:
            longer = f"--budget of about {ceil(wanted)} s"
        return f"{load} {longer} goes on from here, and a quieter machine helps."


def _compiles(best: Ranked) -> str:
    """What a new shape costs with it, if it says so and it shows."""
    seconds = best.compile_s or 0.0
    if best.compiles_per != "shape" or seconds < printing.LONG_COMPILATION:
        return ""
    return f" Plus {readable(seconds, 'time')} for every new shape."


def _times(ratio: float) -> str:
    """Two digits of what is gained."""
    return f"{ratio:.2f}x" if ratio < 1.1 else f"{ratio:.1f}x" if ratio < 10 else f"{ratio:.0f}x"


def _counted(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls:,} calls"


def _some(names: Sequence[str]) -> str:
    """A few names, and how many more."""
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} others"


def busy_threads(rows: Sequence[Ranked], threads: int) -> Iterator[str]:
    """About candidates that used more cores than threads were asked for."""
    busy = [row for row in rows if (row.cores or 0.0) > threads + UNASKED_CORES]
    if busy:
        most = max(row.cores or 0.0 for row in busy)
        names = _some([str(row.candidate) for row in busy])
        asked = "1 thread was" if threads == 1 else f"{threads} threads were"
        yield f"{names} used up to {most:.1f} cores, though {asked} asked for."


def disturbances(rounds: Sequence[Round], standing: Standing, interrupted: bool) -> Iterator[str]:
    """Sentences about what the rounds themselves show, each at most once."""
    lead = standing.lead
    alive = [name for name in standing.alive if all(name in r.lowest for r in rounds)]
    least = rule.least_rounds(rounds)
    if len(rounds) < least and standing.verdict is None and not interrupted:
        load = " while others use the machine" if least > rule.LEAST_ROUNDS else ""
        yield (
            f"The budget ended after round {len(rounds)}; nothing is decided before round "
            f"{least}{load}."
        )
    fastest = min(min(r.lowest.values()) for r in rounds)
    if fastest < 100 * clock.resolution():
        yield f"A call takes {readable(fastest, 'time')}, not far from what the clock can resolve."
    uneven = {}
    for name in alive:
        typical = sorted(r.lowest[name] for r in rounds)[len(rounds) // 2]
        mean = sum(r.mean[name] for r in rounds) / len(rounds)
        if mean > 2 * typical:
            uneven[name] = mean / typical
    if uneven:
        worst = max(uneven.values())
        names = _some(list(uneven))
        yield f"Calls of {names} were disturbed: {worst:.1f} times the best on average, or less."
    drifting = {}
    if lead in alive and len(rounds) >= LONG_ENOUGH:
        half = len(rounds) // 2
        for name in alive:
            first, second = (
                rule.interval([r.lowest[name] / r.lowest[lead] for r in part])[1]
                for part in (rounds[:half], rounds[half:])
            )
            if abs(first / second - 1) > rule.MARGIN:
                drifting[name] = (first, second)
    if drifting:
        name, (first, second) = max(drifting.items(), key=lambda d: abs(log(d[1][0] / d[1][1])))
        ratios = f"took {first:.2f}, then {second:.2f} times as long as {lead}"
        more = f" ({len(drifting) - 1} others less so)" if len(drifting) > 1 else ""
        yield f"The times drift: {name} {ratios}{more}."
