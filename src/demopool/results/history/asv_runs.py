"""Measure suspects again: asv runs their cells at two commits in turns, into a folder of its own.

Results lie in ``.asv/confirm`` of the project, a folder for every call of this, so that the history
stays as it was. asv is run only in the project around the current folder, and only if asked.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ...common.files import read_text, write_text
from ...errors import DemopoolError, InvalidInput
from .. import table
from ..asv_files import CONFIGURATION
from .confirming import LOOKS, Confirmation, judge, pattern, turns
from .judging import Regression
from .points import Series, series

FOLDER = Path(".asv", "confirm")
PATIENCE = 10.0
"""Seconds for asv to end its processes when it is interrupted."""

_FAILED = 2
"""asv's exit code where a benchmark failed; what it measured is stored all the same."""

Report = Callable[[int, int, str], None]
"""Called before every run with how many are done, how many there are, and what comes now."""
Asv = Callable[[Sequence[str], Path], None]
"""Runs asv with these arguments in this folder."""
Cell = tuple[str, str | None]


class Pair(NamedTuple):
    """Two commits that are compared on one machine with one number of threads."""

    machine: str
    threads: int | None
    commits: tuple[str, str]


def is_suspect(regression: Regression) -> bool:
    """Only times: memory and errors repeat by themselves."""
    return regression.state in ("open", "suspect") and regression.series.quantity == "time"


def confirmed(
    found: Sequence[Regression], project: Path, ratio: float, report: Report, asv: Asv | None = None
) -> list[Regression]:
    """The same regressions; what was suspected is confirmed, refuted, or as it was if undecided."""
    pairs: dict[Pair, dict[Cell, Series]] = {}
    for regression in filter(is_suspect, found):
        pairs.setdefault(_pair(regression), {})[_cell(regression.series)] = regression.series
    if len({pair.machine for pair in pairs}) > 1:
        names = ", ".join(sorted({pair.machine for pair in pairs}))
        raise InvalidInput(f"--confirm measures here: name this machine by --machine ({names}).")
    answers = _measured(pairs, project, ratio, report, asv or _run) if pairs else {}
    return [
        _with(r, answers.get((_pair(r), _cell(r.series)))) if is_suspect(r) else r for r in found
    ]


def _pair(regression: Regression) -> Pair:
    one = regression.series
    newest = [point.commit for point in one.points if point.value is not None][-1]
    return Pair(one.machine or "", one.threads, (regression.last_good, newest))


def _cell(one: Series) -> Cell:
    return one.benchmark, one.parameters


def _with(regression: Regression, answer: Confirmation | None) -> Regression:
    if answer is None:
        return regression
    state = regression.state if answer.verdict == "undecided" else answer.verdict
    return replace(regression, state=state, confirmation=answer)


def _measured(
    pairs: Mapping[Pair, Mapping[Cell, Series]],
    project: Path,
    ratio: float,
    report: Report,
    asv: Asv,
) -> dict[tuple[Pair, Cell], Confirmation]:
    folder = FOLDER / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    pending = {pair: dict(cells) for pair, cells in pairs.items()}
    rounds: dict[tuple[Pair, Cell], list[tuple[float, float]]] = {}
    answers: dict[tuple[Pair, Cell], Confirmation] = {}
    done = 0
    for first, last in zip((0, *LOOKS), LOOKS, strict=False):
        total = done + 2 * len(pending) * (last - first)
        for number in range(first, last):
            for index, (pair, cells) in enumerate(pending.items()):
                own = folder / f"{index}-{number}"
                with _configuration(project, own, pair.threads) as config:
                    where = ["--config", config.name, "--machine", pair.machine]
                    if done == 0:
                        asv(["machine", "--yes", *where], project)
                    for commit in turns(pair.commits, number):
                        what = f"round {number + 1} of {last}: {commit[:8]}, {len(cells)} cells"
                        report(done, total, what)
                        chosen = [part for one in cells.values() for part in _bench(one)]
                        options = [*where, "--attribute", "rounds=1", *chosen]
                        asv(["run", *options, f"{commit}^!"], project)
                        done += 1
                for cell, values in _read(project / own, pair.commits).items():
                    rounds.setdefault((pair, cell), []).append(values)
        for pair, cells in list(pending.items()):
            for cell in list(cells):
                answer = judge(pair.commits, rounds.get((pair, cell), ()), ratio)
                if answer is not None:
                    answers[pair, cell] = answer
                if answer is not None and answer.verdict != "undecided":
                    del cells[cell]
            if not cells:
                del pending[pair]
    return answers


def _bench(one: Series) -> tuple[str, str]:
    return "--bench", pattern(one)


def _read(folder: Path, commits: tuple[str, str]) -> dict[Cell, tuple[float, float]]:
    """Of every cell the values of both commits."""
    found = {}
    for one in series(table.read([folder], with_samples=False)) if folder.is_dir() else ():
        values = {point.commit: point.value for point in one.points}
        before, after = (values.get(commit) for commit in commits)
        if before is not None and after is not None:
            found[_cell(one)] = before, after
    return found


@contextmanager
def _configuration(project: Path, results: Path, threads: int | None) -> Iterator[Path]:
    """asv's configuration with another folder of results, beside the original, while it is used."""
    text = read_text(project / CONFIGURATION)
    setting = f'"results_dir": "{results.as_posix()}"'
    text, changed = re.subn(r'"results_dir"\s*:\s*"[^"]*"', setting, text)
    if not changed:
        text = text.replace("{", f"{{ {setting},", 1)
    if threads is not None:
        text = re.sub(r'(_NUM_THREADS"\s*:\s*\[")\d+', rf"\g<1>{threads}", text)
    copy = project / "asv.confirm.conf.json"
    write_text(copy, text)
    try:
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _run(arguments: Sequence[str], project: Path) -> None:
    """In a session of its own, to be ended whole if we are interrupted."""
    asv = subprocess.Popen(
        [sys.executable, "-m", "asv", *arguments],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = asv.communicate()
    finally:
        if asv.poll() is None:
            _stop(asv)
    if asv.returncode not in (0, _FAILED):
        raise DemopoolError(f"asv {arguments[0]} failed:\n{output[-3000:].strip()}")


def _stop(asv: subprocess.Popen[str]) -> None:
    """As Ctrl-C would: asv then ends its fork server and what that has started."""
    asv.send_signal(signal.SIGINT)
    try:
        asv.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(asv.pid, signal.SIGKILL)
        asv.wait()
