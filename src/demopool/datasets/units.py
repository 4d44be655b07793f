"""One unit of a dataset: its images read, grouped by size, computed, and what went wrong."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DemopoolError, InvalidInput, Unfinished
from ..pooling.description import describe
from .formats import FeatureFile
from .images import Images, StoredArray, read, reading
from .planning import Decision, Plan, Size
from .settings import Settings

Array = NDArray[Any]


class Unit(NamedTuple):
    """Consecutive rows of the output, and the parts of arrays that they come from."""

    number: int
    start: int
    stop: int
    runs: tuple[tuple[StoredArray, int, int], ...]

    def sizes(self) -> set[Size]:
        return {Size(array.n, array.d, array.dtype) for array, _, _ in self.runs}


@dataclass
class Record:
    """What is remembered of a finished unit: rows that failed with the reason, and seconds."""

    unit: int
    images: int
    failed: dict[int, str] = field(default_factory=dict)
    reading_s: float = 0.0
    computing_s: float = 0.0
    writing_s: float = 0.0


@dataclass
class Group:
    """Images of a unit that calls can take together, with their rows in the unit."""

    decision: Decision
    rows: list[int]
    values: Array
    features_last: bool


@dataclass
class Loaded:
    """A unit whose images are in memory."""

    unit: Unit
    groups: list[Group]
    record: Record


def unit_of(images: Images, plan: Plan, number: int) -> Unit:
    start = number * plan.rows
    stop = min(start + plan.rows, plan.images)
    return Unit(number, start, stop, tuple(images.runs(start, stop)))


def name_of(unit: Unit, row: int) -> str:
    """The file and the image of a row of the output."""
    at = unit.start
    for array, first, last in unit.runs:
        if row < at + last - first:
            return array.name_of(first + row - at)
        at += last - first
    raise IndexError(row)


def load(unit: Unit, plan: Plan) -> Loaded:
    """Read the images; those that cannot be read are in the record."""
    begin = perf_counter()
    record = Record(unit.number, unit.stop - unit.start)
    decisions = plan.by_size()
    groups: dict[Size, Group] = {}
    members: list[tuple[StoredArray, int, int, Group, int]] = []
    at = 0
    for array, first, last in unit.runs:
        decision = decisions[Size(array.n, array.d, array.dtype)]
        fresh = Group(decision, [], np.empty(0), array.features_last)
        group = groups.setdefault(decision.call, fresh)
        members.append((array, first, last, group, len(group.rows)))
        group.rows += range(at, at + last - first)
        at += last - first
    for group in groups.values():
        group.values = _buffer(group)
    with ExitStack() as stack:
        opened: tuple[str, FeatureFile] | None = None
        for array, first, last, group, place in members:
            rows = group.rows[place : place + last - first]
            try:
                if opened is None or opened[0] != array.file:
                    stack.close()
                    opened = None
                    opened = (array.file, stack.enter_context(reading(array.file)))
                _read_into(group, place, opened[1], array, first, last)
            except Exception:
                stack.close()
                opened = None
                _read_one_by_one(group, place, array, first, rows, unit, record)
    for group in groups.values():
        _leave_out(group, unit, record)
    record.reading_s = perf_counter() - begin
    return Loaded(unit, [group for group in groups.values() if group.rows], record)


def compute(loaded: Loaded, plan: Plan, settings: Settings) -> Array:
    """The descriptors of a unit; NaN where an image has none, with the reason in the record."""
    begin = perf_counter()
    unit, record = loaded.unit, loaded.record
    out = np.empty((unit.stop - unit.start, plan.length), plan.dtype)
    for row in record.failed:
        out[row - unit.start] = np.nan
    arguments = settings.for_describe()
    for group in loaded.groups:
        X = group.values.swapaxes(-1, -2) if group.features_last else group.values
        arguments |= {"backend": group.decision.backend, "route": group.decision.route}
        for start in range(0, len(group.rows), group.decision.batch):
            part = slice(start, start + group.decision.batch)
            rows = group.rows[part]
            try:
                found = describe(X[part], settings.descriptor, **arguments)
                _put(out, rows, found)
            except (DemopoolError, np.linalg.LinAlgError):
                for row, image in zip(rows, X[part], strict=True):
                    try:
                        out[row] = describe(image, settings.descriptor, **arguments)
                    except (DemopoolError, np.linalg.LinAlgError) as problem:
                        out[row] = np.nan
                        record.failed[unit.start + row] = _sentence(unit, row, problem)
    record.computing_s = perf_counter() - begin
    return out


def demand_whole(record: Record) -> None:
    """An image that failed ends the run, unless it keeps going."""
    for row in sorted(record.failed):
        raise Unfinished(
            f"{record.failed[row]} What was finished is kept; keep_going (--keep-going) leaves "
            "such images out."
        )


def _buffer(group: Group) -> Array:
    """Memory for the images; padded rows are zero, and only those."""
    decision = group.decision
    rows, d = decision.padded, decision.d
    shape = (len(group.rows), d, rows) if group.features_last else (len(group.rows), rows, d)
    return np.zeros(shape, decision.dtype)


def _read_into(
    group: Group, place: int, file: FeatureFile, array: StoredArray, first: int, last: int
) -> None:
    out = group.values[place : place + last - first]
    if array.n == group.decision.padded:
        read(file, array, first, last, out)
    elif array.features_last:
        out[:, :, : array.n] = read(file, array, first, last)
    else:
        out[:, : array.n] = read(file, array, first, last)


def _read_one_by_one(
    group: Group,
    place: int,
    array: StoredArray,
    first: int,
    rows: list[int],
    unit: Unit,
    record: Record,
) -> None:
    """After a failure: which of the images it was."""
    for offset, row in enumerate(rows):
        image = first + offset
        try:
            with reading(array.file) as file:
                _read_into(group, place + offset, file, array, image, image + 1)
        except InvalidInput as problem:
            record.failed[unit.start + row] = _sentence(unit, row, problem)


def _leave_out(group: Group, unit: Unit, record: Record) -> None:
    kept = [at for at, row in enumerate(group.rows) if unit.start + row not in record.failed]
    if len(kept) < len(group.rows):
        group.rows = [group.rows[at] for at in kept]
        group.values = group.values[kept]


def _put(out: Array, rows: list[int], found: Array) -> None:
    if rows[-1] - rows[0] == len(rows) - 1:
        out[rows[0] : rows[-1] + 1] = found
    else:
        out[rows] = found


def _sentence(unit: Unit, row: int, problem: BaseException) -> str:
    return f"{name_of(unit, unit.start + row)}: {problem}"
