"""The plan of a dataset: what computes images of each size, and how many make a unit.

It is made once, when the output is begun, and stored with it: a run that goes on later takes the
same backends, batches and paddings, so that its bits are those of a run that was never stopped.

A unit is some consecutive images, read, computed, written and recorded together. In it, images of
one size are computed in batches. Sizes that differ little are padded with zero rows to one, which
changes no descriptor, if the cost model says that the calls saved are worth the rows added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from ..common.units import readable
from ..contract import registry
from ..errors import DemopoolError, InvalidInput
from ..measurement.memory import resident_bytes
from ..pooling.description import describe
from ..problem.candidates import Candidate, Subject
from ..problem.feature_files import IMAGES
from ..problem.vocabulary import Descriptor, Dtype
from ..profiles import auto, estimates, store
from ..profiles.eligibility import predicted_bytes
from .images import Images, StoredArray
from .settings import Settings

HOME = "numpy:cpu"
CALL_SECONDS, UNIT_SECONDS = 0.05, 0.5
"""Of a batch and of a unit, at least if there are so many images: calls, records and the
synchronisation of files then cost next to nothing, and a kill costs half a second."""

MAX_BATCH, MAX_ROWS = 512, 4096
SAFETY = 1.25
"""Predictions of memory err, and allocators keep some."""


class Size(NamedTuple):
    """Of an image, as stored."""

    n: int
    d: int
    dtype: str


@dataclass(frozen=True)
class Decision:
    """What computes images of one size: rows of a call, backend, route, images of a call."""

    n: int
    d: int
    dtype: str
    images: int
    padded: int
    backend: str
    route: str
    batch: int

    @property
    def call(self) -> Size:
        return Size(self.padded, self.d, self.dtype)


@dataclass(frozen=True)
class Plan:
    """``needed_bytes`` is the memory of data in flight, libraries not included."""

    images: int
    length: int
    dtype: str
    rows: int
    needed_bytes: int
    decisions: tuple[Decision, ...]

    @property
    def units(self) -> int:
        return ceil(self.images / self.rows)

    def by_size(self) -> dict[Size, Decision]:
        return {Size(one.n, one.d, one.dtype): one for one in self.decisions}

    def only_for(self, sizes: Collection[Size]) -> Plan:
        """With the decisions on these sizes alone, to be sent elsewhere."""
        kept = (one for size, one in self.by_size().items() if size in sizes)
        return replace(self, decisions=tuple(kept))

    def as_stored(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Plan:
        decisions = tuple(Decision(**one) for one in stored["decisions"])
        return cls(**{**stored, "decisions": decisions})


def sizes_with_counts(images: Images) -> dict[Size, int]:
    """Images of each size, in the order of first appearance."""
    found: dict[Size, int] = {}
    for array in images.arrays:
        size = _size(array)
        found[size] = found.get(size, 0) + array.images
    return {size: count for size, count in found.items() if count}


def make_plan(images: Images, settings: Settings, memory: int) -> Plan:
    """``memory`` is for a whole process, its libraries included."""
    counts = sizes_with_counts(images)
    if not counts:
        raise InvalidInput("there are no images in these files.")
    length, dtype = _of_output(images, settings)
    if settings.backend != "auto":
        registry.demand(settings.backend)
    taken = {size: _taken(settings, size) for size in counts}
    room = (memory - _held_by_libraries(settings, taken)) / SAFETY
    share = UNIT_SECONDS / _mean_seconds(settings, counts, taken)
    padded = _paddings(settings, counts, taken, share / sum(counts.values()))
    decisions = []
    for size, count in counts.items():
        call = size._replace(n=padded[size])
        candidate = taken[call]  # padding goes to a size that some images have
        batch = _batch(settings, call, candidate, room / 2)
        decisions.append(Decision(*size, count, call.n, *candidate, batch))
    work = max(
        _work_bytes(settings, Candidate(one.backend, one.route), one.call, one.batch)
        for one in decisions
    )
    out_bytes = length * np.dtype(dtype).itemsize
    rows = _rows(images, decisions, out_bytes, share, room - work)
    needed = int(work + 2 * _largest_block(images, decisions, out_bytes, rows))
    if needed > max(room, 0):
        least = readable(memory - room * SAFETY + needed * SAFETY, "memory")
        raise InvalidInput(
            f"memory must be at least {least} for the largest image, the libraries included; got "
            f"{readable(memory, 'memory')}."
        )
    return Plan(len(images), length, dtype, rows, needed, tuple(decisions))


def _size(array: StoredArray) -> Size:
    return Size(array.n, array.d, array.dtype)


def _of_output(images: Images, settings: Settings) -> tuple[int, str]:
    """Length and dtype of every descriptor; those of all images must be the same."""
    first = images.arrays[0]
    for array in images.arrays:
        if array.d != first.d and not Descriptor(settings.descriptor).is_sketched:
            raise InvalidInput(
                f"{array.file} has features of length {array.d}, and {first.file} of {first.d}: "
                f"descriptors have one length, unless they are sketched."
            )
    results = {Dtype(array.dtype).result for array in images.arrays}
    widest = "float64" if "float64" in results else "float32"
    return settings.length(first.d), settings.dtype or widest


def _taken(settings: Settings, size: Size) -> Candidate:
    """What auto takes for batches of the usual number of images."""
    asked: dict[str, Any] = {"backend": settings.backend, "route": settings.route}
    case = settings.case(IMAGES, *size)
    if settings.backend != "auto" and "auto" not in settings.route:
        return Candidate(settings.backend, settings.route)
    return auto.pick(case, home=HOME, **asked, accuracy=settings.accuracy)


def _seconds(settings: Settings, candidate: Candidate, batch: float, size: Size) -> float:
    case = settings.case(max(1, round(batch)), *size)
    return estimates.seconds(candidate, case, store.here())


def _mean_seconds(
    settings: Settings, counts: Mapping[Size, int], taken: Mapping[Size, Candidate]
) -> float:
    """Of an image."""
    total = sum(
        count * _seconds(settings, taken[size], IMAGES, size) / IMAGES
        for size, count in counts.items()
    )
    return total / sum(counts.values())


def _paddings(
    settings: Settings,
    counts: Mapping[Size, int],
    taken: Mapping[Size, Candidate],
    share: float,
) -> dict[Size, int]:
    """The rows that images of each size get: their own, or those of the next larger sizes.

    ``share`` is how much of the dataset a unit is: so many images of a size are computed together.
    Not where a zero row is an error, or counts in the mean.
    """
    padded = {size: size.n for size in counts}
    if settings.zero_rows == "error" or settings.center:
        return padded
    kinds = {(size.d, size.dtype) for size in counts}
    for kind in sorted(kinds):
        largest: Size | None = None
        together = 0.0
        for size in sorted((s for s in counts if s[1:] == kind), reverse=True):
            number = max(1.0, counts[size] * share)
            if largest is not None:
                apart = _seconds(settings, taken[largest], together, largest)
                apart += _seconds(settings, taken[size], number, size)
                joined = _seconds(settings, taken[largest], together + number, largest)
                if joined < apart:
                    padded[size] = largest.n
                    together += number
                    continue
            largest, together = size, number
    return padded


def _batch(settings: Settings, size: Size, candidate: Candidate, room: float) -> int:
    batch = IMAGES
    while batch < MAX_BATCH and _seconds(settings, candidate, batch, size) < CALL_SECONDS:
        batch *= 2
    while batch > 1 and _work_bytes(settings, candidate, size, batch) > room:
        batch //= 2
    return batch


def _work_bytes(settings: Settings, candidate: Candidate, size: Size, batch: int) -> float:
    """Of a call, its result included."""
    case = settings.case(batch, *size)
    work = predicted_bytes(Subject("descriptor", settings.descriptor), candidate, case)
    itemsize = np.dtype(case.dtype.result).itemsize
    if settings.center:  # of the features, twice: without their mean, and squared for its check
        work += 2 * batch * size.n * size.d * itemsize
    if settings.vectorize == "upper":
        work += batch * settings.length(size.d) * itemsize
    return work


def _rows(
    images: Images, decisions: Sequence[Decision], out_bytes: int, share: float, room: float
) -> int:
    """The largest power of two within the time of a unit, of which every unit fits twice."""
    rows = 1
    while rows < min(MAX_ROWS, len(images)) and 2 * rows <= max(share, 1):
        if 2 * _largest_block(images, decisions, out_bytes, 2 * rows) > room:
            break
        rows *= 2
    return rows


def _largest_block(
    images: Images, decisions: Sequence[Decision], out_bytes: int, rows: int
) -> float:
    """Bytes of input and output of the largest unit of so many images."""
    bytes_of = {
        Size(one.n, one.d, one.dtype): one.padded * one.d * np.dtype(one.dtype).itemsize
        for one in decisions
    }
    if len(set(bytes_of.values())) == 1:
        return float(min(rows, len(images)) * (next(iter(bytes_of.values())) + out_bytes))
    each = np.repeat(
        [bytes_of[_size(array)] if array.images else 0 for array in images.arrays],
        [array.images for array in images.arrays],
    )
    blocks = np.add.reduceat(each, np.arange(0, len(each), rows))
    return float(blocks.max()) + rows * out_bytes


def _held_by_libraries(settings: Settings, taken: Mapping[Size, Candidate]) -> int:
    """What this process holds once the backends that will work have worked."""
    for (_, _, dtype), candidate in {(0, 0, s.dtype): c for s, c in taken.items()}.items():
        tiny = np.random.default_rng(0).standard_normal((2, 8, 4)).astype(dtype)
        arguments = settings.for_describe() | {"k": min(settings.k, 16)}
        with suppress(DemopoolError):  # the data will tell, with the name of an image
            describe(tiny, settings.descriptor, **arguments, **candidate._asdict())
    return resident_bytes() or 0
