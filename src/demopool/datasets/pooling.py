"""``pool_files``: descriptors of a whole dataset, in one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from ..common.files import UNREADABLE, read_text, write_text
from ..common.program import __version__
from ..common.units import readable
from ..errors import InvalidInput, Unfinished
from ..machine.fingerprint import machine
from ..measurement.memory import available_host_bytes
from ..problem import hashing
from ..problem.vocabulary import Backend
from . import cluster, pipeline
from .images import Images, open_images
from .index import has_parquet, index_path, write_index
from .journal import SCHEMA, Journal, damaged, difference, identity, other_than
from .output import Output, beside, check_name, demand_other
from .planning import Decision, Plan, make_plan
from .settings import Settings
from .units import Record, Unit, unit_of

Progress = Callable[[int, int, str], None]
"""Called with the images that are done, all of them, and what is being done."""

FREE_SHARE = 4
"""By default the memory is a quarter of what is free."""


@dataclass(frozen=True)
class PoolResult:
    """What was done.

    images         rows of the output
    computed       those computed by this call; the others were there already
    failed         rows without a descriptor (NaN), with the reason
    skipped        files that could not be read, with the reason
    seconds        of this call
    starting_s     of this call, until the first image is read: opening files, loading libraries
    reading_s, computing_s, writing_s   of all calls that made the output; they overlap
    decisions      backend, route, batch and padding by size
    """

    output: Path
    index: Path
    images: int
    computed: int
    length: int
    dtype: str
    failed: dict[int, str]
    skipped: dict[str, str]
    seconds: float
    starting_s: float
    reading_s: float
    computing_s: float
    writing_s: float
    decisions: tuple[Decision, ...] = field(repr=False)

    @property
    def images_per_second(self) -> float:
        """Of this call."""
        return self.computed / self.seconds if self.seconds > 0 else 0.0

    @property
    def sentence(self) -> str:
        """How many images, how fast, and where the time went."""
        if not self.computed:
            return (
                f"{self.output} is whole already: {images_of(self.images)}. --fresh begins again."
            )
        before = self.images - self.computed
        rest = f" ({before} were there before)" if before else ""
        parts = {
            "starting": self.starting_s,
            "computing": self.computing_s,
            "reading": self.reading_s,
            "writing": self.writing_s,
        }
        spent = ", ".join(
            f"{name} {readable(seconds, 'time')}"
            for name, seconds in sorted(parts.items(), key=lambda part: -part[1])
        )
        of = " of all runs" if before else ""
        lost = f" {images_of(len(self.failed))} failed: {index_path(self.output).name} says why."
        return (
            f"{self.output}: {images_of(self.computed)}{rest} in {readable(self.seconds, 'time')}, "
            f"{self.images_per_second:.3g} images/s. Time{of}, overlapping: {spent}."
            + lost
            * bool(self.failed)
        )

    def as_result(self) -> dict[str, Any]:
        """As ``demopool pool --json`` prints it."""
        found = asdict(self) | {"images_per_second": self.images_per_second}
        found["failed"] = [{"row": row, "reason": why} for row, why in self.failed.items()]
        found["skipped"] = [{"file": name, "reason": why} for name, why in self.skipped.items()]
        return found | {"output": str(self.output), "index": str(self.index)}


def pool_files(
    inputs: str | Path | Iterable[str | Path],
    output: str | Path,
    descriptor: str,
    *,
    layout: str | None = None,
    dataset: str | None = None,
    memory: float | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    choose: bool = False,
    fresh: bool = False,
    keep_going: bool = False,
    progress: Progress | None = None,
    **parameters: Any,
) -> PoolResult:
    """Descriptors of all images of feature files, one row each, in the order of the input.

    inputs      files, folders and globs: ``.npy``, ``.npz``, ``.h5``, ``.safetensors``, ``.zarr``,
                ``.pt``; nothing is ever unpickled
    output      ``.npy`` or ``.zarr``; beside it come a table of the rows and a ``.json``
    descriptor  as for ``describe``
    layout      ``"nd"``, or ``"nchw"`` or ``"nhwc"`` for conv maps
    dataset     the only arrays to take of files with several
    memory      maximum bytes, shared by the processes of ``jobs``, or of each worker of a
                ``scheduler``; a quarter of what is free by default
    jobs        work in so many processes, a local Dask cluster; call it below
                ``if __name__ == "__main__":`` then
    scheduler   work on the Dask cluster at this address, ``tcp://...``
    choose      measure first, 20 s, on the first images of the most frequent sizes, which backend
                is the fastest
    fresh       overwrite an output of another run, and begin this one again
    keep_going  leave out files and images that fail: their rows are NaN
    progress    called with images done, all images, and a word
    parameters  of ``describe``: gamma, tau, iterations, p, k, seed, order, normalize, center,
                vectorize, backend, route, accuracy, dtype (of the output), zero_rows
                (``"ignore"`` or ``"error"``)

    A call that was interrupted, however, is gone on with by the same call: nothing finished is
    done again, and the file is the same, bit by bit.
    """
    begin, path = perf_counter(), Path(output)
    check_name(path)
    given = {"layout": layout, "dataset": dataset, **parameters}
    unknown = sorted(given.keys() - Settings.__dataclass_fields__.keys())
    if unknown:
        raise InvalidInput(f"pool_files has no parameter {', '.join(unknown)}.")
    settings = Settings(descriptor, **given)
    if jobs is not None and (jobs < 1 or scheduler is not None):
        raise InvalidInput("jobs must be at least 1, and not together with scheduler.")
    report = progress or (lambda done, total, what: None)
    report(0, 0, "opening files")
    journal = Journal(path)
    # What an earlier run has put among the files is not one of them.
    made_here = path if journal.exists() or beside(path, "json").exists() else None
    options: dict[str, Any] = {"layout": settings.layout, "dataset": dataset}
    images = open_images(inputs, **options, keep_going=keep_going, without=made_here)
    demand_other(path, images.stamps)
    with closing(journal):
        plan = _gone_on_with(path, journal, images, settings, memory) if not fresh else None
        if plan is None and not fresh and path.exists():
            return _already_whole(path, images, settings)
        if plan is None and choose:
            from .measuring import measure

            measure(images, settings, lambda what: report(0, len(images), what))
        with _workers(jobs, scheduler) as run_units:
            if plan is None:
                each = (memory or _default_memory()) / (jobs or 1)
                plan = _begun(path, journal, images, settings, each)
            return _run(path, journal, images, settings, plan, keep_going, report, begin, run_units)


def _gone_on_with(
    path: Path, journal: Journal, images: Images, settings: Settings, memory: float | None
) -> Plan | None:
    """The plan of the run that was interrupted; None if there is none."""
    if not journal.exists():
        return None
    journal.open()
    if not journal.begun:
        return None
    try:
        plan = journal.plan()
        now = identity(settings, images.digest(), len(images.stamps), plan)
        reason = difference(journal.begun, now)
    except UNREADABLE:
        raise damaged(journal.path) from None
    if reason:
        raise other_than(path, reason)
    if memory is not None and plan.needed_bytes > memory:
        raise InvalidInput(
            f"{path} was begun with more memory, and its units need "
            f"{readable(plan.needed_bytes, 'memory')}: give that, or --fresh (fresh=True)."
        )
    left = any(number not in journal.finished for number in range(plan.units))
    if left and not Output.of(path, plan).partial.exists():
        raise damaged(Output.of(path, plan).partial)
    return plan


def _begun(path: Path, journal: Journal, images: Images, settings: Settings, memory: float) -> Plan:
    if has_parquet():
        import pyarrow.csv
        import pyarrow.parquet  # noqa: F401  # they belong to the memory that libraries hold
    plan = make_plan(images, settings, int(memory))
    journal.clear()  # before the rows that it speaks of
    try:
        Output.of(path, plan).create()
    except BaseException:
        journal.remove()
        raise
    journal.begin(identity(settings, images.digest(), len(images.stamps), plan), plan)
    return plan


def _default_memory() -> int:
    return (available_host_bytes() or 4 * 10**9) // FREE_SHARE


@contextmanager
def _workers(jobs: int | None, scheduler: str | None) -> Iterator[Callable[..., Iterator[Record]]]:
    """What does the units: this process, or a cluster."""
    if jobs is None and scheduler is None:
        yield pipeline.run_units
        return
    with cluster.client_of(jobs, scheduler) as client:
        yield partial(cluster.run_units, client=client)


def _run(
    path: Path,
    journal: Journal,
    images: Images,
    settings: Settings,
    plan: Plan,
    keep_going: bool,
    report: Progress,
    begin: float,
    run_units: Callable[..., Iterator[Record]],
) -> PoolResult:
    starting = perf_counter() - begin
    output = Output.of(path, plan)
    before = dict(journal.finished)
    done = sum(record.images for record in before.values())
    there = done
    report(done, plan.images, "")
    left = (number for number in range(plan.units) if number not in before)
    units: Iterable[Unit] = (unit_of(images, plan, number) for number in left)
    try:
        for record in run_units(
            units, plan, settings, output, journal.append, keep_going=keep_going
        ):
            done += record.images
            report(done, plan.images, "")
    except MemoryError:
        raise Unfinished(
            "the memory of this machine is not enough: give a smaller --memory (memory=), with "
            "--fresh. What was finished is kept."
        ) from None
    result = _result(path, images, plan, list(journal.finished.values()), plan.images - there)
    result = replace(result, seconds=perf_counter() - begin, starting_s=starting)
    write_index(path, images, result.failed)
    write_text(beside(path, "json"), _notes(journal, images, plan, result))
    if output.partial.exists():
        output.finish()
    journal.remove()
    return result


def _result(
    path: Path, images: Images, plan: Plan, records: list[Record], computed: int
) -> PoolResult:
    failed: dict[int, str] = {}
    for record in sorted(records, key=lambda one: one.unit):
        failed |= record.failed
    return PoolResult(
        path,
        index_path(path),
        plan.images,
        computed,
        plan.length,
        plan.dtype,
        failed,
        images.skipped,
        0.0,
        0.0,
        sum(record.reading_s for record in records),
        sum(record.computing_s for record in records),
        sum(record.writing_s for record in records),
        plan.decisions,
    )


def _notes(journal: Journal, images: Images, plan: Plan, result: PoolResult) -> str:
    """``OUT.json``."""
    kept = ("settings", "inputs", "files", "code")
    libraries = ["numpy", "scipy"]
    libraries += [Backend(d.backend).library for d in plan.decisions]
    found = {
        "schema": SCHEMA,
        "demopool": __version__,
        "machine": machine(),
        **{name: journal.begun[name] for name in kept},
        "versions": {name: _version(name) for name in sorted(set(libraries))},
        "hashes": hashing.VERSION,
        "unit_images": plan.rows,
        **result.as_result(),
    }
    return json.dumps(found, indent=1) + "\n"


def _version(library: str) -> str | None:
    try:
        return version(library)
    except ImportError:
        return None


def _already_whole(path: Path, images: Images, settings: Settings) -> PoolResult:
    """The result of the run that made it; anything else with that name is not overwritten."""
    notes = beside(path, "json")
    try:
        stored = json.loads(read_text(notes))
        decisions = tuple(Decision(**one) for one in stored["decisions"])
        shape = (stored["images"], stored["length"], stored["dtype"])
        plan = Plan(*shape, stored["unit_images"], 0, decisions)
        now = identity(settings, images.digest(), len(images.stamps), plan)
        reason = difference(stored, now)
        failed = {one["row"]: one["reason"] for one in stored["failed"]}
        spent = [stored[name] for name in ("reading_s", "computing_s", "writing_s")]
    except (InvalidInput, *UNREADABLE):
        raise other_than(path, f"{notes.name} beside it does not say how it was made") from None
    if reason:
        raise other_than(path, reason)
    record = Record(0, plan.images, failed, *spent)
    return _result(path, images, plan, [record], 0)


def images_of(count: int) -> str:
    return f"{count} image" + "s" * (count != 1)
