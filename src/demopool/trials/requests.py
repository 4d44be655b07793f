"""Requests to a worker: one candidate on one case, and the samples that come of it.

The functions named ``run_...`` run in the worker, which keeps every job it has made, so that
candidates of one backend can take turns. Each measure is a request of its own: memory is not read
in a run that is timed, and a crash in one leaves the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pooling, reference
from ..contract import registry
from ..machine import fingerprint
from ..measurement.clock import Clock, Reading
from ..measurement.code_identity import code_key
from ..measurement.worker import Answer, Worker
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import State
from ..profiles.eligibility import Ineligible, ineligible, limits_here, predicted_seconds
from . import jobs, judgement, measures
from .jobs import Job
from .measures import MeasuredValue, Trial
from .samples import Sample
from .streams import ImagePool, Source, Stream, Turn

TIMEOUT = 60.0
"""Seconds for one request, unless the caller knows better."""


_LITTLE = 0.03
"""Seconds, by prediction, of a call that is made to load and compile."""

_REPEATED_SECONDS, _REPEATED_CALLS = 0.2, 10
"""For a measure that repeats its call."""


def measure(
    candidate: Candidate,
    case: Case,
    worker: Worker,
    *,
    calls: int = 10,
    timeout: float = TIMEOUT,
    seconds: float | None = None,
) -> Iterator[Sample]:
    """Every measure of one candidate, each sample as soon as it is there.

    A candidate that cannot run, is predicted not to fit the memory or to take more than ``seconds``
    a call, or dies while it is prepared, gives one sample with its state.
    """
    subject = Subject("descriptor", case.descriptor)
    common: dict[str, Any] = {"backend": candidate.backend, "route": candidate.route, "case": case}
    common["threads"] = worker.threads

    def ask(function: Callable[..., Any], **options: Any) -> Answer:
        return worker.ask(function, subject, candidate, case, timeout=timeout, **options)

    def without_value(measure: str, state: State, reason: str) -> Sample:
        return Sample(**common, measure=measure, value=None, state=state, reason=reason)

    prepared = ask(run_preparation, seconds=seconds)
    if prepared.state is not State.OK:
        yield without_value("call_s", prepared.state, prepared.reason)
        return
    if isinstance(prepared.value, Ineligible):
        yield without_value("call_s", *prepared.value)
        return
    common.update(prepared.value)
    for name in measures.ONCE:
        answer = ask(run_measure, measure=name)
        if answer.state is not State.OK:
            yield without_value(name, answer.state, answer.reason)
        elif answer.value.value is not None:
            found = answer.value
            yield Sample(**common, measure=name, value=found.value, reason=found.warning)
    timed = ask(run_block, calls=calls, discard=1)
    if timed.state is not State.OK:
        yield without_value("call_s", timed.state, timed.reason)
        return
    for reading in timed.value:
        yield Sample(**common, measure="call_s", value=reading.wall, device_s=reading.device)


# --- in the worker ---


def run_preparation(
    subject: Subject,
    candidate: Candidate,
    case: Case,
    *,
    seconds: float | None = None,
    bytes: float | None = None,
) -> Ineligible | dict[str, str]:
    """Load the library and place the data; returns what identifies the machine and the code.

    Here and not in the process that asks: finding out may load the library. ``seconds`` and
    ``bytes`` are the maximum of a call; never more memory than is free.
    """
    limits = limits_here(candidate.backend, seconds)
    if bytes is not None:
        limits = limits._replace(bytes=min(bytes, limits.bytes or bytes))
    refusal = ineligible(subject, candidate, case, limits, package=pooling)
    if refusal:
        return refusal
    _job(subject, candidate, case)
    return {
        "fingerprint": fingerprint.key(fingerprint.fingerprint()),
        "code": code_key(candidate.backend),
    }


def run_loading(
    subject: Subject, candidate: Candidate, case: Case, *, threads: int = 1
) -> Ineligible | float:
    """Load and compile what the candidate needs: how much longer a first call takes than a second.

    On little data, unless the library compiles for every shape: then on the case itself. Here and
    not in the process that asks: finding out what is supported may load the library.
    """
    refusal = ineligible(subject, candidate, case, package=pooling)
    if refusal:
        return refusal
    per_shape = registry.compiles_per(candidate.backend) == "shape"
    compiled = case if per_shape else little(subject, candidate, case, threads)
    job = jobs.prepare(pooling, subject, candidate, compiled)
    call = job.run_from_host if case.data == "host" else job.run
    first, second = Clock(job.device).block(call, 2)
    return max(first.wall - second.wall, 0.0)


def little(subject: Subject, candidate: Candidate, case: Case, threads: int) -> Case:
    """What compiles the same code and takes next to no time by prediction.

    Code is chosen by the sizes, and by whether there is an image for every thread.
    """
    case = replace(case, batch=min(case.batch, threads))
    while predicted_seconds(subject, candidate, case) > _LITTLE and max(case.n, case.d) > 1:
        # Both halved: some routes exist for n >= d only.
        case = replace(case, n=(case.n + 1) // 2, d=(case.d + 1) // 2)
    return case


def run_placing(subject: Subject, candidate: Candidate, case: Case, *, source: Source) -> None:
    """Make the data, and put it where the backend wants it."""
    _stream(subject, candidate, case, source)


def run_first_call(subject: Subject, candidate: Candidate, case: Case) -> float:
    """The first in this process, if nothing else was asked before."""
    first = run_measure(subject, candidate, case, measure="first_call_s").value
    assert first is not None
    return first


def run_block(
    subject: Subject,
    candidate: Candidate,
    case: Case,
    *,
    calls: int,
    discard: int = 0,
    cold: bool = False,
) -> list[Reading]:
    """Some calls in a row."""
    job = _job(subject, candidate, case)
    return Clock(job.device, cold=cold).block(job.run, calls, discard=discard)


def run_turn(
    subject: Subject,
    candidate: Candidate,
    case: Case,
    *,
    source: Source,
    calls: int,
    discard: int,
    thorough: bool,
) -> Turn:
    """As the case says data starts: from NumPy to NumPy, or where the backend works."""
    return _stream(subject, candidate, case, source).turn(calls, discard, thorough)


def run_descriptors(
    subject: Subject, candidate: Candidate, case: Case, *, on: Case, pool: ImagePool
) -> NDArray[Any]:
    """Of images that the judge knows, of a twin of the case, before their final norm."""
    by: dict[str, Any] = {"backend": candidate.backend, "route": candidate.route, "k": on.k}
    X = judgement.images(on, pool)
    return np.asarray(pooling.describe(X, str(on.descriptor), **by, **judgement.options(on)))


def run_measure(
    subject: Subject, candidate: Candidate, case: Case, *, measure: str, warm: bool = False
) -> MeasuredValue:
    """A measure of the table; ``warm`` says that the job has made a call in this process."""
    of_job = measures.ONCE[measure].of_job
    assert of_job is not None
    return of_job(
        Trial(
            _job(subject, candidate, case),
            lambda: _expected(subject, case),
            warm,
            _REPEATED_SECONDS,
            _REPEATED_CALLS,
        )
    )


def _stream(subject: Subject, candidate: Candidate, case: Case, source: Source) -> Stream:
    made = _streams(subject, case, source)
    if candidate not in made:
        made[candidate] = Stream(_job(subject, candidate, case), case, source)
    return made[candidate]


@lru_cache(maxsize=1)
def _streams(subject: Subject, case: Case, source: Source) -> dict[Candidate, Stream]:
    return {}


def _job(subject: Subject, candidate: Candidate, case: Case) -> Job:
    made = _jobs(subject, case)
    if candidate not in made:
        made[candidate] = jobs.prepare(pooling, subject, candidate, case)
    return made[candidate]


@lru_cache(maxsize=1)
def _jobs(subject: Subject, case: Case) -> dict[Candidate, Job]:
    """Of one case at a time: their data would add up over a sweep."""
    return {}


@lru_cache(maxsize=1)
def _expected(subject: Subject, case: Case) -> Any:
    return jobs.expected(reference, pooling, subject, case, jobs.inputs(subject, case))
