"""What is known, as plain facts: a value of one measure of one candidate on one case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from demopool import cases, places, results, samples
from demopool.cases import Case
from demopool.errors import DemopoolError, InvalidInput
from demopool.vocabulary import DESCRIPTORS


class Fact(NamedTuple):
    """``machine`` is asv's name, or the key of the fingerprint of what ``choose`` measured.

    ``source`` says who measured it, and of asv at which commit.
    """

    machine: str
    backend: str
    route: str
    case: Case
    measure: str
    value: float
    source: str = "choose"

    @property
    def candidate(self) -> str:
        return f"{self.backend}/{self.route}"


def machine_name(fingerprint: str) -> str:
    """Short enough for a legend."""
    return fingerprint[:8]


def gather(paths: tuple[Path, ...]) -> tuple[list[Fact], Any]:
    """All facts, and the frame of asv's results for the history (None if there are none)."""
    chosen = places.cache_folder() / "samples"
    try:
        frame = results.read(list(paths) if paths else None)
    except DemopoolError:
        if paths:
            raise
        frame = None
    facts = list(_of_asv(frame)) if frame is not None else []
    folders = [path for path in paths if path.is_dir()] if paths else [chosen]
    lines = [path for path in paths if path.suffix == ".jsonl"]
    for folder in folders:
        lines += sorted(folder.rglob("*.jsonl")) if folder.is_dir() else []
    facts += _of_samples(sample for path in lines for sample in _read(path))
    return facts, frame


def _read(path: Path) -> Iterator[samples.Sample]:
    try:
        yield from samples.read(path)
    except InvalidInput:
        return


def _of_asv(frame: Any) -> Iterator[Fact]:
    """Of every cell the newest commit's value; baselines are not candidates."""
    found = frame[(frame.source == "asv") & (frame.state == "ok") & (frame.kind == "descriptor")]
    found = found[found.subject.isin(DESCRIPTORS) & found.case.isin(list(cases.NAMED))]
    found = found.sort_values("commit_date")
    what = ["machine", "subject", "candidate", "case", "measure"]
    for row in found.drop_duplicates(what, keep="last").itertuples():
        if row.backend == "baseline":
            continue
        case = cases.named(row.case, descriptor=row.subject)
        source = f"asv, commit {row.commit[:8]}"
        yield Fact(row.machine, row.backend, row.route, case, row.measure, float(row.value), source)


def _of_samples(found: Iterable[samples.Sample]) -> Iterator[Fact]:
    """Of every measure the newest: of a race the median of its rounds' lowest calls, of calls in
    a row theirs. Races, and codes, are not mixed."""
    groups: dict[tuple[Any, ...], tuple[tuple[str, str], list[float]]] = {}
    for s in found:
        if s.value is None or s.round < 0:
            continue
        timed = s.measure in ("lowest_s", "call_s")
        measure = "call_s" if timed else s.measure
        key = (machine_name(s.fingerprint), s.backend, s.route, s.case, measure)
        run = (s.code, s.session if s.round else "")
        before = groups.get(key)
        if before is None or not timed or before[0] != run:
            groups[key] = (run, [])
        groups[key][1].append(s.value)
    for (machine, backend, route, case, measure), (_, values) in groups.items():
        yield Fact(machine, backend, route, case, measure, median(values))


def best(
    facts: Iterable[Fact], measure: str, case: Case, routes: tuple[str, ...] = ()
) -> Fact | None:
    """The lowest value on a case, of these routes only if some are given."""
    wanted = _sizes(case)
    fitting = [
        fact
        for fact in facts
        if fact.measure == measure
        and _sizes(fact.case) == wanted
        and (not routes or fact.route in routes)
    ]
    return min(fitting, key=lambda fact: fact.value, default=None)


def _sizes(case: Case) -> tuple[Any, ...]:
    return case.descriptor, case.batch, case.n, case.d, case.k, case.dtype, case.order
