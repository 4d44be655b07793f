"""Races as their samples have them: the way back from what is stored to the answer.

``choose`` goes on from here, and the report shows it: both judge the same rounds by the same code,
so that they say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from . import decision
from .answers import Choice, answer
from .candidates import Candidate
from .cases import Case
from .decision import Round
from .racing import Race, Runner, Workers
from .samples import Sample
from .vocabulary import Verdict

SHORTEST, LONGEST = 1e-9, 1e8
"""Seconds: no clock here reads less than a nanosecond, and nobody waits for three years."""

_UNCONFIRMED = "it was interrupted before new processes had confirmed it"


def candidate_name(sample: Sample) -> str:
    return f"{sample.backend}/{sample.route}"


def rounds(
    of_session: Iterable[Sample], first: int, name: Callable[[Sample], str] = candidate_name
) -> list[Round]:
    """Of a session, in order: 1, 2, ..., or those that confirm, -1, -2, ..."""
    both: dict[int, dict[str, dict[str, float]]] = {}
    for s in of_session:
        if s.measure in ("lowest_s", "mean_s") and s.value and SHORTEST <= s.value <= LONGEST:
            of_round = both.setdefault(s.round, {"lowest_s": {}, "mean_s": {}})
            of_round[s.measure][name(s)] = s.value
    found: list[Round] = []
    while True:
        here = both.get(first * (len(found) + 1), {"lowest_s": {}, "mean_s": {}})
        names = here["lowest_s"].keys() & here["mean_s"]
        if not names:
            return found
        lowest, mean = ({n: of[n] for n in of if n in names} for of in here.values())
        found.append(Round(lowest, mean))


@dataclass(frozen=True)
class Stored:
    """One race.

    once    of every candidate what was measured once: memory, error, first call
    codes   of every candidate: which code it was
    """

    fingerprint: str
    threads: int
    case: Case
    session: str
    calls: int
    rounds: tuple[Round, ...]
    confirming: tuple[Round, ...]
    once: dict[str, dict[str, float]] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    measured_at: str = ""

    @property
    def field(self) -> tuple[str, ...]:
        return tuple(self.rounds[0].lowest)


def stored(found: Iterable[Sample]) -> list[Stored]:
    """Every race with at least one whole round, the one that was measured last at the end."""
    groups: dict[tuple[str, int, Case, str], list[Sample]] = {}
    once: dict[tuple[str, int, Case], list[Sample]] = {}
    for s in found:
        if s.round:
            groups.setdefault((s.fingerprint, s.threads, s.case, s.session), []).append(s)
        elif s.value is not None:
            # A race that went on after it was interrupted has these in an earlier session.
            once.setdefault((s.fingerprint, s.threads, s.case), []).append(s)
            if s.measure == "calls":
                groups.setdefault((s.fingerprint, s.threads, s.case, s.session), []).append(s)
    races = []
    for (fingerprint, threads, case, session), own in groups.items():
        calls = [int(s.value) for s in own if s.measure == "calls" and s.value and s.value >= 1]
        whole = _without_who_failed(rounds(own, 1), calls[-1] if calls else 1)
        if not whole:
            continue
        codes = {candidate_name(s): s.code for s in own}
        measured: dict[str, dict[str, float]] = {name: {} for name in whole[0].lowest}
        remarks = {}
        for s in once.get((fingerprint, threads, case), ()):
            name = candidate_name(s)
            if name in measured and s.code == codes.get(name) and s.value is not None:
                measured[name][s.measure] = s.value
                if s.measure == "with_transfer_s" and s.reason:
                    remarks[name] = s.reason
        races.append(
            Stored(
                fingerprint,
                threads,
                case,
                session,
                calls[-1] if calls else 1,
                tuple(whole),
                tuple(rounds(own, -1)),
                measured,
                remarks,
                codes,
                max(s.measured_at for s in own),
            )
        )
    return sorted(races, key=lambda race: race.measured_at)


def _without_who_failed(found: Sequence[Round], calls: int) -> list[Round]:
    """Consistent rounds: whoever was in the race, and then not, without being thrown out, failed.

    The last round may be half a round: a race can be killed in the middle of one.
    """
    while found:
        whole = decision.consistent(found, found[0].lowest.keys(), calls)
        if len(whole) >= len(found) - 1:
            return whole
        standing = decision.judge(whole, calls=calls)
        if standing.verdict is not None:
            return whole
        alive = set(standing.alive) if whole else set(found[0].lowest)
        left = [
            name for name in found[0].lowest if name not in alive - found[len(whole)].lowest.keys()
        ]
        found = [
            Round(
                {name: t for name, t in r.lowest.items() if name in left},
                {name: t for name, t in r.mean.items() if name in left},
            )
            for r in found
        ]
        if not left:
            break
    return []


def answer_of(race: Stored, warnings: Sequence[str] = ()) -> Choice:
    """What ``choose`` would say to these rounds, in its words."""
    rebuilt = Race(race.case, (), Workers(race.threads), seconds_per_call=inf, memory_bytes=None)
    rebuilt.runners = [_runner(race, name) for name in race.field]
    rebuilt.rounds, rebuilt.confirming = list(race.rounds), list(race.confirming)
    rebuilt.session, rebuilt.calls = race.session, race.calls
    standing = decision.judge(race.rounds, calls=race.calls, at_most=max(170, len(race.rounds)))
    doubt = ""
    if standing.verdict is Verdict.FASTEST and standing.close and standing.lead:
        names = {standing.lead, *standing.close}
        again = [r for r in race.confirming if names <= r.lowest.keys()]
        enough = len(again) >= decision.CONFIRMING_ROUNDS
        doubt = decision.confirms(again, standing.lead, standing.close) if enough else _UNCONFIRMED
    return answer(
        rebuilt,
        standing,
        doubt,
        (),
        threads=race.threads,
        seconds=0.0,
        reused=True,
        interrupted=False,
        whole=True,
        warnings=warnings,
    )


def _runner(race: Stored, name: str) -> Runner:
    runner = Runner(Candidate.parse(name), once=dict(race.once.get(name, {})))
    runner.identity = {"fingerprint": race.fingerprint, "code": race.codes.get(name, "")}
    runner.remark = race.remarks.get(name, "")
    return runner
