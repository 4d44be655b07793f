"""What the calls of a benchmark work on: another input for every call, at addresses in rotation.

A result that is remembered by address, shape or number of the call is then wrong, and
``track_error`` sees it. asv calls ``setup`` before every timed call, outside the timed region.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .harness import ROOT, arrays, hashing, jobs, reference, streams

DRAWS = 2
"""Different inputs. The reference's answers to them are kept on disk, so they are always the same.
The images of a descriptor come scaled and with rotated rows, which does not change the answer."""

POOL = streams.ImagePool(0)


class Features:
    """Images for a descriptor or its gradient, from a stream as in a race."""

    def __init__(self, job: Any, subject: Any, case: Any) -> None:
        self._subject = subject
        self._case = replace(case, descriptor=subject.name, data="device")
        self._stream = streams.Stream(job, self._case, streams.Source(POOL, DRAWS))
        self._which: tuple[int, ...] = ()

    def next(self) -> None:
        """Other descriptors, at another place."""
        data = self._stream.job.data
        which, placed = self._which, data.placed
        while self._which == which or data.placed is placed:
            self._which = self._stream.next()

    def expected(self) -> Any:
        """The reference's answer to the images that are judged of the present input."""
        judged = jobs.judged_images(np.array(self._which))
        return np.concatenate([self._answer(number) for number in judged])

    def _answer(self, number: int) -> Any:
        X = streams.image(self._case, POOL, number)[np.newaxis]
        return _kept(self._subject, self._case, number, {"X": X})


class Arrays:
    """The arrays of an operation: one draw after another, each at every place in turn."""

    def __init__(self, job: Any, subject: Any, case: Any) -> None:
        self._job, self._subject, self._case = job, subject, case
        self._drawn = [jobs.inputs(subject, case, draw) for draw in range(DRAWS)]
        self._places: list[dict[str, Any]] = [{} for _ in range(DRAWS + 1)]
        self._calls = 0

    @property
    def _draw(self) -> int:
        return self._calls % DRAWS

    def next(self) -> None:
        self._calls += 1
        host, placed = self._drawn[self._draw], self._places[self._calls % len(self._places)]
        for name, array in host.items():
            fresh = self._job.place(array.copy())
            placed[name] = arrays.overwritten(placed[name], fresh) if name in placed else fresh
        self._job.device.synchronize()
        self._job.data.host, self._job.data.placed = host, placed

    def expected(self) -> Any:
        """As of :class:`Features`."""
        given = self._drawn[self._draw]
        return _kept(self._subject, self._case, self._draw, given)


def _kept(subject: Any, case: Any, number: int, given: dict[str, Any]) -> Any:
    """The reference's answer, kept on disk: it is slow, and the same for every candidate."""
    sources = (*sorted((ROOT / "reference").glob("*.py")), *map(_file, (hashing, jobs, streams)))
    code = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    sizes = f"{case.batch}-{case.n}-{case.d}-{case.dtype}"
    file = ROOT / ".asv" / "expected" / f"{subject.kind}-{subject.name}-{sizes}-{number}-{code}.npy"
    if not file.exists():
        found = jobs.expected(reference, hashing, subject, case, given)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".partial.npy")
        np.save(beside, found)
        beside.replace(file)
    return np.load(file)


def _file(module: Any) -> Path:
    return Path(module.__file__)
