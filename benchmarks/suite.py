"""What every benchmark class is made of: parameters, preparation, one timing, five tracked values.

Parameters are the same whatever is installed and whatever profile runs: ``candidate`` and ``case``.
What cannot run here raises NotImplementedError, which asv shows as n/a, and the reason goes into
the notes beside the results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from statistics import median
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
    clock,
    device,
    eligibility,
    hashing,
    jobs,
    memory,
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


class _Suite:
    """One subject. Subclasses are made by :func:`suite`; asv reads their attributes."""

    subject: Any
    prepare: Any = staticmethod(jobs.prepare)
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

    def setup(self, candidate: str, case: str) -> None:
        def work() -> Any:
            return _job(self.subject, candidate, case, self.prepare)

        self.job = _noted(self, None, candidate, case, work)


def suite(kind: str, subject: str, module: str) -> type:
    """The class that asv finds for one descriptor or operation."""
    about = candidates.Subject(kind, subject)
    every = tuple(str(c) for c in (BASELINE, *about.candidates()))
    made = _class(about, module)
    made.time_call = _timed("time_call", (every, tuple(cases.NAMED)))
    for measure, (unit, value) in TRACKED.items():
        setattr(made, f"track_{measure}", _track(measure, unit, value, (every, cases.NETWORKS)))
    return made


def gradient_suite(descriptor: str, module: str) -> type:
    """Forward and backward, for the one library here whose tensors carry gradients."""
    about = candidates.Subject("descriptor", descriptor)
    backends = tuple(b for b in candidates.TIMED_BACKENDS if b.startswith("torch:"))
    every = tuple(str(c) for c in about.candidates(backends))
    made = _class(about, module)
    made.prepare = staticmethod(jobs.prepare_gradient)
    made.time_forward_backward = _timed("time_forward_backward", (every, tuple(cases.NAMED)))
    return made


def _class(subject: Any, module: str) -> Any:
    name = "".join(word.capitalize() for word in subject.name.replace("_", "-").split("-"))
    return type(name, (_Suite,), {"__module__": module, "subject": subject})


def _timed(name: str, params: tuple[Any, Any]) -> Callable[..., None]:
    def timed(self: _Suite, candidate: str, case: str) -> None:
        try:
            self.job.run()
            self.job.device.synchronize()
        except Exception as problem:
            _note_failure(self, name, candidate, case, problem)
            raise

    timed.__name__ = name
    timed.params = params
    return timed


def _track(measure: str, unit: str, value: Callable[..., float], params: Any) -> Callable[..., Any]:
    def track(self: _Suite, candidate: str, case: str) -> float:
        return _noted(self, f"track_{measure}", candidate, case, lambda: value(self, case))

    track.__name__ = f"track_{measure}"
    track.unit = unit
    track.params = params
    return track


# --- the tracked values ---


def _first_call(suite: _Suite, case: str) -> float:
    """In a process that has done nothing else: compilation, allocation, plans."""
    return clock.Clock(suite.job.device).read(suite.job.run).wall


def _with_transfer(suite: _Suite, case: str) -> float:
    timing = clock.Clock(suite.job.device).time(suite.job.run_from_host)
    if timing.trouble:
        notes.note("trouble", benchmark=_name(suite), case=case, reason=timing.trouble)
    return median(reading.wall for reading in timing.readings)


def _peak_host(suite: _Suite, case: str) -> float:
    suite.job.run()
    return _known(memory.peak_host_bytes(suite.job.run), "this system does not tell it")


def _peak_device(suite: _Suite, case: str) -> float:
    suite.job.run()
    peak = memory.peak_device_bytes(suite.job.run, suite.job.device)
    return _known(peak, "it has no device memory, its device is the host")


def _error(suite: _Suite, case: str) -> float:
    result = suite.job.to_numpy(suite.job.run())
    return jobs.relative_error(np.asarray(result), _expected(suite.subject, case))


TRACKED: dict[str, tuple[str, Callable[..., float]]] = {
    "first_call_s": ("seconds", _first_call),
    "with_transfer_s": ("seconds", _with_transfer),
    "peak_host_bytes": ("bytes", _peak_host),
    "peak_device_bytes": ("bytes", _peak_device),
    "error": ("relative error", _error),
}


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
    needed = elements_held(subject, case) * cases.DTYPE_BYTES[case.dtype]
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


def _known(value: float | None, otherwise: str) -> float:
    if value is None:
        raise Skip(vocabulary.State.UNSUPPORTED, otherwise)
    return value


def _noted(
    suite: _Suite, method: str | None, candidate: str, case: str, work: Callable[[], Any]
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
    suite: _Suite, method: str | None, candidate: str, case: str, problem: Exception
) -> None:
    state = vocabulary.State.ERROR
    reason = f"{type(problem).__name__}: {problem}"
    if "OutOfMemory" in reason or isinstance(problem, MemoryError):
        state = vocabulary.State.OUT_OF_MEMORY
    where = {"benchmark": _name(suite, method), "candidate": candidate, "case": case}
    notes.note("failure", **where, state=state, reason=reason)


def _name(suite: _Suite, method: str | None = None) -> str:
    """As asv names it."""
    names = (type(suite).__module__.rpartition(".")[2], type(suite).__name__, method)
    return ".".join(filter(None, names))
