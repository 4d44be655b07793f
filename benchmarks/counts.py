"""Instructions and cache misses of every descriptor on the CPU, counted by valgrind's callgrind.

A count shows a change of 0.5 % where the noise of times is 10 %. It does not see memory bandwidth,
threads, or what another CPU does with the same instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import demopool

from . import suite as _suite
from .harness import candidates, cases, counting, jobs, vocabulary
from .inputs import Arrays

CASE = "n49-d64"
"""Small, because counting is slow."""

TRACKED = {"instructions": "instructions", "d1_misses": "misses"}
"""With their units. Of last-level misses there are so few in a small case that those of torch move
by 5 % from run to run."""


def load(candidate: str) -> None:
    """Import the library of a candidate, for all that follow."""
    backend = candidates.Candidate.parse(candidate).backend
    if backend.on_host:
        demopool.backend(backend)


def made(descriptor: str, candidate: str, case: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What puts another input before the next call, and the call."""
    subject, size = candidates.Subject("descriptor", descriptor), cases.named(case)
    wanted = candidates.Candidate.parse(candidate)
    if wanted == _suite.BASELINE:
        job = _suite._baseline(subject, size)
    else:
        job = jobs.prepare(demopool, subject, wanted, size)
    # Not the stream of a race, whose choices are random: eigensolvers would count differently.
    return Arrays(job, subject, size).next, job.run


def counted_candidates(descriptor: str) -> tuple[str, ...]:
    """The baseline and every candidate on the CPU, whatever is installed."""
    every = _suite.candidates_of(candidates.Subject("descriptor", descriptor))
    return tuple(name for name in every if not candidates.Candidate.parse(name).backend.on_gpu)


class _Counted(_suite.Suite):
    """``of`` one descriptor. Its setup skips what cannot run here, as it does for times."""

    param_names = ("candidate", "case")
    version = f"{jobs.VERSION}-{counting.VERSION}"
    timeout = 900.0

    def __init_subclass__(cls, of: str) -> None:
        cls.subject = candidates.Subject("descriptor", of)
        for field, unit in TRACKED.items():
            method = _tracked(field)
            method.unit = unit
            method.params = (counted_candidates(of), (CASE,))
            setattr(cls, method.__name__, method)


def _tracked(field: str) -> Any:
    name = f"track_{field}"

    def track(self: _Counted, candidate: str, case: str) -> int:
        def work() -> int:
            found = counting.count(
                made,
                *(self.subject.name, candidate, case),
                before=(load, (candidate,)),
                caches=field != "instructions",
            )
            if found.state in (vocabulary.State.UNAVAILABLE, vocabulary.State.TIMEOUT):
                raise _suite.Skip(found.state, found.reason)
            if found.value is None:
                raise RuntimeError(found.reason)
            return int(getattr(found.value, field))

        return int(_suite._noted(self, name, candidate, case, work))

    track.__name__ = name
    return track


class Sum(_Counted, of="sum"):
    """Sum pooling."""


class Democratic(_Counted, of="democratic"):
    """Democratic pooling."""


class Power(_Counted, of="power"):
    """The matrix power of sum pooling."""


class SketchedSum(_Counted, of="sketched-sum"):
    """Sum pooling of sketched features."""


class SketchedDemocratic(_Counted, of="sketched-democratic"):
    """Democratic pooling of sketched features."""


class SketchedPower(_Counted, of="sketched-power"):
    """The matrix power, sketched."""
