"""Units on a Dask cluster: of this machine (``jobs``), or one that exists (``scheduler``).

Workers read and write themselves; only units' descriptions and records travel. The files, and the
folder of the output, must have the same names everywhere. The process that asks keeps the journal.
A unit whose worker dies is tried again by another, ``RETRIES`` times, and then named.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from ..errors import InvalidInput, Unfinished
from ..machine.system import usual_threads
from .journal import code_of
from .output import Output
from .pipeline import do_unit
from .planning import Plan
from .settings import Settings
from .units import Record, Unit, name_of

RETRIES = 2
"""Of a local cluster; one that exists has a setting of its own, allowed-failures."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@contextmanager
def client_of(jobs: int | None, scheduler: str | None) -> Iterator[Any]:
    """A client of a local cluster of so many processes, or of the scheduler at an address."""
    dask, distributed = _library("dask"), _library("distributed")
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout="10s")
        except (OSError, ValueError) as problem:
            raise InvalidInput(f"no scheduler answers at {scheduler}: {problem}.") from None
        with client:
            yield client
        return
    assert jobs is not None
    threads = str(max(1, usual_threads() // jobs))
    settings = {
        "distributed.scheduler.allowed-failures": RETRIES,
        "distributed.nanny.pre-spawn-environ": dict.fromkeys(_THREADS, threads),
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "logging": {"distributed": "critical"},
    }
    with (
        _environment_restored(),
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=jobs, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def _environment_restored() -> Iterator[None]:
    """Dask sets the variables of its workers in this process, and leaves them there: libraries and
    commands that are started later would have one thread, and other bits."""
    before = {name: os.environ.get(name) for name in _THREADS}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_units(
    units: Iterable[Unit],
    plan: Plan,
    settings: Settings,
    output: Output,
    keep: Callable[[Record], None],
    *,
    keep_going: bool,
    client: Any,
) -> Iterator[Record]:
    """The record of every unit once its rows are on the disk and ``keep`` has it.

    A worker has one unit per thread and none in reserve: when it dies, it is clear which it was.
    """
    distributed = _library("distributed")
    code = code_of(plan)
    absolute = output._replace(path=output.path.resolve())
    remaining = iter(units)
    given: dict[Any, Unit] = {}
    done = distributed.as_completed()
    try:
        while True:
            for unit in islice(remaining, max(0, max(1, _threads(client)) - len(given))):
                work = (_absolute(unit), plan.only_for(unit.sizes()), settings, absolute)
                future = client.submit(_work, *work, keep_going, code, pure=False)
                given[future] = unit
                done.add(future)
            if not given:
                return
            future = next(done)
            unit = given.pop(future)
            record = _result_of(future, unit, distributed)
            future.release()
            keep(record)
            yield record
    finally:
        client.cancel(list(given))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InvalidInput("jobs and scheduler need Dask: pip install 'demopool[scale]'.") from None


def _threads(client: Any) -> int:
    """Of all workers there are now; they may come and go."""
    return sum(client.nthreads().values())


def _work(
    unit: Unit,
    plan: Plan,
    settings: Settings,
    output: Output,
    keep_going: bool,
    code: dict[str, Any],
) -> Record:
    """In a worker, which may be on another machine."""
    if code_of(plan) != {name: code[name] for name in code_of(plan)}:
        raise Unfinished("a worker has another version of demopool; install the same everywhere.")
    return do_unit(unit, plan, settings, output, keep_going)


def _absolute(unit: Unit) -> Unit:
    """Workers may be in another folder."""
    runs = (
        (replace(array, file=os.path.abspath(array.file)), first, last)
        for array, first, last in unit.runs
    )
    return unit._replace(runs=tuple(runs))


def _result_of(future: Any, unit: Unit, distributed: Any) -> Record:
    try:
        record: Record = future.result()
    except (OSError, distributed.CancelledError) as problem:
        raise Unfinished(
            f"the cluster is gone: {problem or type(problem).__name__}. What was finished is kept, "
            "and the same command goes on from there."
        ) from None
    except distributed.KilledWorker:
        raise Unfinished(
            f"the worker of images {unit.start} to {unit.stop - 1} (the first is "
            f"{name_of(unit, unit.start)}) died, and so did those that tried again. What was "
            "finished is kept."
        ) from None
    return record
