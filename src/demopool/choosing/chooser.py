"""``choose``: measure the candidates for a case, decide, and say why.

Candidates are what the capability table and the registry have for the case. Only conforming
candidates that fit the budget compete (``qualifying.py``): they race (``racing.py``) until the rule
(``rule.py``) has an answer or the budget is spent. ``ranking.py`` and ``sentences.py`` make an
answer of it, whose types are in ``answer_types.py``.

Samples are on disk the moment they are measured, and used again while neither the machine, nor its
software, nor the candidate's code has changed (``earlier_samples.py``): an answer that they hold
already is given without starting a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from math import inf
from pathlib import Path
from typing import ParamSpec
from warnings import warn

from ..contract import registry
from ..errors import InvalidInput
from ..machine import fingerprint, system
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.parameters import validated
from ..problem.vocabulary import TIMED_BACKENDS, Backend, State, Verdict
from ..profiles import store
from ..trials import samples
from ..trials.samples import Sample
from . import earlier_samples, qualifying
from .answer_types import Choice, Ranked
from .budget import Budget
from .racing import Race
from .ranking import answer
from .referee import JudgeFailed
from .runners import ProgressCallback, Workers

P = ParamSpec("P")

BUDGET = 60.0
"""Seconds for one case; starting processes, importing and compiling come on top."""


_OLD_NAMES = {"report": "progress", "noise": "warnings"}


def _with_old_names(choose: Callable[P, Choice]) -> Callable[P, Choice]:
    @wraps(choose)
    def called(*arguments: P.args, **options: P.kwargs) -> Choice:
        for old in _OLD_NAMES.keys() & options:
            sentence = f"choose({old}=) is deprecated: its name is {_OLD_NAMES[old]}."
            warn(sentence, DeprecationWarning, stacklevel=2)
            options[_OLD_NAMES[old]] = options.pop(old)
        return choose(*arguments, **options)

    return called


@_with_old_names
def choose(
    case: Case,
    *,
    backends: Sequence[str] = (),
    routes: Sequence[str] = (),
    budget: float = BUDGET,
    max_memory: float | None = None,
    max_error: float | None = None,
    calls: int | None = None,
    threads: int | None = None,
    images: Path | None = None,
    fresh: bool = False,
    retry: bool = False,
    save: bool = True,
    progress: ProgressCallback = lambda seconds, what: None,
    warnings: Sequence[str] | None = None,
    workers: Workers | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Choice:
    """Measure, decide, and save what was measured.

    backends     only these; a name that cannot be used here is an error
    routes       only these; without it all but those by TF32, which must be named
    budget       seconds for everything but the set-up of libraries
    max_memory   maximum predicted bytes of a call; never more than half of what is free
    max_error    maximum error against the reference, relative to the largest entry of a descriptor
                 before its final norm
    calls        of a job in one process: the least time of all of them, with the first call, wins
    threads      of every library; by default OMP_NUM_THREADS if set, else all usable cores
    images       a .npy (images, n, d) of those to time, instead of noise; what is stored is of
                 noise, so nothing of it is used, and only the answer is stored
    fresh        measure again what is stored
    retry        try again what was wrong, crashed or was given up
    save         store the samples for the next time, and the answer for ``auto``
    progress     called with the seconds spent and what is being done
    warnings     about this machine, if the caller knows them; else they are looked for
    workers      processes to use, and to leave running; ``threads`` and ``images`` are then theirs
    now          the clock of the budget
    """
    if not 0 < budget < inf:
        raise InvalidInput(f"budget must be a positive number of seconds; got {budget}.")
    if max_memory is not None and not 0 < max_memory < inf:
        raise InvalidInput(f"max_memory must be a positive number of bytes; got {max_memory}.")
    if max_error is not None:
        max_error = validated(max_error=max_error)
    if calls is not None:
        calls = validated(calls=calls)
    if threads is not None and threads < 1:
        raise InvalidInput(f"threads must be at least 1; got {threads}.")
    backends = (backends,) if isinstance(backends, str) else tuple(backends)
    for name in backends:
        registry.demand(name)
    routes = (routes,) if isinstance(routes, str) else tuple(routes)
    known = Subject("descriptor", case.descriptor).routes()
    for route in routes:
        if route not in known:
            raise InvalidInput(
                f"routes must be of {case.descriptor}: {', '.join(known)}; got {route!r}."
            )
    spending = Budget(budget, now)
    with spending.setting_up():
        if warnings is None:
            warnings = fingerprint.warnings(fingerprint.fingerprint())
        warnings = list(warnings)
        absent, candidates = _candidates(case, backends or tuple(registry.names()), routes)
        planned = qualifying.runners(case, candidates, max_memory, max_error)
    with ExitStack() as stack:
        if workers is None:
            own = "" if images is None else str(images)
            workers = stack.enter_context(Workers(threads or system.usual_threads(), own))
        path = earlier_samples.file(case, workers.threads)
        race = Race(
            case,
            planned,
            workers,
            spending,
            save=_saver(path) if save and images is None else lambda sample: None,
            progress=progress,
            job_calls=calls,
        )
        workers.conformance.retry, workers.conformance.save = retry, save
        before = None
        if not fresh and images is None:
            before = earlier_samples.EarlierSamples(path, race, retry=retry)
        had, interrupted, reason = (0, 0), False, ""
        qualifying.rule_out(race)
        try:
            if before is not None:
                race.recall(before.known())
                race.resume(before.earlier(race.fit))
            had = (len(race.rounds), len(race.confirming))
            standing = race.standing()
            if standing.verdict is None or race.open(standing):
                qualifying.qualify(race)
                if before is not None:
                    race.resume(before.earlier(race.racing))
                had = (len(race.rounds), len(race.confirming))
                standing = race.run()
            if standing.verdict is Verdict.FASTEST and standing.close:
                reason = "it was interrupted before new processes had confirmed it"
                reason = race.confirm(standing)
            if race.totals and standing.verdict is not None:
                reason = reason or race.totals.doubt(race.rounds, standing)
        except KeyboardInterrupt:
            interrupted = True
            standing = race.standing()
            warnings.append("Interrupted: the answer is from what was measured until then.")
        except JudgeFailed as problem:
            standing = race.standing()
            warnings.append(f"{problem}. Calls cannot be checked, so no more were timed.")
    found = answer(
        race.result(standing, reason),
        absent,
        threads=workers.threads,
        reused=0 < had[0] == len(race.rounds) and had[1] == len(race.confirming),
        interrupted=interrupted,
        restricted=bool(backends or routes or max_memory or max_error),
        max_memory=max_memory,
        max_error=max_error,
        warnings=warnings,
    )
    warning = store.remember(found) if save else ""
    return replace(found, warnings=(*found.warnings, warning)) if warning else found


def _candidates(
    case: Case, backends: Sequence[str], routes: Sequence[str]
) -> tuple[list[Ranked], list[Candidate]]:
    """What can be tried, and a row for every backend that is absent."""
    subject = Subject("descriptor", case.descriptor)
    absent, present = [], []
    for name in backends:
        if not Backend(name).is_timed:
            continue  # PTX executed on the CPU verifies results and has no time of its own
        found = registry.probe(name)
        if found.state is State.OK:
            present.append(name)
        else:
            absent.append(Ranked(name, "", found.state, reason=found.reason))
    order = [*TIMED_BACKENDS, *present]
    present.sort(key=order.index)
    wanted = routes or [route for route in subject.routes() if subject.is_raced(route)]
    return absent, [c for c in subject.candidates(tuple(present)) if c.route in wanted]


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
