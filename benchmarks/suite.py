"""What every benchmark class is made of: parameters, preparation, one timing, tracked measures.

Parameters are the same whatever is installed and whatever profile runs: ``candidate``, and a size:
``n``, ``d``, or a ``case``, which has a name for several. A route that a backend does not have on
any machine is not among them. What cannot run here raises NotImplementedError, which asv shows as
n/a, and the reason goes into the notes beside the results.

Every call works on another input than the one before (inputs.py), and ``track_error`` judges the
calls that are timed.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from asv_runner.benchmarks.mark import SkipNotImplemented

import demopool

from . import notes
from .baselines import BASELINES, GRADIENTS, elements_held
from .harness import candidates, cases, device, eligibility, hashing, jobs, measures, vocabulary
from .inputs import Arrays, Features

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

_SOLVERS = {"fft", "eigh", "gram", "svd", "newton"}
_LACKING = {
    "numba:cuda": _SOLVERS,
    "triton:cuda": {*_SOLVERS, "matrix-free", "moment", "newton-schulz", "polar"},
}
"""Numba has no Fourier transform and no solvers on CUDA, and in Triton there is little more than
products: routes with these steps do not exist."""

JUDGED_CALLS = 3
"""A result that is remembered is right in the first call only."""


class Suite:
    """One subject. Its classes are :class:`Descriptor` and the like; asv reads their attributes."""

    subject: Any
    axis = "case"
    version = jobs.VERSION
    timeout = 120.0

    # Setup runs before every timed call: it puts another input before the job, which it keeps.
    warmup_time = 0.1
    rounds = 2
    number = 1
    repeat = (3, 100, 0.5)
    min_run_count = 3

    prepare: Any = staticmethod(jobs.prepare)

    def setup(self, candidate: str, size: Any) -> None:
        def work() -> Any:
            return _job(self.subject, candidate, _case(self.axis, size), self.prepare)

        self.job, self.inputs = _noted(self, None, candidate, size, work)
        self.inputs.next()


class _Call(Suite):
    """A call that is timed, and measures that are tracked."""

    kind: str
    param_names: tuple[str, ...]
    tracked: tuple[str, ...] = tuple(measures.ONCE)

    def __init_subclass__(
        cls, of: str | None = None, backends: tuple[str, ...] | None = None
    ) -> None:
        """``backends``: only these, without a baseline; else ours."""
        if of is None:
            return
        cls.subject = candidates.Subject(cls.kind, of)
        cls.param_names = ("candidate", cls.axis)
        sizes = cases.AXES[cls.axis].sizes if cls.axis in cases.AXES else cases.NETWORKS
        every = candidates_of(cls.subject)
        if backends is not None:
            every = tuple(str(candidate) for candidate in cls.subject.candidates(backends))
        _add(cls, _timed("time_call", (every, sizes)))
        for name in cls.tracked:
            measure = measures.ONCE[name]
            # On the host there is no device memory, and a transfer is no different call.
            asked = every if measure.where == "everywhere" else _on_gpus(every)
            if asked:
                _add(cls, _tracked(measure, (asked, sizes)))


class Descriptor(_Call):
    """``of`` one descriptor: ``describe`` from features to the normalised descriptor."""

    kind = "descriptor"


class OverN(Descriptor):
    """``of`` one descriptor, over n at a fixed d."""

    axis = "n"
    tracked = ("peak_host_bytes", "peak_device_bytes")


class OverD(OverN):
    """``of`` one descriptor, over d at a fixed n."""

    axis = "d"


class Operation(_Call):
    """``of`` one operation whose routes differ, on the backend's own arrays."""

    kind = "operation"
    tracked = ("error",)


class Gradient(Suite):
    """Forward and backward ``of`` a descriptor, for the library here whose tensors have gradients.

    The baseline, where there is one, is what torch makes of the authors' formulation.
    """

    prepare = staticmethod(jobs.prepare_gradient)
    param_names = ("candidate", "case")

    def __init_subclass__(cls, of: str) -> None:
        cls.subject = candidates.Subject("descriptor", of)
        backends = tuple(b for b in vocabulary.TIMED_BACKENDS if b.library == "torch")
        baseline = (BASELINE,) if of in GRADIENTS else ()
        every = tuple(str(c) for c in (*baseline, *cls.subject.candidates(backends)))
        _add(cls, _timed("time_forward_backward", (every, cases.NETWORKS)))


def candidates_of(subject: Any) -> tuple[str, ...]:
    """The baseline, and every candidate that some machine can have."""
    found = [
        candidate
        for candidate in subject.candidates()
        if not _LACKING.get(candidate.backend, set()) & set(candidate.route.split("+"))
    ]
    return tuple(str(candidate) for candidate in (BASELINE, *found))


def of_backends(made: type[_Call], backends: tuple[str, ...], module: str) -> type[Suite]:
    """A class of the suite once more, with other backends and as if of another module."""
    body = {"__module__": module, "__doc__": made.__doc__, "__qualname__": made.__name__}
    parents = made.__bases__  # without its methods, whose candidates are others
    found: type[Suite] = types.new_class(
        made.__name__,
        parents,
        {"of": made.subject.name, "backends": backends},
        lambda namespace: namespace.update(body),
    )
    return found


def _on_gpus(every: tuple[str, ...]) -> tuple[str, ...]:
    devices = {name: candidates.Candidate.parse(name).backend.device for name in every}
    return tuple(name for name, device in devices.items() if device not in ("", "cpu"))


def _add(cls: type, method: Callable[..., Any]) -> None:
    setattr(cls, method.__name__, method)


def _timed(name: str, params: tuple[Any, Any]) -> Callable[..., None]:
    def timed(self: Suite, candidate: str, size: Any) -> None:
        try:
            device.wait_for(self.job.run(), self.job.device)
        except Exception as problem:
            _note_failure(self, name, candidate, size, problem)
            raise

    timed.__name__ = name
    timed.params = params
    return timed


def _tracked(measure: Any, params: tuple[Any, Any]) -> Callable[..., float]:
    name = f"track_{measure.name}"

    def track(self: Suite, candidate: str, size: Any) -> float:
        def work() -> float:
            found = _worst_error(self, measure) if measure.name == "error" else _once(self, measure)
            if found.warning:
                notes.note(
                    "trouble",
                    benchmark=_name(self),
                    case=case_name(self.axis, size),
                    reason=found.warning,
                )
            if found.value is None:
                raise Skip(vocabulary.State.UNSUPPORTED, found.reason)
            return float(found.value)

        return _noted(self, name, candidate, size, work)

    track.__name__ = name
    track.unit = measure.unit
    track.params = params
    return track


def _once(suite: Suite, measure: Any) -> Any:
    return measure.of_job(measures.Trial(suite.job, suite.inputs.expected))


def _worst_error(suite: Suite, measure: Any) -> Any:
    """Of a few calls, each on another input, as they are timed."""
    found = [_once(suite, measure)]
    for _ in range(JUDGED_CALLS - 1):
        suite.inputs.next()
        found.append(_once(suite, measure))
    return max(found, key=lambda error: error.value)


# --- preparation ---


class Skip(SkipNotImplemented):
    """Not to be run here; asv shows n/a."""

    def __init__(self, state: Any, reason: str) -> None:
        self.state, self.reason = state, reason
        super().__init__(f"{state}: {reason}")


def _case(axis: str, size: Any) -> Any:
    return cases.along(axis, size) if axis in cases.AXES else cases.named(size)


@lru_cache(maxsize=1)
def _job(subject: Any, candidate: str, case: Any, prepare: Callable[..., Any]) -> Any:
    """Ready to run, with its inputs, made once per process."""
    notes.start(f"{subject.name} {candidate} {cases.name_of(case)}")
    wanted = candidates.Candidate.parse(candidate)
    limits = eligibility.limits_here(wanted.backend, CALL_SECONDS)
    if wanted == BASELINE:
        make = _gradient_baseline if prepare is jobs.prepare_gradient else _baseline
        _demand_room(subject, case, limits)
        job = make(subject, case)
    else:
        refusal = eligibility.ineligible(subject, wanted, case, limits, package=demopool)
        if refusal:
            raise Skip(*refusal)
        job = prepare(demopool, subject, wanted, case)
    inputs = Features if subject.kind == "descriptor" else Arrays
    return job, inputs(job, subject, case)


def _demand_room(subject: Any, case: Any, limits: Any) -> None:
    """Of memory and of time, for a baseline."""
    needed = elements_held(subject, case) * case.dtype.bytes
    if limits.bytes is not None and needed > limits.bytes:
        raise Skip(vocabulary.State.OUT_OF_MEMORY, f"a baseline would hold {needed / 1e9:.2g} GB")
    like = candidates.Candidate("numpy:cpu", _LIKE[subject.name])
    seconds = eligibility.predicted_seconds(subject, like, case)
    if seconds > CALL_SECONDS:
        raise Skip(vocabulary.State.TIMEOUT, f"a baseline would take over {seconds:.2g} s")


def _baseline(subject: Any, case: Any) -> Any:
    host = jobs.inputs(subject, case)
    data = jobs.Data(host, dict(host))
    hashes = {"hashes": hashing.hashes(case.d, case.k)}
    function = BASELINES[subject.kind, subject.name]

    def run() -> Any:
        return function({**data.placed, **hashes}, case)

    return jobs.Job(run, run, np.asarray, device.Host(), data)


def _gradient_baseline(subject: Any, case: Any) -> Any:
    """Forward and backward on the host, in the direction that candidates have."""
    try:
        import torch
    except ImportError:
        raise Skip(vocabulary.State.UNAVAILABLE, "torch is not installed") from None
    host = jobs.inputs(subject, case)
    direction = torch.from_numpy(jobs.direction(subject, case))

    def place(array: Any) -> Any:
        return torch.from_numpy(array).requires_grad_(True)

    data = jobs.Data(host, {"X": place(host["X"])})

    def run() -> Any:
        X = data.placed["X"]
        X.grad = None
        GRADIENTS[subject.name](X, case).backward(direction)
        return X.grad

    return jobs.Job(run, lambda: run().numpy(), lambda y: y.numpy(), device.Host(), data, place)


def _noted(
    suite: Suite, method: str | None, candidate: str, size: Any, work: Callable[[], Any]
) -> Any:
    """Do it, and write down why if it could not be done; without a method, for all of the class."""
    try:
        return work()
    except Skip as skip:
        where = {
            "benchmark": _name(suite, method),
            "candidate": candidate,
            "case": case_name(suite.axis, size),
        }
        notes.note("skip", **where, state=skip.state, reason=skip.reason)
        raise
    except Exception as problem:
        _note_failure(suite, method, candidate, size, problem)
        raise


def _note_failure(
    suite: Suite, method: str | None, candidate: str, size: Any, problem: Exception
) -> None:
    state = vocabulary.State.ERROR
    reason = f"{type(problem).__name__}: {problem}"
    if "OutOfMemory" in reason or isinstance(problem, MemoryError):
        state = vocabulary.State.OUT_OF_MEMORY
    where = {
        "benchmark": _name(suite, method),
        "candidate": candidate,
        "case": case_name(suite.axis, size),
    }
    notes.note("failure", **where, state=state, reason=reason)


def _name(suite: Suite, method: str | None = None) -> str:
    """As asv names it."""
    names = (type(suite).__module__.rpartition(".")[2], type(suite).__name__, method)
    return ".".join(filter(None, names))


def case_name(axis: str, size: Any) -> str:
    """As ``results.read`` names it, whichever parameter it is in."""
    return str(cases.name_of(_case(axis, size)))
