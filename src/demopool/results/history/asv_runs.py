"""Measure suspects again: their cells at two commits in turns, by a process of :mod:`.asv_turns`.

The values of every round are kept in ``.asv/confirm`` of the project, a file for every call of
this; the history stays as it was. asv is run only in the project around the current folder, and
only if asked.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ...errors import DemopoolError, InvalidInput
from ..asv_files import CONFIGURATION
from .asv_turns import ENVIRONMENTS
from .confirming import LOOKS, Confirmation, judge, pattern, turns
from .judging import Regression
from .points import Series

FOLDER = ENVIRONMENTS
PATIENCE = 10.0
"""Seconds for asv to end its processes when it is interrupted."""

Report = Callable[[int, int, str], None]
"""Called before every turn with how many are done, how many there are, and what comes now."""
Measure = Callable[[str, Sequence[str]], Mapping[str, float | None]]
"""The values of cells, by their patterns, at a commit; None of what failed."""


class Pair(NamedTuple):
    """Two commits that are compared on one machine with one number of threads."""

    machine: str
    threads: int | None
    commits: tuple[str, str]


Asv = Callable[[Path, Pair, Sequence[str]], AbstractContextManager[Measure]]
"""What measures cells of a project at the commits of a pair."""


def is_suspect(regression: Regression) -> bool:
    """Only times: memory and errors repeat by themselves."""
    return regression.state in ("open", "suspect") and regression.series.quantity == "time"


def confirmed(
    found: Sequence[Regression], project: Path, ratio: float, report: Report, asv: Asv | None = None
) -> list[Regression]:
    """The same regressions; what was suspected is confirmed, refuted, or as it was if undecided."""
    pairs: dict[Pair, dict[str, Series]] = {}
    for regression in filter(is_suspect, found):
        one = regression.series
        pairs.setdefault(_pair(regression), {})[pattern(one)] = one
    if len({pair.machine for pair in pairs}) > 1:
        names = ", ".join(sorted({pair.machine for pair in pairs}))
        raise InvalidInput(f"--confirm measures here: name this machine by --machine ({names}).")
    answers: dict[tuple[Pair, str], Confirmation] = {}
    file = project / FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.jsonl"
    done = 0
    for number, (pair, cells) in enumerate(pairs.items()):
        left = len(pairs) - number - 1

        def say(turn: int, last: int, what: str, done: int = done, left: int = left) -> None:
            report(done + turn, done + 2 * (last + left * LOOKS[0]), what)

        say(0, LOOKS[0], f"preparing {' and '.join(commit[:8] for commit in pair.commits)}")
        with (asv or measuring)(project, pair, list(cells)) as measure:
            taken, judged = _judged(pair, list(cells), measure, ratio, say, file)
        done += taken
        answers.update({(pair, cell): answer for cell, answer in judged.items()})
    return [
        _with(r, answers.get((_pair(r), pattern(r.series)))) if is_suspect(r) else r for r in found
    ]


def _pair(regression: Regression) -> Pair:
    one = regression.series
    newest = [point.commit for point in one.points if point.value is not None][-1]
    return Pair(one.machine or "", one.threads, (regression.last_good, newest))


def _with(regression: Regression, answer: Confirmation | None) -> Regression:
    if answer is None:
        return regression
    state = regression.state if answer.verdict == "undecided" else answer.verdict
    return replace(regression, state=state, confirmation=answer)


def _judged(
    pair: Pair, cells: Sequence[str], measure: Measure, ratio: float, report: Report, file: Path
) -> tuple[int, dict[str, Confirmation]]:
    """How many turns it took, and what they have shown of each cell."""
    pending = list(cells)
    rounds: dict[str, list[tuple[float, float]]] = {cell: [] for cell in cells}
    answers: dict[str, Confirmation] = {}
    done = 0
    for first, last in zip((0, *LOOKS), LOOKS, strict=False):
        for number in range(first, last if pending else first):
            values = {}
            for commit in turns(pair.commits, number):
                what = f"round {number + 1} of {last}: {commit[:8]}, {len(pending)} cells"
                report(done, last, what)
                values[commit] = measure(commit, pending)
                done += 1
            _keep(file, {"round": number, "threads": pair.threads, "values": values})
            for cell in pending:
                before, after = (values[commit].get(cell) for commit in pair.commits)
                if before is not None and after is not None:
                    rounds[cell].append((before, after))
        for cell in list(pending):
            answer = judge(pair.commits, rounds[cell], ratio, least=last)
            if answer is not None:
                answers[cell] = answer
                if answer.verdict != "undecided":
                    pending.remove(cell)
    return done, answers


def _keep(file: Path, line: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


@contextmanager
def measuring(project: Path, pair: Pair, patterns: Sequence[str]) -> Iterator[Measure]:
    """A process that measures; it ends with this one, whatever ends this one."""
    ours, theirs = socket.socketpair()
    folder = tempfile.mkdtemp(prefix="demopool-confirm-")
    with ours, theirs, tempfile.TemporaryFile("w+", errors="replace") as said:
        python = [sys.executable, "-P", "-m"]
        process = subprocess.Popen(
            [
                *(*python, "demopool.common.guard", folder, str(PATIENCE)),
                *(*python, "demopool.results.history.asv_turns", str(theirs.fileno())),
            ],
            cwd=project,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            # Ctrl-C reaches it by its guard, and only once.
            start_new_session=True,
        )
        theirs.close()
        assert process.stdin is not None
        lines = ours.makefile("rw")

        def ask(request: object) -> dict[str, float | None]:
            try:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answer = lines.readline()
            except OSError:
                answer = ""
            if not answer:
                said.seek(0)
                raise DemopoolError(f"asv failed:\n{said.read()[-3000:].strip()}")
            found: dict[str, float | None] = json.loads(answer)
            return found

        def measure(commit: str, cells: Sequence[str]) -> Mapping[str, float | None]:
            return ask({"commit": commit, "patterns": list(cells)})

        try:
            facts = {"commits": pair.commits, "patterns": list(patterns)}
            ask({"file": CONFIGURATION, "threads": pair.threads, **facts})
            yield measure
        finally:
            process.stdin.close()
            process.wait()
