"""From a race to the answer: who is ranked how, and which one is recommended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from ..contract import registry
from ..problem.vocabulary import Backend, State, Verdict
from . import rule
from .answer_types import Choice, Ranked
from .racing import Result
from .rule import Standing
from .runners import Runner
from .sentences import Sentence, busy_threads, disturbances

# In a tie: what one has to install, the least first. Plug-ins come last.
_DEPENDENCIES = ("numpy", "numba", "torch", "triton", "cupy")
_MEMORY_MATTERS = 0.9
_LATE = "the budget ended before its first round"


def answer(
    race: Result,
    absent: Sequence[Ranked],
    *,
    threads: int,
    reused: bool,
    interrupted: bool,
    restricted: bool,
    warnings: Sequence[str],
    max_memory: float | None = None,
    max_error: float | None = None,
) -> Choice:
    """What a race has shown, in the words of ``choose``.

    ``restricted``: the caller has kept candidates out, by name or by a maximum.
    """
    standing, state = race.standing, race.state
    rows = [_row(runner, race) for runner in race.runners]
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
    fit = [runner for runner in race.runners if runner.state is State.OK]
    warnings = [*warnings, *(f"{r.name}: {r.warning}." for r in fit if r.warning)]
    warnings += busy_threads(competing, threads)
    if race.rounds:
        warnings += disturbances(race.rounds, standing, interrupted)
    words = Sentence(race, restricted, max_memory, interrupted, max_error)
    return Choice(
        race.case,
        state,
        best.backend if best else None,
        best.route if best else None,
        words.sentence(best, why, competing, [*others, *absent]),
        (*competing, *others, *absent),
        threads,
        race.spent_s + race.setup_s,
        len(race.rounds),
        reused,
        interrupted,
        not (restricted or interrupted or race.undecided or race.totals),
        tuple(warnings),
        next((r.identity["fingerprint"] for r in race.runners), ""),
        {r.candidate.backend: r.identity["code"] for r in race.runners},
        race.setup_s,
        rule.cores_of_others(race.rounds),
        race.totals.calls if race.totals else None,
        max_error,
    )


def _row(runner: Runner, race: Result) -> Ranked:
    standing, state, undecided = race.standing, race.state, runner in race.undecided
    row = Ranked(*runner.candidate, runner.state, None, runner.reason, untried=runner.untried)
    row = replace(row, compiles_per=registry.compiles_per(runner.candidate.backend))
    row = replace(row, **_known(runner))
    name, lead = runner.name, standing.lead or runner.name
    if runner.state is State.TIMEOUT or runner.aside:
        row = replace(row, verdict=Verdict.UNKNOWN if undecided else Verdict.SLOWER)
    best = [r.lowest[lead] for r in race.judged if lead in r.lowest]
    if runner.aside and best:
        seconds = runner.once["call_s"]
        total = _total(race, name, seconds)
        judged = seconds if total is None or not race.totals else total / race.totals.calls
        _, middle, _ = rule.interval([judged / t for t in best])
        return replace(row, median_s=seconds, ratio=middle, total_s=total)
    own = [r for r in race.rounds if name in r.lowest]
    if not own and runner.is_right:
        # No round of it was finished; the call that was timed is still known.
        once = runner.once.get("call_s")
        return replace(row, verdict=Verdict.UNKNOWN, reason=_LATE, median_s=once)
    if runner.state is not State.OK or not own:
        return row
    low, middle, high = _interval([r.lowest[name] for r in own])
    both = [r.lowest for r in race.judged if name in r.lowest and lead in r.lowest]
    ratios = _interval([times[name] / times[lead] for times in both])
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
        total_s=_total(race, name, middle),
    )


def _total(race: Result, name: str, call: float) -> float | None:
    if race.totals is None or name not in race.totals.first:
        return None
    return race.totals.seconds(name, call)


def _interval(values: Sequence[float]) -> tuple[float | None, float, float | None]:
    """The median, and its 95 % interval if there are enough values for one."""
    low, middle, high = rule.interval(values)
    return (low, middle, high) if len(values) >= rule.FEWEST else (None, middle, None)


def _known(runner: Runner) -> dict[str, Any]:
    names = Ranked.__dataclass_fields__
    return {name: value for name, value in runner.once.items() if name in names}


def _recommended(
    competing: Sequence[Ranked], standing: Standing, state: Verdict
) -> tuple[Ranked | None, str]:
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


def _dependencies(row: Ranked) -> int:
    library = Backend(row.backend).library
    return _DEPENDENCIES.index(library) if library in _DEPENDENCIES else len(_DEPENDENCIES)
