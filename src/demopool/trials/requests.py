"""Trials: a candidate in a worker, and what it gives as samples.

The functions named ``run_...`` are what a worker runs; it keeps every job it has made, so that
candidates of one backend can take turns. Each measure is a request of its own: memory is not read
in a run that is timed, and a crash in one leaves the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from .. import pooling, reference
from ..machine import fingerprint
from ..measurement import memory
from ..measurement.clock import Clock, Reading
from ..measurement.code_identity import code_key
from ..measurement.worker import Answer, Worker
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import State
from ..profiles.eligibility import Ineligible, ineligible, limits_here, predicted_seconds
from . import jobs
from .jobs import Job
from .judgement import Judgement, judge
from .samples import Sample

TIMEOUT = 60.0
"""Seconds for one request, unless the caller knows better."""


_LITTLE = 0.03
"""Seconds, by prediction, of a call that is made to load and compile."""


class Remarked(NamedTuple):
    """A value, and a sentence about what disturbed it, if anything."""

    value: float
    remark: str


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
    for name, function in ONCE.items():
        answer = ask(function)
        if answer.state is not State.OK:
            yield without_value(name, answer.state, answer.reason)
        elif isinstance(answer.value, Remarked):
            value, remark = answer.value
            yield Sample(**common, measure=name, value=value, reason=remark)
        elif answer.value is not None:
            yield Sample(**common, measure=name, value=answer.value)
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
    """Load the library and place the data; tells on what and of what code it will be measured.

    Here and not in the process that asks: finding out may load the library. A call may take
    ``seconds``, and ``bytes`` if that is less than what is free.
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
    """Load and compile what the candidate needs: seconds of a first call, on little data.

    Here and not in the process that asks: finding out what is supported may load the library.
    """
    refusal = ineligible(subject, candidate, case, package=pooling)
    if refusal:
        return refusal
    job = jobs.prepare(pooling, subject, candidate, little(subject, candidate, case, threads))
    call = job.run_from_host if case.data == "host" else job.run
    return Clock(job.device).read(call).wall


def little(subject: Subject, candidate: Candidate, case: Case, threads: int) -> Case:
    """What compiles the same code and takes next to no time by prediction.

    Code is chosen by the sizes, and by whether there is an image for every thread.
    """
    case = replace(case, batch=min(case.batch, threads))
    while predicted_seconds(subject, candidate, case) > _LITTLE and max(case.n, case.d) > 1:
        # Both halved: some routes exist for n >= d only.
        case = replace(case, n=(case.n + 1) // 2, d=(case.d + 1) // 2)
    return case


def run_placing(subject: Subject, candidate: Candidate, case: Case) -> None:
    """Make the data, and put it where the backend wants it."""
    _job(subject, candidate, case)


def run_first_call(subject: Subject, candidate: Candidate, case: Case) -> float:
    """The first in this process, if nothing else was asked before."""
    job = _job(subject, candidate, case)
    return Clock(job.device).read(job.run).wall


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
    subject: Subject, candidate: Candidate, case: Case, *, calls: int, discard: int
) -> list[float]:
    """The same as the case says data starts: from NumPy to NumPy, or where the backend works."""
    job = _job(subject, candidate, case)
    call = job.run_from_host if case.data == "host" else job.run
    return [reading.wall for reading in Clock(job.device).block(call, calls, discard=discard)]


def run_judgement(
    subject: Subject, candidate: Candidate, case: Case, *, effort: float = 1.0
) -> Judgement:
    """Against the reference, on the case or a smaller twin."""
    return judge(pooling, candidate, case, effort)


def run_with_transfer(subject: Subject, candidate: Candidate, case: Case) -> Remarked:
    """From NumPy to NumPy, the median of a few calls, and what disturbed them."""
    job = _job(subject, candidate, case)
    timing = Clock(job.device).time(job.run_from_host, seconds=0.2, at_most=10)
    return Remarked(median(reading.wall for reading in timing.readings), timing.trouble)


def run_peak_host(
    subject: Subject, candidate: Candidate, case: Case, *, warm: bool = False
) -> int | None:
    """Of a call that is not the first; ``warm`` says that there was one."""
    job = _job(subject, candidate, case)
    if not warm:
        job.run()
    return memory.peak_host_bytes(job.run)


def run_peak_device(
    subject: Subject, candidate: Candidate, case: Case, *, warm: bool = False
) -> int | None:
    """Of a call that is not the first; ``warm`` says that there was one."""
    job = _job(subject, candidate, case)
    if not warm:
        job.run()
    return memory.peak_device_bytes(job.run, job.device)


def run_error(subject: Subject, candidate: Candidate, case: Case) -> float:
    """Against the reference, on the first and the last image."""
    job = _job(subject, candidate, case)
    result = np.asarray(job.to_numpy(job.run()))
    return jobs.relative_error(result, _expected(subject, case))


ONCE: dict[str, Callable[..., Any]] = {
    "first_call_s": run_first_call,
    "with_transfer_s": run_with_transfer,
    "peak_host_bytes": run_peak_host,
    "peak_device_bytes": run_peak_device,
    "error": run_error,
}


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
    return jobs.expected(reference, pooling, subject, case)
