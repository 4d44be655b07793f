"""The report: one HTML file that needs nothing else, and its pictures as PNG files beside it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..common import files
from ..errors import InvalidInput
from ..machine import fingerprint
from ..profiles import store
from ..results.table import PathLike
from . import claims, data, figures, page, reasons
from .claims import Judged
from .data import ReportedRace

NAME = "report.html"
MAX_REASONED = 4
"""Maximum number of pairs of threads and dtype whose limits are measured, a second each."""

_UNFINISHED = re.compile(r"\.(report\.html|[A-Za-z0-9-]+\.png)\.[A-Za-z0-9_]{8}")


@dataclass(frozen=True)
class Built:
    """The files, the page first, and what was said of the claims."""

    files: list[Path]
    claims: list[Judged]
    notes: list[str]


def build(folder: Path, paths: Sequence[PathLike] = (), *, limits: bool = True) -> Built:
    """Write the report into a folder, made if there is none.

    ``paths``: asv results and samples of any machines; without any, the asv results of the nearest
    project and what ``choose`` has measured on this machine. ``limits``: measure, for a second or
    two, what this machine can reach at most, to say how near to that the winners are.
    """
    began = time.time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"{folder} cannot be written: {problem.strerror}.") from None
    key = fingerprint.key(fingerprint.fingerprint())
    found = data.gather(paths, key)
    reached = _limits(found.jobs, key) if limits else {}
    jobs = []
    for job in found.jobs:
        of = (job.fingerprint, job.choice.threads, job.choice.case.dtype)
        why = reasons.reason(job.choice, reached.get(of))
        jobs.append((job, why, tuple(figures.of_job(job))))
    drawn = list(figures.all_of(found))
    judged = claims.judged(found.claimed, key)
    text = page.render(found, store.here(), key, judged, jobs, drawn, [*reached.values()])
    written = []
    for figure in (*(bar for _, _, bars in jobs for bar in bars), *drawn):
        path = folder / f"{figure.name}.png"
        files.write_bytes(path, figure.png())
        written.append(path)
    files.write_text(folder / NAME, text)
    for left in _unfinished(folder, began):
        with suppress(OSError):
            left.unlink()
    return Built([folder / NAME, *written], judged, found.notes)


def _limits(jobs: list[ReportedRace], key: str) -> dict[tuple[str, int, str], reasons.Limit]:
    """Of this machine only, and what was measured on it."""
    wanted = dict.fromkeys(
        (job.choice.threads, job.choice.case.dtype) for job in jobs if job.fingerprint == key
    )
    found: dict[tuple[str, int, str], reasons.Limit] = {}
    for threads, dtype in list(wanted)[:MAX_REASONED]:
        limit = reasons.limit(threads, dtype)
        if limit is not None:
            found[key, threads, dtype] = limit
    return found


def _unfinished(folder: Path, before: float) -> Iterator[Path]:
    """What a report that was killed was writing; not what another one is writing now."""
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name) and path.is_file():
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    yield path
