"""What is known: races with their answers, and plain facts for the pictures.

All of it comes from the table of ``results.read``, which has checked every row. What was set aside
is noted in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple

from ..choosing import earlier_samples, rule, sessions
from ..choosing.answer_types import Choice
from ..common.files import UNREADABLE, is_name
from ..errors import DemopoolError
from ..problem import cases
from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.vocabulary import DESCRIPTORS
from ..results import history, table
from ..results.history import repository
from ..trials import samples
from ..trials.samples import Phase, Sample
from . import claims

_BOUNDS = {
    "call_s": (earlier_samples.SHORTEST, earlier_samples.LONGEST),
    "peak_host_bytes": (0.0, 1e18),
    "error": (0.0, 1e3),
}


class Origin(NamedTuple):
    """Where a value comes from: only values of one origin are in one curve.

    machine   asv's name, or the beginning of the fingerprint's key
    threads   None if unknown
    source    ``choose``, ``calls``, or asv with the commit
    """

    machine: str
    threads: int | None
    source: str

    def __str__(self) -> str:
        count = "" if self.threads is None else f", {self.threads} thread{'s' * (self.threads > 1)}"
        return f"{self.machine}{count}, {self.source}"


class Fact(NamedTuple):
    """A value of one measure of one candidate on one case, and its interval if it has one."""

    origin: Origin
    backend: str
    route: str
    case: Case
    measure: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def candidate(self) -> str:
        return str(Candidate(self.backend, self.route))


class ReportedRace(NamedTuple):
    """The newest race of a case on one machine and number of threads, and its answer.

    ``load`` is how many cores others used meanwhile; None if it was not written down.
    """

    origin: Origin
    fingerprint: str
    choice: Choice
    measured_at: str
    load: float | None = None


@dataclass
class Gathered:
    """``frame``: the table of ``results.read``; ``notes``: what was set aside, and why.

    ``begun``: machine, threads and case of whatever has samples, with or without a whole round.
    """

    jobs: list[ReportedRace] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    claimed: list[Sample] = field(default_factory=list)
    begun: set[tuple[str, int, Case]] = field(default_factory=set)
    frame: Any = None
    notes: list[str] = field(default_factory=list)


def machine_name(fingerprint: str) -> str:
    """Short enough for a legend."""
    return fingerprint[:8]


def plain(text: str) -> str:
    """On one line and without what a terminal or a picture would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]


def gather(paths: Sequence[table.PathLike], here: str = "") -> Gathered:
    """Everything in these files and folders; without any, what this machine has measured.

    ``here`` is the key of this machine.
    """
    found = Gathered()
    found.frame = _table(paths, found.notes)
    found.notes += map(plain, found.frame.attrs["unreadable"])
    try:
        found.facts += _of_asv(found.frame)
    except (OSError, *UNREADABLE) as problem:
        found.notes.append(plain(f"asv's results were set aside: {problem}"))
    rows = table.samples_in(found.frame)
    filled = [s for s in rows if s.case.batch]
    if len(filled) < len(rows):
        found.notes.append(f"{len(rows) - len(filled)} samples of no images were set aside.")
    found.claimed = [s for s in filled if s.session.startswith(claims.SESSION)]
    rest = [s for s in filled if not s.session.startswith(claims.SESSION)]
    found.begun = {(s.fingerprint, s.threads, s.case) for s in rest}
    # This machine's come first, in tables and pictures.
    found.jobs = sorted(_jobs(rest), key=lambda job: job.fingerprint != here)
    found.facts += _of_jobs(found.jobs)
    found.facts += _of_calls(rest)
    return found


def _table(paths: Sequence[table.PathLike], notes: list[str]) -> Any:
    """The table of everything; broken results of asv do not cost the samples of ``choose``."""
    try:
        return table.read(list(paths) if paths else None)
    except DemopoolError as problem:
        if paths:
            raise
        notes.append(plain(str(problem)))
    except (OSError, *UNREADABLE) as problem:
        notes.append(plain(f"asv's results were set aside: {problem}"))
    stored = samples.folder()
    return table.read([stored] if stored.is_dir() else [])


def _is_possible(measure: str, value: Any) -> bool:
    low, high = _BOUNDS.get(measure, (0.0, float("inf")))
    return isinstance(value, int | float) and low <= value <= high


def _of_asv(frame: Any) -> Iterator[Fact]:
    """Of every cell the newest commit's value; baselines are not candidates."""
    found = frame[(frame.source == "asv") & (frame.state == "ok") & (frame.kind == "descriptor")]
    found = found[found.descriptor.isin(DESCRIPTORS) & found.n.notna()]
    found = found[found.measure.isin(list(_BOUNDS))]
    place = repository.place(found, all_branches=True)
    # What led to HEAD is newer than anything else.
    order = sorted(history.commits(found, place.order), key=set(place.line).__contains__)
    age = {commit: number for number, commit in enumerate(order)}
    found = found.sort_values("commit", key=lambda commits: commits.map(age), kind="stable")
    what = ["machine", "threads", "subject", "candidate", "case", "measure"]
    for row in found.drop_duplicates(what, keep="last").itertuples():
        names = (str(row.backend), str(row.route))
        if row.backend == "baseline" or not all(map(is_name, names)):
            continue
        if not _is_possible(row.measure, row.value):
            continue
        case = cases.from_name(row.case, row.subject)
        threads = int(row.threads) if isinstance(row.threads, Integral) else None
        source = plain(f"asv, commit {str(row.commit)[:8]}")
        origin = Origin(plain(str(row.machine))[:40], threads, source)
        low, high = (
            float(v) if _is_possible(row.measure, v) and v == v else None
            for v in (row.low, row.high)
        )
        yield Fact(origin, *names, case, row.measure, float(row.value), low, high)


def _jobs(found: Iterable[Sample]) -> Iterator[ReportedRace]:
    """The newest first."""
    for race in sorted(sessions.rebuilt(found), key=lambda race: race.measured_at, reverse=True):
        origin = Origin(machine_name(race.fingerprint), race.threads, "choose")
        yield ReportedRace(origin, race.fingerprint, race.choice, race.measured_at, race.load)


def _of_jobs(jobs: Iterable[ReportedRace]) -> Iterator[Fact]:
    for job in jobs:
        for row in job.choice.rows:
            of = (job.origin, row.backend, row.route, job.choice.case)
            if row.median_s is not None:
                yield Fact(*of, "call_s", row.median_s, row.low_s, row.high_s)
            for measure in ("peak_host_bytes", "error"):
                value = getattr(row, measure)
                if value is not None and _is_possible(measure, value):
                    yield Fact(*of, measure, value)


def _of_calls(found: Iterable[Sample]) -> Iterator[Fact]:
    """Calls in a row, without a race: of every candidate those of its newest code."""
    groups: dict[tuple[Any, ...], tuple[str, list[float]]] = {}
    for s in found:
        if (
            s.measure != "call_s"
            or s.phase is not Phase.ONCE
            or not _is_possible("call_s", s.value)
        ):
            continue
        origin = Origin(machine_name(s.fingerprint), s.threads, "calls")
        key = (origin, s.backend, s.route, s.case)
        if key not in groups or groups[key][0] != s.code:
            groups[key] = (s.code, [])
        groups[key][1].append(float(s.value or 0.0))
    for key, (_, values) in groups.items():
        low, middle, high = rule.interval(values)
        sure = len(values) >= rule.FEWEST
        yield Fact(*key, "call_s", middle, low if sure else None, high if sure else None)
