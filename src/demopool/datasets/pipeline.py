"""Units one after the other in this process: reading, computing and writing overlap.

One unit is read ahead and one is written while one is computed, so at most two inputs and two
outputs are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from .output import Output
from .planning import Plan
from .settings import Settings
from .units import Loaded, Record, Unit, compute, demand_whole, load


def run_units(
    units: Iterable[Unit],
    plan: Plan,
    settings: Settings,
    output: Output,
    keep: Callable[[Record], None],
    *,
    keep_going: bool,
) -> Iterator[Record]:
    """The record of every unit once its rows are on the disk and ``keep`` has it."""

    def write(start: int, values: NDArray[Any], record: Record) -> Record:
        write_unit(output, start, values, record)
        keep(record)
        return record

    remaining = iter(units)
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:

        def read_next() -> Future[Loaded] | None:
            unit = next(remaining, None)
            return None if unit is None else reader.submit(load, unit, plan)

        ahead, writing = read_next(), None
        while ahead is not None:
            loaded = ahead.result()
            ahead = read_next()
            values = compute(loaded, plan, settings)
            record, start = loaded.record, loaded.unit.start
            del loaded
            if not keep_going:
                demand_whole(record)
            if writing is not None:
                yield writing.result()
            writing = writer.submit(write, start, values, record)
            del values
        if writing is not None:
            yield writing.result()


def write_unit(output: Output, start: int, values: NDArray[Any], record: Record) -> None:
    begin = perf_counter()
    output.write(start, values)
    record.writing_s = perf_counter() - begin


def do_unit(unit: Unit, plan: Plan, settings: Settings, output: Output, keep_going: bool) -> Record:
    """A whole unit, in whatever process this is: what a worker of a cluster does."""
    loaded = load(unit, plan)
    values = compute(loaded, plan, settings)
    if not keep_going:
        demand_whole(loaded.record)
    write_unit(output, unit.start, values, loaded.record)
    return loaded.record
