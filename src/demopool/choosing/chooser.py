"""``choose``: measure the candidates for a case, decide, and say why.

Candidates are what the capability table and the registry have for the case. Each must first be
right and fit the budget (``qualifying.py``); then they race (``racing.py``) until the rule
(``decision.py``) has an answer or the budget is spent; ``answers.py`` puts it into words. Samples
are on disk the moment they are measured, and used again while neither the machine, nor its
software, nor the candidate's code has changed (``stored.py``): an answer that they hold already is
given without starting a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path

from ..contract import registry
from ..errors import InvalidInput
from ..machine import fingerprint, system
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import TIMED_BACKENDS, Backend, State, Verdict
from ..profiles import store
from ..trials import samples
from ..trials.samples import Sample
from . import qualifying, stored
from .answers import answer
from .budget import Budget
from .choice import Choice, Row
from .racing import Race
from .runners import Report, Workers

BUDGET = 60.0
"""Seconds for one case; starting processes, importing and compiling come on top."""


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
    noise: Sequence[str] | None = None,
    workers: Workers | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Choice:
    """Measure, decide, and save what was measured.

    backends     only these; a name that cannot be used here is an error
    budget       seconds for everything but the set-up of libraries
    max_memory   bytes a call may need by prediction; less than half of what is free in any case
    threads      of every library; the usable cores by default
    fresh        measure again what is stored
    save         keep the samples for the next time, and the answer for ``auto``
    report       is told what is being done
    noise        sentences about this machine, if the caller has them; else it is looked at
    workers      processes to use, and to leave running; ``threads`` is then theirs
    now          the clock of the budget
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
    spending = Budget(budget, now)
    with spending.setting_up():
        if noise is None:
            noise = fingerprint.noise(fingerprint.fingerprint())
        warnings = list(noise)
        absent, candidates = _candidates(case, backends or tuple(registry.names()))
        planned = qualifying.runners(case, candidates, max_memory)
    with ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(Workers(threads or system.usual_threads()))
        path = stored.file(case, workers.threads)
        race = Race(
            case,
            planned,
            workers,
            spending,
            save=_saver(path) if save else lambda sample: None,
            report=report,
        )
        before = stored.Stored(path, race) if not fresh else None
        had, interrupted, doubt = (0, 0), False, ""
        try:
            if before is not None:
                before.put_in_once()
                before.put_in_rounds(race.fit)
            had = (len(race.rounds), len(race.confirming))
            standing = race.standing()
            if standing.verdict is None or race.open(standing):
                qualifying.qualify(race)
                if before is not None:
                    before.put_in_rounds(race.racing)
                had = (len(race.rounds), len(race.confirming))
                standing = race.run()
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
        reused=0 < had[0] == len(race.rounds) and had[1] == len(race.confirming),
        interrupted=interrupted,
        restricted=bool(backends or max_memory),
        max_memory=max_memory,
        warnings=warnings,
    )
    trouble = store.remember(found) if save else ""
    return replace(found, warnings=(*found.warnings, trouble)) if trouble else found


def _candidates(case: Case, backends: Sequence[str]) -> tuple[list[Row], list[Candidate]]:
    """What can be tried, and a row for every backend that is absent."""
    subject = Subject("descriptor", case.descriptor)
    absent, present = [], []
    for name in backends:
        if not Backend(name).is_timed:
            continue  # PTX executed on the CPU proves results and has no time of its own
        found = registry.probe(name)
        if found.state is State.OK:
            present.append(name)
        else:
            absent.append(Row(name, "", found.state, reason=found.reason))
    order = [*TIMED_BACKENDS, *present]
    present.sort(key=order.index)
    return absent, list(subject.candidates(tuple(present)))


def _saver(path: Path) -> Callable[[Sample], None]:
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
