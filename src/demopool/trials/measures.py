"""Every measure: its name, unit, words, and how a job is asked for it.

The race, asv, the table of ``make bench``, ``results``, ``choose`` and the report all read this
table. The benchmarks load it under another package name, to measure the jobs of any commit: it
imports instruments and nothing that is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..contract.device import wait_for
from ..measurement import memory
from ..measurement.clock import Clock
from . import jobs
from .jobs import Job

UNITS = {"time": "seconds", "memory": "bytes", "error": "relative error"}
"""Of every quantity that has one."""


class Where(StrEnum):
    """Which backends a measure is for.

    everywhere   all
    transfers    all, but on the host it only repeats the time of a call
    devices      those with a memory of their own
    """

    EVERYWHERE = "everywhere"
    TRANSFERS = "transfers"
    DEVICES = "devices"


class MeasuredValue(NamedTuple):
    """A value, or the ``reason`` why there is none; ``warning`` says what disturbed it."""

    value: float | None
    reason: str = ""
    warning: str = ""


@dataclass(frozen=True)
class Trial:
    """A job that is to be measured, and what a measure may need to know.

    expected   the reference's answer
    warm       the job has made a call in this process
    seconds    for repeated calls, and ``calls`` at most
    """

    job: Job
    expected: Callable[[], Any]
    warm: bool = False
    seconds: float = 0.5
    calls: int = 1000

    def warm_up(self) -> None:
        if not self.warm:
            wait_for(self.job.run(), self.job.device)  # else its work would go on in the next call


@dataclass(frozen=True)
class Measure:
    """One line of the table.

    quantity   ``time``, ``memory``, ``error``, ``count`` or ``other``: decides unit and format
    heading    of its column; without one it is not shown in tables
    meaning    for the legend of a table
    words      for sentences: "the measurement of its ..."
    of_job     asked once of every candidate, by the race in a worker and by asv as ``track_<name>``
    rank       columns with a lower rank are kept longer where a line is narrow
    """

    name: str
    quantity: str
    heading: str = ""
    meaning: str = ""
    of_job: Callable[[Trial], MeasuredValue] | None = None
    where: Where = Where.EVERYWHERE
    rank: int = 10
    words: str = ""

    @property
    def unit(self) -> str | None:
        return UNITS.get(self.quantity)


def _first_call(trial: Trial) -> MeasuredValue:
    return MeasuredValue(Clock(trial.job.device).read(trial.job.run).wall)


def _with_transfer(trial: Trial) -> MeasuredValue:
    clock = Clock(trial.job.device)
    timing = clock.time(trial.job.run_from_host, seconds=trial.seconds, at_most=trial.calls)
    value = median(reading.wall for reading in timing.readings)
    return MeasuredValue(value, warning=timing.warning)


def _peak_host(trial: Trial) -> MeasuredValue:
    trial.warm_up()
    peak = memory.peak_host_bytes(trial.job.run, trial.job.device)
    return MeasuredValue(
        peak, "this system does not report it, or less than the result itself was seen"
    )


def _peak_device(trial: Trial) -> MeasuredValue:
    trial.warm_up()
    peak = memory.peak_device_bytes(trial.job.run, trial.job.device)
    return MeasuredValue(peak, "it has no device memory, its device is the host")


def _error(trial: Trial) -> MeasuredValue:
    result = np.asarray(trial.job.to_numpy(trial.job.run()))
    return MeasuredValue(jobs.relative_error(result, trial.expected()))


MEASURES = {
    measure.name: measure
    for measure in (
        # Of calls: what asv times, and what a race adds to it.
        Measure("call_s", "time", "time", "median of warm calls, the result's memory included"),
        Measure("forward_backward_s", "time", "time with backward", "forward and backward"),
        Measure("lowest_s", "time"),
        Measure("mean_s", "time"),
        Measure("at_least_s", "time"),
        Measure("compile_s", "time"),
        Measure("limit_s", "time"),
        Measure("needs_s", "time"),
        Measure("budget_s", "time"),
        Measure("calls", "other"),
        Measure("job_calls", "other"),
        Measure("others_cores", "other"),
        Measure("cores", "other"),
        # Once of every candidate.
        Measure(
            "first_call_s",
            "time",
            "first call",
            "the first call of a process that has imported the library",
            _first_call,
            rank=5,
            words="first call",
        ),
        Measure(
            "with_transfer_s",
            "time",
            "with transfer",
            "a call from NumPy to NumPy",
            _with_transfer,
            Where.TRANSFERS,
            rank=9,
            words="time with transfers",
        ),
        Measure(
            "peak_host_bytes",
            "memory",
            "host",
            "peak memory of the host above what was held before the call",
            _peak_host,
            rank=4,
            words="peak memory on the host",
        ),
        Measure(
            "peak_device_bytes",
            "memory",
            "device",
            "peak memory of the device, likewise",
            _peak_device,
            Where.DEVICES,
            rank=6,
            words="peak memory on the device",
        ),
        Measure(
            "error",
            "error",
            "error",
            "against the float64 reference, relative to the largest entry",
            _error,
            rank=8,
            words="error",
        ),
    )
}

ONCE = {name: measure for name, measure in MEASURES.items() if measure.of_job}
"""Those that are asked once of a job."""


PLUGINS = "plugins_"
"""What the names of asv's modules begin with that measure plug-ins, which a machine lists."""


def without_plugins(benchmark: str) -> str:
    """The benchmark, or its module, that every machine has: what is known of it holds for both."""
    return benchmark.removeprefix(PLUGINS)


def quantity(name: str, unit: str | None = None) -> str:
    """Of a measure of ours, or by its unit or name of a benchmark that is not."""
    if name in MEASURES:
        return MEASURES[name].quantity
    if unit in ("seconds", "s") or name.endswith("_s"):
        return "time"
    if unit == "bytes" or name.endswith("_bytes"):
        return "memory"
    if unit == "instructions":
        return "count"
    return "error" if name.endswith("error") else "other"
