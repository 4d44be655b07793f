"""What every benchmark class is made of: parameters, preparation, one timing, tracked measures.

Parameters are the same whatever is installed and whatever profile runs: ``candidate`` and ``case``.
What cannot run here raises NotImplementedError, which asv shows as n/a, and the reason goes into
the notes beside the results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from asv_runner.benchmarks.mark import SkipNotImplemented

import demopool

from . import notes
from .baselines import BASELINES, elements_held
from .harness import (
    ROOT,
    candidates,
    cases,
    device,
    eligibility,
    hashing,
    jobs,
    measures,
    reference,
    vocabulary,
)

BASELINE = candidates.Candidate("baseline", "plain")

CALL_SECONDS = 5.0
"""A call that is predicted to take longer is skipped; a baseline may take three times as long."""

_LIKE = {
    "sum": "direct",
    "democratic": "dense",
    "power": "eigh",
    "sketched-sum": "fft",
    "sketched-democratic": "dense+fft",
    "sketched-power": "eigh+moment",
    "weights": "dense",
    "pool": "direct",
    "sketch": "fft",
    "pool_sketch": "fft",
    "matrix_power": "eigh",
    "power_sketch": "eigh+moment",
    "normalize": "direct",
}
"""The route whose predicted time, three times over, is that of the baseline."""


class Suite:
    """One subject. Its classes are :class:`Descriptor` and the like; asv reads their attributes."""

    subject: Any
    job: Any
    param_names = ("candidate", "case")
    version = jobs.VERSION
    timeout = 120.0

    # Setup runs before every timed call and finds its job ready; asv's warm-up has the first call.
    warmup_time = 0.1
    rounds = 2
    number = 1
    repeat = (3, 100, 0.5)
    min_run_count = 3

    prepare: Any = staticmethod(jobs.prepare)

    def setup(self, candidate: str, case: str) -> None:
        def work() -> Any:
            return _job(self.subject, candidate, case, self.prepare)

        self.job = _noted(self, None, candidate, case, work)


class _Call(Suite):
    """A call, timed on all cases, and the measures that are tracked, on the network cases."""

    kind: str

    def __init_subclass__(cls, of: str | None = None) -> None:
        if of is None:
            return
        cls.subject = candidates.Subject(cls.kind, of)
        every = tuple(str(c) for c in (BASELINE, *cls.subject.candidates()))
        _add(cls, _timed("time_call", (every, tuple(cases.NAMED))))
        for measure in measures.ONCE.values():
            _add(cls, _tracked(measure, (every, cases.NETWORKS)))


class Descriptor(_Call):
    """``of`` one descriptor: ``describe`` from features to the normalised descriptor."""

    kind = "descriptor"


class Operation(_Call):
    """``of`` one operation, on the backend's own arrays."""

    kind = "operation"


class Gradient(Suite):
    """Forward and backward ``of`` a descriptor, for the library here whose tensors have gradients.

    Its classes have no baseline.
    """

    prepare = staticmethod(jobs.prepare_gradient)

    def __init_subclass__(cls, of: str) -> None:
        cls.subject = candidates.Subject("descriptor", of)
        backends = tuple(b for b in vocabulary.TIMED_BACKENDS if b.library == "torch")
        every = tuple(str(c) for c in cls.subject.candidates(backends))
        _add(cls, _timed("time_forward_backward", (every, tuple(cases.NAMED))))


def _add(cls: type, method: Callable[..., Any]) -> None:
    setattr(cls, method.__name__, method)


def _timed(name: str, params: tuple[Any, Any]) -> Callable[..., None]:
    def timed(self: Suite, candidate: str, case: str) -> None:
        try:
            self.job.run()
            self.job.device.synchronize()
        except Exception as problem:
            _note_failure(self, name, candidate, case, problem)
            raise

    timed.__name__ = name
    timed.params = params
    return timed


def _tracked(measure: Any, params: tuple[Any, Any]) -> Callable[..., float]:
    name = f"track_{measure.name}"

    def track(self: Suite, candidate: str, case: str) -> float:
        def work() -> float:
            trial = measures.Trial(self.job, lambda: _expected(self.subject, case))
            found = measure.of_job(trial)
            if found.warning:
                notes.note("trouble", benchmark=_name(self), case=case, reason=found.warning)
            if found.value is None:
                raise Skip(vocabulary.State.UNSUPPORTED, found.reason)
            return float(found.value)

        return _noted(self, name, candidate, case, work)

    track.__name__ = name
    track.unit = measure.unit
    track.params = params
    return track


# --- preparation ---


class Skip(SkipNotImplemented):
    """Not to be run here; asv shows n/a."""

    def __init__(self, state: Any, reason: str) -> None:
        self.state, self.reason = state, reason
        super().__init__(f"{state}: {reason}")


@lru_cache(maxsize=1)
def _job(subject: Any, candidate: str, case: str, prepare: Callable[..., Any]) -> Any:
    """Ready to run, made once per process."""
    notes.start(f"{subject.name} {candidate} {case}")
    wanted, size = candidates.Candidate.parse(candidate), cases.named(case)
    limits = eligibility.limits_here(wanted.backend, CALL_SECONDS)
    if wanted == BASELINE:
        return _baseline(subject, size, limits)
    refusal = eligibility.ineligible(subject, wanted, size, limits, package=demopool)
    if refusal:
        raise Skip(*refusal)
    return prepare(demopool, subject, wanted, size)


def _baseline(subject: Any, case: Any, limits: Any) -> Any:
    needed = elements_held(subject, case) * case.dtype.bytes
    if limits.bytes is not None and needed > limits.bytes:
        raise Skip(vocabulary.State.OUT_OF_MEMORY, f"a baseline would hold {needed / 1e9:.2g} GB")
    like = candidates.Candidate("numpy:cpu", _LIKE[subject.name])
    seconds = eligibility.predicted_seconds(subject, like, case)
    if seconds > CALL_SECONDS:
        raise Skip(vocabulary.State.TIMEOUT, f"a baseline would take over {seconds:.2g} s")
    given = dict(jobs.inputs(subject, case))
    given["hashes"] = hashing.hashes(case.d, case.k)
    function = BASELINES[subject.kind, subject.name]

    def run() -> Any:
        return function(given, case)

    return jobs.Job(run, run, np.asarray, device.Host())


def _expected(subject: Any, case: str) -> Any:
    """The reference's answer, kept on disk: it is slow, and the same for every candidate."""
    sources = [
        *sorted((ROOT / "reference").glob("*.py")),
        Path(hashing.__file__),
        Path(jobs.__file__),
    ]
    code = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    name = f"{subject.kind}-{subject.name}-{case}-{jobs.VERSION}-{code}.npy"
    file = ROOT / ".asv" / "expected" / name
    if not file.exists():
        found = jobs.expected(reference, hashing, subject, cases.named(case))
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".partial.npy")
        np.save(beside, found)
        beside.replace(file)
    return np.load(file)


def _noted(
    suite: Suite, method: str | None, candidate: str, case: str, work: Callable[[], Any]
) -> Any:
    """Do it, and write down why if it could not be done; without a method, for all of the class."""
    try:
        return work()
    except Skip as skip:
        where = {"benchmark": _name(suite, method), "candidate": candidate, "case": case}
        notes.note("skip", **where, state=skip.state, reason=skip.reason)
        raise
    except Exception as problem:
        _note_failure(suite, method, candidate, case, problem)
        raise


def _note_failure(
    suite: Suite, method: str | None, candidate: str, case: str, problem: Exception
) -> None:
    state = vocabulary.State.ERROR
    reason = f"{type(problem).__name__}: {problem}"
    if "OutOfMemory" in reason or isinstance(problem, MemoryError):
        state = vocabulary.State.OUT_OF_MEMORY
    where = {"benchmark": _name(suite, method), "candidate": candidate, "case": case}
    notes.note("failure", **where, state=state, reason=reason)


def _name(suite: Suite, method: str | None = None) -> str:
    """As asv names it."""
    names = (type(suite).__module__.rpartition(".")[2], type(suite).__name__, method)
    return ".".join(filter(None, names))
