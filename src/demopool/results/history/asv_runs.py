"""Measure suspects again: their cells at some commits in turns, by a process of :mod:`.asv_turns`.

The values of every round are kept in ``.asv/confirm`` of the project, a file for every group of
commits; the history stays as it was. asv is run only in the project around the current folder, and
only if asked.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
LONG = 3
"""A level of more commits than that is measured at its last but one."""
PATIENCE = 10.0
"""Seconds for asv to end its processes when it is interrupted."""

Report = Callable[[int, int, str], None]
"""Called before every turn with how many are done, how many there are, and what comes now."""
Measure = Callable[[str, Sequence[str]], Mapping[str, float | None]]
"""The values of cells, by their patterns, at a commit; None of what failed."""


class Group(NamedTuple):
    """Commits that are compared on one machine with one number of threads, oldest first."""

    machine: str
    threads: int | None
    commits: tuple[str, ...]


def is_suspect(regression: Regression) -> bool:
    """Only times: memory and errors do not feel what else the machine does."""
    return regression.state in ("open", "suspect") and regression.series.quantity == "time"


def confirmed(
    found: Sequence[Regression],
    hints: Sequence[Regression],
    project: Path,
    ratio: float,
    report: Report,
) -> list[Regression]:
    """The same regressions; what was suspected is confirmed, refuted, or as it was if undecided.

    Of the hints only those that prove true.
    """
    groups: dict[Group, dict[str, Series]] = {}
    for regression in filter(is_suspect, [*found, *hints]):
        one = regression.series
        groups.setdefault(_group(regression), {})[pattern(one)] = one
    if len({group.machine for group in groups}) > 1:
        names = ", ".join(sorted({group.machine for group in groups}))
        raise InvalidInput(f"--confirm measures here: name this machine by --machine ({names}).")
    answers = _measured(groups, project, ratio, report)

    def again(regression: Regression) -> Regression:
        if not is_suspect(regression):
            return regression
        return _with(regression, answers.get((_group(regression), pattern(regression.series))))

    true = [r for r in map(again, hints) if r.state in ("confirmed", "fixed")]
    # Two steps of the history may prove to be one.
    unique: dict[object, Regression] = {}
    for r in [*map(again, found), *true]:
        unique.setdefault((r.series, r.commit, r.state, r.fixed_by), r)
    return list(unique.values())


def _measured(
    groups: Mapping[Group, Mapping[str, Series]], project: Path, ratio: float, report: Report
) -> dict[tuple[Group, str], Confirmation]:
    """Group after group."""
    answers: dict[tuple[Group, str], Confirmation] = {}
    done = 0
    sizes = [len(group.commits) for group in groups]
    for number, (group, cells) in enumerate(groups.items()):
        later = LOOKS[0] * sum(sizes[number + 1 :])

        def say(turn: int, last: int, what: str, done: int = done, after: int = later) -> None:
            report(done + turn, done + last + after, what)

        taken, judged = in_turns(group, list(cells), project, ratio, say)
        done += taken
        answers.update({(group, cell): answer for cell, answer in judged.items()})
    return answers


def in_turns(
    group: Group, cells: Sequence[str], project: Path, ratio: float, report: Report
) -> tuple[int, dict[str, Confirmation]]:
    """How many turns it took, and what they have shown of each cell, by its pattern.

    A cell that failed too often has no answer.
    """
    file = project / FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.jsonl"
    names = ", ".join(commit[:8] for commit in group.commits)
    report(0, LOOKS[0] * len(group.commits), f"preparing {names}")
    with measuring(project, group, cells) as measure:
        return _judged(group, cells, measure, ratio, report, file)


def _group(regression: Regression) -> Group:
    """Two commits before the step, two from it on, and the newest one that should show it."""
    one = regression.series
    known = [(p.commit, p.value) for p in one.points if p.value is not None]
    order = [commit for commit, _ in known]
    step, end = order.index(regression.commit), len(order)
    if regression.fixed_by is not None:
        end = order.index(regression.fixed_by)
        # Noise may have put the end of a long level a commit too late.
        end -= end - step > LONG
    good = order.index(regression.last_good)
    # The commit before the last good one, too, unless it was as slow for reasons of its own.
    middle = (regression.before * regression.after) ** 0.5
    start = good - 1 if good > 0 and known[good - 1][1] < middle else good
    near = [*order[start : good + 1], *order[step : min(step + 2, end)], order[end - 1]]
    return Group(one.machine or "", one.threads, tuple(dict.fromkeys(near)))


def _with(regression: Regression, answer: Confirmation | None) -> Regression:
    if answer is None:
        return regression
    if answer.verdict != "confirmed":
        state = "refuted" if answer.verdict == "refuted" else regression.state
        return replace(regression, state=state, confirmation=answer)
    place = answer.commits.index(answer.appeared)
    return replace(
        regression,
        state="confirmed" if regression.fixed_by is None else "fixed",
        commit=answer.appeared,
        last_good=answer.commits[place - 1],
        confirmation=answer,
    )


def _judged(
    group: Group, cells: Sequence[str], measure: Measure, ratio: float, report: Report, file: Path
) -> tuple[int, dict[str, Confirmation]]:
    pending = list(cells)
    rounds: dict[str, list[tuple[float, ...]]] = {cell: [] for cell in cells}
    answers: dict[str, Confirmation] = {}
    done = 0
    for first, last in zip((0, *LOOKS), LOOKS, strict=False):
        for number in range(first, last if pending else first):
            values = {}
            for commit in turns(group.commits, number):
                what = f"round {number + 1} of {last}: {commit[:8]}, {len(pending)} cells"
                report(done, last * len(group.commits), what)
                values[commit] = measure(commit, pending)
                done += 1
            _keep(file, {"round": number, "threads": group.threads, "values": values})
            for cell in pending:
                found = [values[commit].get(cell) for commit in group.commits]
                whole = tuple(value for value in found if value is not None)
                if len(whole) == len(found):
                    rounds[cell].append(whole)
        for cell in list(pending):
            answer = judge(group.commits, rounds[cell], ratio, least=LOOKS[0])
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
def measuring(project: Path, group: Group, patterns: Sequence[str]) -> Iterator[Measure]:
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
            facts = {"commits": group.commits, "patterns": list(patterns)}
            ask({"file": CONFIGURATION, "threads": group.threads, **facts})
            yield measure
        finally:
            process.stdin.close()
            process.wait()
