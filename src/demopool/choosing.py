"""``choose``: measure the candidates for a case, decide, and say why.

Candidates are what the capability table and the registry have for the case. Each must first be
right; then they race (``racing.py``) until the rule (``decision.py``) has an answer or the budget
is spent; ``answers.py`` puts it into words. Samples are on disk the moment they are measured, and
used again while neither the machine, nor its software, nor the candidate's code has changed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

from . import decision, places, profiles, registry, samples, sessions
from .answers import Choice, Row, answer
from .candidates import TIMED_BACKENDS, Candidate, Subject
from .cases import Case
from .errors import InvalidInput
from .measurement import fingerprint
from .racing import Race, Report, Workers
from .samples import Sample
from .vocabulary import State, Verdict

_PATIENCE = 15.0
"""Seconds, at least, before a candidate that does not answer is given up."""

BUDGET = 60.0
"""Seconds of racing; checks, first calls and new processes for a close winner come on top."""


def choose(
    case: Case,
    *,
    backends: Sequence[str] = (),
    budget: float = BUDGET,
    max_memory: float | None = None,
    threads: int | None = None,
    fresh: bool = False,
    save: bool = True,
    report: Report = lambda seconds, what: None,
    workers: Workers | None = None,
) -> Choice:
    """Measure, decide, and save what was measured.

    backends     only these; a name that cannot be used here is an error
    budget       seconds for the race
    max_memory   bytes a call may need by prediction; less than half of what is free in any case
    threads      of every library; the usable cores by default
    fresh        measure again what is stored
    save         keep the samples for the next time, and the answer for ``auto``
    report       is told what is being done
    workers      processes to use, and to leave running; ``threads`` is then theirs
    """
    if not 0 < budget < inf:
        raise InvalidInput(f"budget must be a positive number of seconds; got {budget}.")
    if max_memory is not None and not 0 < max_memory < inf:
        raise InvalidInput(f"max_memory must be a positive number of bytes; got {max_memory}.")
    if threads is not None and threads < 1:
        raise InvalidInput(f"threads must be at least 1; got {threads}.")
    backends = (backends,) if isinstance(backends, str) else tuple(backends)
    for name in backends:
        registry.demand(name)
    began = time.monotonic()
    warnings = fingerprint.noise(fingerprint.fingerprint(), fingerprint.busy_share())
    absent, candidates = _candidates(case, backends or tuple(registry.names()))
    with ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(Workers(threads or fingerprint.usual_threads()))
        path = _file(case, workers.threads)
        race = Race(
            case,
            candidates,
            workers,
            seconds_per_call=budget / 6,
            memory_bytes=max_memory,
            timeout=max(_PATIENCE, budget),
            save=_saver(path) if save else lambda sample: None,
            report=report,
        )
        stored, confirmed, interrupted, doubt = 0, 0, False, ""
        try:
            race.prepare()
            known = {} if fresh else _resume(race, path)
            stored, confirmed = len(race.rounds), len(race.confirming)
            race.qualify(known)
            standing = race.run(budget)
            if standing.verdict is Verdict.FASTEST and standing.close:
                doubt = "it was interrupted before new processes had confirmed it"
                doubt = race.confirm(standing)
        except KeyboardInterrupt:
            interrupted = True
            standing = race.standing()
            warnings.append("Interrupted: the answer is from what was measured until then.")
    found = answer(
        race,
        standing,
        doubt,
        absent,
        threads=workers.threads,
        seconds=time.monotonic() - began,
        reused=0 < stored == len(race.rounds) and confirmed == len(race.confirming),
        interrupted=interrupted,
        whole=not (backends or max_memory or interrupted),
        warnings=warnings,
    )
    trouble = profiles.remember(found) if save else ""
    return replace(found, warnings=(*found.warnings, trouble)) if trouble else found


def _candidates(case: Case, backends: Sequence[str]) -> tuple[list[Row], list[Candidate]]:
    """What can be tried, and a row for every backend that is absent."""
    subject = Subject("descriptor", case.descriptor)
    absent, present = [], []
    for name in backends:
        if name.endswith(":ptx"):
            continue  # PTX executed on the CPU proves results and has no time of its own
        found = registry.probe(name)
        if found.state is State.OK:
            present.append(name)
        else:
            absent.append(Row(name, "", found.state, reason=found.reason))
    order = [*TIMED_BACKENDS, *present]
    present.sort(key=order.index)
    return absent, list(subject.candidates(tuple(present)))


# --- what was measured before ---


def _file(case: Case, threads: int) -> Path:
    """One file per case; its name is for people, the digest for what the name leaves out."""
    described = json.dumps([asdict(case), threads], sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    name = f"{case.descriptor}-b{case.batch}-n{case.n}-d{case.d}-{case.dtype}-{digest}.jsonl"
    return places.cache_folder() / "samples" / name


def _saver(path: Path) -> Any:
    """A cache that cannot be written must not cost the measurement."""
    broken = False

    def save(sample: Sample) -> None:
        nonlocal broken
        if broken:
            return
        try:
            samples.append(path, [sample])
        except InvalidInput:
            broken = True

    return save


def _resume(race: Race, path: Path) -> dict[str, dict[str, float]]:
    """Put the rounds of the last race of the same field back; returns what was measured once.

    Same field: the same candidates, each with the same machine, libraries and code.
    """
    try:
        stored = list(samples.read(path))
    except InvalidInput:
        return {}
    same = {r.name: r.identity for r in race.fit}
    fitting = [s for s in stored if _identity(s) == same.get(f"{s.backend}/{s.route}")]
    known: dict[str, dict[str, float]] = {}
    for sample in fitting:
        if sample.round == 0 and sample.value is not None:
            known.setdefault(f"{sample.backend}/{sample.route}", {})[sample.measure] = sample.value
    for session in dict.fromkeys(s.session for s in reversed(fitting) if s.round > 0):
        of_session = [s for s in fitting if s.session == session]
        calls = [int(s.value) for s in of_session if s.measure == "calls" and s.value]
        rounds = sessions.rounds(of_session, 1) if calls else []
        rounds = decision.consistent(rounds, same, calls[0]) if calls else []
        if rounds:
            race.rounds, race.session, race.calls = rounds, session, calls[0]
            race.confirming = sessions.rounds(of_session, -1)
            break
    return known


def _identity(sample: Sample) -> dict[str, str]:
    return {"fingerprint": sample.fingerprint, "code": sample.code}
