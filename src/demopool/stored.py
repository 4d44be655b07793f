"""What was measured before, put into a race again.

One file of samples per case and number of threads. They count while the fingerprint of the machine
and its software and the code of the candidate are what they were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from . import decision, places, samples
from .cases import Case
from .decision import Round
from .errors import InvalidInput
from .racing import Race
from .runners import Runner
from .samples import Sample
from .units import readable
from .vocabulary import State

# Only together with the rounds of the same race: what was seen at another time, under another load,
# says nothing about who was fastest then.
_OF_A_RACE = ("at_least_s", "call_s", "calls")


def file(case: Case, threads: int) -> Path:
    """One file per case; its name is for people, the digest for what the name leaves out."""
    described = json.dumps([asdict(case), threads], sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    name = f"{case.descriptor}-b{case.batch}-n{case.n}-d{case.d}-{case.dtype}-{digest}.jsonl"
    return places.cache_folder() / "samples" / name


class Stored:
    """The samples of a file that fit the runners of a race: same machine, libraries and code."""

    def __init__(self, path: Path, race: Race) -> None:
        self._race = race
        try:
            found = list(samples.read(path))
        except InvalidInput:
            found = []
        same = {runner.name: runner.identity for runner in race.fit}
        self._fitting = [s for s in found if _identity(s) == same.get(_name(s))]

    def put_in_once(self) -> None:
        """What is measured once, and who was wrong or crashed."""
        runners = {runner.name: runner for runner in self._race.fit}
        for s in self._fitting:
            runner = runners[_name(s)]
            if s.value is None:
                runner.fail(s.state, s.reason)
            elif s.round == 0 and s.measure not in _OF_A_RACE:
                runner.once[s.measure] = s.value
                if s.measure == "error":
                    runner.fail(State.OK, "")  # it was checked again since, and is right

    def put_in_rounds(self, field: Sequence[Runner]) -> None:
        """Of the latest race of this field, and who was far behind it.

        Who was not in those rounds and is in the field now would be new to them: it begins anew.
        """
        race = self._race
        runners = {runner.name: runner for runner in race.fit}
        for session in dict.fromkeys(s.session for s in reversed(self._fitting) if s.round > 0):
            of_session = [s for s in self._fitting if s.session == session]
            calls = [int(s.value) for s in of_session if s.measure == "calls" and s.value]
            rounds = _rounds(of_session, 1)
            if not calls or not rounds:
                continue
            bounds = _bounds(of_session, rounds)
            rounds = decision.consistent(rounds, rounds[0].lowest.keys(), calls[0], bounded=True)
            lead = decision.judge(rounds, calls=calls[0], bounded=True).lead
            far = {
                name: bound
                for name, bound in bounds.items()
                if name in runners and race.is_far(runners[name], bound[1], lead, rounds)
            }
            names = [runner.name for runner in field if runner.name not in far]
            rounds = decision.consistent(rounds, names, calls[0], bounded=bool(far))
            if not rounds:
                continue
            for name, (measure, seconds) in far.items():
                runner = runners[name]
                runner.once[measure] = seconds
                runner.aside = measure == "call_s"
                if not runner.aside:
                    runner.fail(State.TIMEOUT, f"given up after {readable(seconds, 'time')}")
            race.rounds, race.session, race.calls = rounds, session, calls[0]
            race.confirming = _rounds(of_session, -1)
            return


def _name(sample: Sample) -> str:
    return f"{sample.backend}/{sample.route}"


def _identity(sample: Sample) -> dict[str, str]:
    return {"fingerprint": sample.fingerprint, "code": sample.code}


def _bounds(of_session: Sequence[Sample], rounds: Sequence[Round]) -> dict[str, tuple[str, float]]:
    """Of those who took no part in the rounds: a call that was given up, or the only one timed."""
    found: dict[str, tuple[str, float]] = {}
    for s in of_session:
        timed = s.value is not None and s.measure in ("at_least_s", "call_s")
        if timed and _name(s) not in rounds[0].lowest:
            found[_name(s)] = (s.measure, s.value or 0.0)
    return found


def _rounds(of_session: Sequence[Sample], first: int) -> list[Round]:
    """Of a session, in order: 1, 2, ..., or those that confirm, -1, -2, ..."""
    found: list[Round] = []
    while True:
        number = first * (len(found) + 1)
        by_measure: dict[str, dict[str, float]] = {"lowest_s": {}, "mean_s": {}, "others_cores": {}}
        for s in of_session:
            if s.round == number and s.measure in by_measure and s.value is not None:
                by_measure[s.measure][_name(s)] = s.value
        lowest, mean, others = by_measure.values()
        names = [name for name in lowest if name in mean]
        if not names:
            return found
        found.append(
            Round(
                {name: lowest[name] for name in names},
                {name: mean[name] for name in names},
                max(others.values(), default=0.0),
            )
        )
