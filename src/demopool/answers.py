"""The answer to "which is fastest?": rows, a verdict, and one sentence a person can act on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf, log
from typing import Any

from . import decision
from .budget import QUALIFYING
from .candidates import Candidate
from .cases import Case
from .decision import BUSY_CORES, Round, Standing
from .measurement import clock
from .racing import Race, overall
from .runners import Runner
from .units import readable
from .vocabulary import State, Verdict

# In a tie: what one has to install, the least first. Plug-ins come last.
_DEPENDENCIES = ("numpy", "numba", "torch", "cupy")
_MEMORY_MATTERS = 0.9
_CAN = "can do this here"
_LATE = "the budget ended before its first round"
LONG_ENOUGH = 8
"""Rounds, so that the halves of a race can be compared."""


@dataclass(frozen=True)
class Row:
    """One candidate in the answer. Times are of the calls that decided: see ``Case.data``.

    median_s, low_s, high_s   of the lowest call of each of its rounds, with a 95 % interval from 6
                              rounds on; of the one call that was timed, without an interval, if
                              rounds of it did not fit the budget
    ratio                     to the best, round by round: the middle of those that both took part
                              in, and its interval. The verdict rests on it; it is not the ratio of
                              the medians, which may be of different rounds
    at_least_s                a call was seen to take longer than this, and was given up
    """

    backend: str
    route: str
    state: State
    verdict: Verdict | None = None
    reason: str = ""
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    rounds: int = 0
    first_call_s: float | None = None
    with_transfer_s: float | None = None
    peak_host_bytes: float | None = None
    peak_device_bytes: float | None = None
    error: float | None = None
    at_least_s: float | None = None

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.backend, self.route)


@dataclass(frozen=True)
class Choice:
    """The answer for one case."""

    case: Case
    state: Verdict
    backend: str | None
    route: str | None
    sentence: str
    rows: tuple[Row, ...]
    threads: int
    seconds: float
    rounds: int
    reused: bool = False
    interrupted: bool = False
    whole: bool = True
    """All candidates could compete: nothing was left out, nothing interrupted."""
    warnings: tuple[str, ...] = ()
    fingerprint: str = ""
    codes: dict[str, str] = field(default_factory=dict)
    setup_s: float = 0.0
    """The part of the seconds that libraries took to start, load and compile."""
    others_cores: float = 0.0
    """How many cores others used during the rounds."""

    def __str__(self) -> str:
        from .telling import lines

        return "\n".join(lines(self))

    def as_result(self) -> dict[str, Any]:
        """As ``demopool choose --json`` prints it."""
        return {
            "case": asdict(self.case),
            "verdict": {
                "state": self.state,
                "backend": self.backend,
                "route": self.route,
                "sentence": self.sentence,
            },
            "candidates": [asdict(row) for row in self.rows],
            "threads": self.threads,
            "seconds": self.seconds,
            "setup_s": self.setup_s,
            "others_cores": self.others_cores,
            "rounds": self.rounds,
            "reused": self.reused,
            "interrupted": self.interrupted,
            "warnings": list(self.warnings),
        }


def answer(
    race: Race,
    standing: Standing,
    doubt: str,
    absent: Sequence[Row],
    *,
    threads: int,
    reused: bool,
    interrupted: bool,
    restricted: bool,
    warnings: Sequence[str],
    max_memory: float | None = None,
) -> Choice:
    """What a race has shown; ``doubt`` is why a close winner was not confirmed.

    ``restricted``: the caller has kept candidates out, by name or by ``max_memory``.
    """
    undecided = race.open(standing)
    state = overall(standing, doubt, undecided)
    rows = [_row(runner, race, standing, state, runner in undecided) for runner in race.runners]
    rows = [
        replace(row, reason="interrupted before it was checked")
        if row.state is State.OK and row.error is None
        else row
        for row in rows
    ]
    if interrupted:
        rows = [
            replace(row, reason="interrupted before its first round")
            if row.reason == _LATE
            else row
            for row in rows
        ]
    competing = sorted(
        (row for row in rows if row.state is State.OK and row.error is not None),
        key=lambda row: (row.ratio is None, row.ratio or row.median_s or inf),
    )
    others = [row for row in rows if row not in competing]
    best, why = _recommended(competing, standing, state)
    told = [*warnings, *(f"{r.name}: {r.remark}." for r in race.fit if r.remark)]
    if race.rounds:
        told += _trouble(race.rounds, standing, interrupted)
    said = Said(race, standing, state, doubt, undecided, restricted, max_memory, interrupted)
    return Choice(
        race.case,
        state,
        best.backend if best else None,
        best.route if best else None,
        said.sentence(best, why, competing, [*others, *absent]),
        (*competing, *others, *absent),
        threads,
        race.budget.spent + race.budget.setup,
        len(race.rounds),
        reused,
        interrupted,
        not (restricted or interrupted or undecided),
        tuple(told),
        next((r.identity["fingerprint"] for r in race.runners), ""),
        {r.candidate.backend: r.identity["code"] for r in race.runners},
        race.budget.setup,
        decision.cores_of_others(race.rounds),
    )


def _row(runner: Runner, race: Race, standing: Standing, state: Verdict, undecided: bool) -> Row:
    row = Row(*runner.candidate, runner.state, None, runner.reason)
    row = replace(row, **_known(runner))
    name, lead = runner.name, standing.lead or runner.name
    if runner.state is State.TIMEOUT or runner.aside:
        row = replace(row, verdict=Verdict.UNKNOWN if undecided else Verdict.SLOWER)
    best = [r.lowest[lead] for r in race.rounds if lead in r.lowest]
    if runner.aside and best:
        seconds = runner.once["call_s"]
        _, middle, _ = decision.interval([seconds / t for t in best])
        return replace(row, median_s=seconds, ratio=middle)
    own = [r for r in race.rounds if name in r.lowest]
    if not own and runner.is_right:
        # No round of it was finished; the call that was timed is still known.
        once = runner.once.get("call_s")
        return replace(row, verdict=Verdict.UNKNOWN, reason=_LATE, median_s=once)
    if runner.state is not State.OK or not own:
        return row
    low, middle, high = _interval([r.lowest[name] for r in own])
    ratios = _interval([r.lowest[name] / r.lowest[lead] for r in own if lead in r.lowest])
    if name in standing.dropped:
        verdict = Verdict.SLOWER
    elif state is Verdict.TIE:
        verdict = Verdict.TIE
    elif state is Verdict.FASTEST:
        verdict = Verdict.FASTEST
    else:
        verdict = Verdict.UNKNOWN
    return replace(
        row,
        verdict=verdict,
        median_s=middle,
        low_s=low,
        high_s=high,
        ratio=ratios[1],
        ratio_low=ratios[0],
        ratio_high=ratios[2],
        rounds=len(own),
        with_transfer_s=middle if race.case.data == "host" else row.with_transfer_s,
    )


def _interval(values: Sequence[float]) -> tuple[float | None, float, float | None]:
    """The median, and its 95 % interval if there are enough values for one."""
    low, middle, high = decision.interval(values)
    return (low, middle, high) if len(values) >= decision.FEWEST else (None, middle, None)


def _known(runner: Runner) -> dict[str, Any]:
    names = Row.__dataclass_fields__
    return {name: value for name, value in runner.once.items() if name in names}


def _recommended(
    competing: Sequence[Row], standing: Standing, state: Verdict
) -> tuple[Row | None, str]:
    """The row to use, and in a tie the reason."""
    alive = [row for row in competing if str(row.candidate) in standing.alive]
    if not alive:
        return (competing[0] if competing else None), ""
    if state is not Verdict.TIE:
        lead = next((row for row in alive if str(row.candidate) == standing.lead), alive[0])
        return lead, ""
    sizes = {row: row.peak_host_bytes or 0.0 for row in alive}
    leanest = min(alive, key=lambda row: sizes[row])
    if all(row is leanest or sizes[leanest] < _MEMORY_MATTERS * sizes[row] for row in alive):
        return leanest, "the least memory"
    lean = [row for row in alive if sizes[leanest] >= _MEMORY_MATTERS * sizes[row]]
    fewest = min(_dependencies(row) for row in lean)
    simple = [row for row in lean if _dependencies(row) == fewest]
    why = "fewer dependencies" if len(simple) < len(lean) else "the lower median"
    return min(simple, key=lambda row: row.median_s or 0.0), why


def _dependencies(row: Row) -> int:
    library = row.backend.partition(":")[0]
    return _DEPENDENCIES.index(library) if library in _DEPENDENCIES else len(_DEPENDENCIES)


class Said:
    """The parts of the sentence."""

    def __init__(
        self,
        race: Race,
        standing: Standing,
        state: Verdict,
        doubt: str,
        undecided: Sequence[Runner],
        restricted: bool = False,
        max_memory: float | None = None,
        interrupted: bool = False,
    ) -> None:
        self.interrupted = interrupted
        self.budget, self.rounds = race.budget.seconds, race.rounds
        self.restricted, self.max_memory = restricted, max_memory
        self.standing, self.state, self.doubt, self.undecided = standing, state, doubt, undecided
        cores = decision.cores_of_others(race.rounds)
        self.others = f"Others used {cores:.1f} cores meanwhile" if cores > BUSY_CORES else ""

    def sentence(
        self, best: Row | None, why: str, competing: Sequence[Row], others: Sequence[Row]
    ) -> str:
        if best is None:
            return self._nothing(others)
        what = f"{best.backend}, {best.route} route"
        memory = best.peak_host_bytes
        size = "" if memory is None else f", {readable(memory, 'memory')}"
        rivals = [row for row in competing if row is not best and row.ratio is not None]
        if self.state is Verdict.FASTEST:
            lead = self._lead(best, rivals, others)
            compared = bool(rivals) or any(row.at_least_s is not None for row in others)
            held = f" {self.others}; it held all the same." if self.others and compared else ""
            return f"Use {what}: {lead}{size}.{held}"
        if self.state is Verdict.TIE:
            names = _some([str(r.candidate) for r in rivals if r.verdict is Verdict.TIE])
            load = f" {self.others}." if self.others else ""
            return f"Use {what}: a tie with {names}, recommended because of {why}{size}.{load}"
        if best.median_s is None:
            return f"Unknown: nothing was timed. {what} is right and fits. {self._more()}"
        return f"Unknown: probably {what}{size}. {self._what_would_decide()}"

    def _nothing(self, others: Sequence[Row]) -> str:
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
        return f"Nothing can do this here ({reasons})."

    def _lead(self, best: Row, rivals: Sequence[Row], others: Sequence[Row]) -> str:
        """By how much the best is ahead of who is nearest to it, as far as that is known."""
        ratio = min((row.ratio for row in rivals if row.ratio is not None), default=inf)
        bounds = [row.at_least_s for row in others if row.at_least_s is not None]
        bound = min(bounds, default=inf) / (best.median_s or inf)
        if bound < ratio:
            return f"at least {_times(bound)} faster than the next"
        if ratio < inf:
            return f"{_times(ratio)} faster than the next"
        return f"the only one that {'was allowed to compete' if self.restricted else _CAN}"

    def _what_would_decide(self) -> str:
        if self.doubt:
            return f"But {self.doubt}. {self._more()}"
        lead, rounds = self.standing.lead, self.rounds
        left = [name for name in self.standing.alive if name != lead]
        near = [name for name in left if self._is_near(name)]
        least = decision.least_rounds(rounds)
        told = ""
        if not rounds:
            told = "No whole round was timed. "
        elif len(rounds) < least:
            told = f"{len(rounds)} of at least {least} rounds were made. "
        if near:
            told += f"Not told apart from {_some(near)}. "
        elif left and not told:
            told = f"Slower so far, but not for sure: {_some(left)}. "
        if self.undecided:
            told += f"Not timed enough: {_some([runner.name for runner in self.undecided])}. "
        return told + self._more()

    def _is_near(self, name: str) -> bool:
        """Whether it could be tied with the lead, by the interval of its ratios."""
        lead = self.standing.lead
        own = [r.lowest for r in self.rounds if name in r.lowest and lead in r.lowest]
        if not own:
            return True
        low, _, _ = decision.interval([times[name] / times[lead or name] for times in own])
        return low <= 1 + decision.TIE_LIMIT

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


def _times(ratio: float) -> str:
    """Two digits of what is gained."""
    return f"{ratio:.2f}x" if ratio < 1.1 else f"{ratio:.1f}x" if ratio < 10 else f"{ratio:.0f}x"


def _some(names: Sequence[str]) -> str:
    """A few names, and how many more."""
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} others"


def _trouble(rounds: Sequence[Round], standing: Standing, interrupted: bool) -> Iterator[str]:
    """Sentences about what the rounds themselves show, each at most once."""
    lead = standing.lead
    alive = [name for name in standing.alive if all(name in r.lowest for r in rounds)]
    least = decision.least_rounds(rounds)
    if len(rounds) < least and standing.verdict is None and not interrupted:
        load = " while others use the machine" if least > decision.LEAST_ROUNDS else ""
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
                decision.interval([r.lowest[name] / r.lowest[lead] for r in part])[1]
                for part in (rounds[:half], rounds[half:])
            )
            if abs(first / second - 1) > decision.MARGIN:
                drifting[name] = (first, second)
    if drifting:
        name, (first, second) = max(drifting.items(), key=lambda d: abs(log(d[1][0] / d[1][1])))
        ratios = f"took {first:.2f}, then {second:.2f} times as long as {lead}"
        more = f" ({len(drifting) - 1} others less so)" if len(drifting) > 1 else ""
        yield f"The times drift: {name} {ratios}{more}."
