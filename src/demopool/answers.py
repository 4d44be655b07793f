"""The answer to "which is fastest?": rows, a verdict, and one sentence a person can act on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import decision
from .candidates import Candidate
from .cases import Case
from .decision import Round, Standing
from .measurement import clock
from .racing import Race, Runner, overall
from .units import readable
from .vocabulary import State, Verdict

# In a tie: what one has to install, the least first. Plug-ins come last.
_DEPENDENCIES = ("numpy", "numba", "torch", "cupy")
_MEMORY_MATTERS = 0.9


@dataclass(frozen=True)
class Row:
    """One candidate in the answer. Times are of the calls that decided: see ``Case.data``.

    median_s, low_s, high_s   of the lowest call of each round, with a 95 % interval
    ratio                     to the best, from the rounds both took part in; likewise an interval
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
    seconds: float,
    reused: bool,
    interrupted: bool,
    whole: bool,
    warnings: Sequence[str],
) -> Choice:
    """What a race has shown; ``doubt`` is why a close winner was not confirmed."""
    state = overall(standing, doubt)
    rows = [_row(runner, race.rounds, standing, state) for runner in race.runners]
    rows = [
        replace(row, reason="interrupted before it was checked")
        if row.state is State.OK and row.error is None
        else row
        for row in rows
    ]
    competing = sorted(
        (row for row in rows if row.state is State.OK and row.error is not None),
        key=lambda row: (row.ratio is None, row.ratio or 0.0),
    )
    others = [row for row in rows if row not in competing]
    best, why = _recommended(competing, standing, state)
    told = [*warnings, *(f"{r.name}: {r.remark}." for r in race.fit if r.remark)]
    if race.rounds:
        told += _trouble(race.rounds, standing)
    return Choice(
        race.case,
        state,
        best.backend if best else None,
        best.route if best else None,
        _sentence(best, why, competing, standing, state, doubt, [*others, *absent]),
        (*competing, *others, *absent),
        threads,
        seconds,
        len(race.rounds),
        reused,
        interrupted,
        whole,
        tuple(told),
        next((r.identity["fingerprint"] for r in race.fit if r.identity), ""),
        {r.candidate.backend: r.identity["code"] for r in race.fit if r.identity},
    )


def _row(runner: Runner, rounds: Sequence[Round], standing: Standing, state: Verdict) -> Row:
    row = Row(*runner.candidate, runner.state, None, runner.reason)
    row = replace(row, **_known(runner))
    name = runner.name
    own = [r for r in rounds if name in r.lowest]
    if runner.state is not State.OK or not own:
        return row
    low, middle, high = decision.interval([r.lowest[name] for r in own])
    dropped = standing.dropped.get(name)
    lead = standing.lead or name
    ratios = decision.interval([r.lowest[name] / r.lowest[lead] for r in own if lead in r.lowest])
    if dropped:
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
    )


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


def _sentence(
    best: Row | None,
    why: str,
    competing: Sequence[Row],
    standing: Standing,
    state: Verdict,
    doubt: str,
    others: Sequence[Row],
) -> str:
    if best is None and any(row.state is State.OK for row in others):
        return "Unknown: interrupted before a candidate was checked and timed."
    if best is None:
        reasons = "; ".join(dict.fromkeys(f"{r.backend}: {r.reason}" for r in others))
        return f"Nothing can do this here ({reasons})."
    what = f"{best.backend}, {best.route} route"
    memory = "" if best.peak_host_bytes is None else f", {readable(best.peak_host_bytes, 'memory')}"
    rivals = [row for row in competing if row is not best and row.ratio is not None]
    if state is Verdict.FASTEST:
        if not rivals:
            return f"Use {what}: the only one that can do this here{memory}."
        ratio = min(row.ratio for row in rivals if row.ratio is not None)
        return f"Use {what}: {_times(ratio)} faster than the next{memory}."
    if state is Verdict.TIE:
        tied = [r for r in rivals if r.verdict is Verdict.TIE]
        names = _some([str(row.candidate) for row in tied])
        return f"Use {what}: a tie with {names}, recommended because of {why}{memory}."
    if best.median_s is None:
        return (
            f"Unknown: nothing was timed. {what} is right and fits; a longer --budget would tell."
        )
    return f"Unknown: probably {what}{memory}. {_what_would_decide(standing, doubt)}"


def _times(ratio: float) -> str:
    """Two digits of what is gained."""
    return f"{ratio:.2f}x" if ratio < 1.1 else f"{ratio:.1f}x" if ratio < 10 else f"{ratio:.0f}x"


def _what_would_decide(standing: Standing, doubt: str) -> str:
    if doubt:
        return f"But {doubt}. A quieter machine would tell; the two are close."
    left = [name for name in standing.alive if name != standing.lead]
    return (
        f"Not told apart from {_some(left)}. A longer --budget goes on from here, and a quieter "
        "machine helps."
    )


def _some(names: Sequence[str]) -> str:
    """A few names, and how many more."""
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} others"


def _trouble(rounds: Sequence[Round], standing: Standing) -> Iterator[str]:
    """Sentences about what the rounds themselves show."""
    lead = standing.lead
    alive = [name for name in standing.alive if all(name in r.lowest for r in rounds)]
    if len(rounds) < 6 and standing.verdict is None:
        yield (
            f"Only {len(rounds)} rounds fit the budget: only gaps of 2x and more can be told. "
            "A longer --budget tells more."
        )
    fastest = min(min(r.lowest.values()) for r in rounds)
    if fastest < 100 * clock.resolution():
        yield f"A call takes {readable(fastest, 'time')}, not far from what the clock can resolve."
    for name in alive:
        typical = sorted(r.lowest[name] for r in rounds)[len(rounds) // 2]
        mean = sum(r.mean[name] for r in rounds) / len(rounds)
        if mean > 2 * typical:
            yield f"Calls of {name} take {mean / typical:.1f} times the best on average: disturbed."
    rivals = [name for name in alive if name != lead]
    if lead in alive and rivals and len(rounds) >= 8:
        half = len(rounds) // 2
        for name in rivals:
            first, second = (
                decision.interval([r.lowest[name] / r.lowest[lead] for r in part])[1]
                for part in (rounds[:half], rounds[half:])
            )
            if abs(first / second - 1) > decision.MARGIN:
                ratios = f"took {first:.2f}, then {second:.2f} times as long as {lead}"
                yield f"The times drift: {name} {ratios}."
