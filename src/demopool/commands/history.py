"""``demopool history``: how time, memory and error moved from commit to commit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ..errors import InvalidInput
from ..report import history_plot
from ..results import history as past
from ..results import table
from ..results.history import repository, text
from ..results.history.analysis import IDENTITY, RATIO
from ..results.history.text import Line
from .output import check_writable, console, emit, envelope, json_option

SCHEMA = 1
NO_RESULTS = (
    "There are no asv results{where}. `asv run`, or `make bench` in a clone of demopool, measures "
    "the present commit and `asv run A..B` a range of them; then call this again."
)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--since", metavar="DATE|COMMIT|TAG", help="Only this commit or day and later ones.")
@click.option("--machine", "machines", multiple=True, metavar="NAME", help="Only this machine.")
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Only this case: vgg-b1.")
@click.option("--candidate", metavar="REGEX", help="Only candidates that match: '^torch:cpu'.")
@click.option("--measure", "measures", multiple=True, metavar="NAME", help="call_s, error, ...")
@click.option("--subject", "subjects", multiple=True, metavar="NAME", help="democratic, pool, ...")
@click.option(
    "--ratio",
    type=click.FloatRange(1.0, min_open=True),
    default=RATIO,
    show_default=True,
    help="Smallest step of time or memory that counts as a change.",
)
@click.option(
    "--png", type=click.Path(path_type=Path, dir_okay=False), help="Draw it into this file."
)
@click.option("--all-branches", is_flag=True, help="Commits of other branches too, by date.")
@click.option("--all", "show_all", is_flag=True, help="Every series, with or without a step.")
@click.option(
    "--fail-on-regression",
    is_flag=True,
    help="Exit code 1 if a regression is open, or what had a value fails now.",
)
@json_option
def history(
    paths: tuple[Path, ...],
    since: str | None,
    machines: tuple[str, ...],
    cases: tuple[str, ...],
    candidate: str | None,
    measures: tuple[str, ...],
    subjects: tuple[str, ...],
    ratio: float,
    png: Path | None,
    all_branches: bool,
    show_all: bool,
    fail_on_regression: bool,
    as_json: bool,
) -> int:
    """How time, memory and error moved from commit to commit, and which commit made them worse.

    Reads what asv has measured: PATH is a folder of results or a result file, of any number of
    machines; without one, the results of the project around the current folder. Steps are
    found over the whole series, against its noise. Of times the lower quartile is followed.
    Git is asked for the order of commits in the repository around the current folder only.

    \b
    demopool history                              steps and regressions, if any
    demopool history --all --case vgg-b1          every series of one case
    demopool history --since HEAD~20 --png h.png  a picture of the last commits
    demopool history --candidate '^torch:' --measure peak_host_bytes
    demopool history mine/results yours/results   two machines, joined
    demopool history --fail-on-regression --json  for a script

    A step counts from a ratio of 1.10 and 50 microseconds or 1 MB on; an error from 3 times on;
    a number of instructions (make counts) from 1.005 on.
    A step that stands out little from the noise is seen a commit or two later, and two or three
    commits show only large ones. A baseline's code never changes: its steps are the machine's.

    Exit codes: 0 success; 1 with --fail-on-regression if a regression is open or something that had
    a value failed at the newest commit; 2 invalid usage, or no results to read.
    """
    check_writable(png)
    choices = {"machine": machines, "case": cases, "measure": measures, "subject": subjects}
    frame = table.read(paths or None, with_samples=False)
    stale, unreadable = frame.attrs["stale"], frame.attrs["unreadable"]
    if frame.empty:
        where = f" in {', '.join(map(str, paths))}" if paths else " here"
        raise InvalidInput(" ".join([NO_RESULTS.format(where=where), *unreadable]))
    frame, elsewhere = _on_this_branch(frame, all_branches)
    frame = _chosen(frame, choices)
    whole, frame = frame, _matching(frame, candidate)
    git_order = repository.order(repository.OWN, list(frame["commit"].unique()))
    order = past.commits(frame, git_order)
    lines = past.series(frame, git_order)
    if since is not None:
        order = _since(since, order, frame, git_order)
        lines = past.only(lines, order)
    thresholds = past.Thresholds(ratio=ratio)
    shown = set(lines)
    judged = past.series(whole, git_order) if len(whole) > len(frame) else lines
    controls = [one for one in past.only(judged, order) if one.is_baseline and one not in shown]
    found = past.regressions([*lines, *controls], ratio=ratio)
    is_open = {regression.series for regression in found if regression.state == "open"}
    shown_lines = [Line(one, past.steps(one, thresholds), one in is_open) for one in lines]
    note = None
    if png is not None:
        note = history_plot.draw(lines, order, {one.series: one.steps for one in shown_lines}, png)
    if as_json:
        payload = {
            "series": [_series_row(line) for line in shown_lines],
            "regressions": [_regression_row(regression) for regression in found],
            "files": [str(png)] if png is not None else [],
            "stale": stale,
            "unreadable": unreadable,
        }
        emit(envelope(SCHEMA, payload))
    else:
        screen = console()
        text.show(shown_lines, len(order), show_all, screen)
        regressed = text.sentences(found) if len(order) > 1 else []
        for sentence in [*regressed, *text.failures(lines), *filter(None, [note])]:
            screen.print(sentence)
        for sentence in unreadable:
            screen.print(sentence)
        if elsewhere:
            screen.print(
                f"{elsewhere} measured commits are not in the history of HEAD and are left out; "
                "--all-branches shows them."
            )
        if stale:
            screen.print(f"{stale} values of older or removed benchmarks are left out.")
        if png is not None:
            screen.print(f"Written: {png}")
    return 1 if fail_on_regression and (is_open or any(one.broke for one in lines)) else 0


def _on_this_branch(frame: Any, all_branches: bool) -> tuple[Any, int]:
    """The commits that led to HEAD, where git knows any of them, and how many others there are."""
    line = None if all_branches else repository.order(repository.OWN, ["HEAD"])
    mine = frame["commit"].isin(line or [])
    return (frame[mine], int(frame[~mine]["commit"].nunique())) if mine.any() else (frame, 0)


def _chosen(frame: Any, choices: dict[str, tuple[str, ...]]) -> Any:
    """What was asked for, as far as there are measured values of it."""
    for column, wanted in choices.items():
        there = sorted(frame[frame["state"] == "ok"][column].dropna().unique())
        for name in wanted:
            if name not in there:
                raise InvalidInput(
                    f"--{column} must be one that was measured ({_few(there)}); got {name!r}."
                )
        if wanted:
            frame = frame[frame[column].isin(wanted)]
    return frame


def _matching(frame: Any, candidate: str | None) -> Any:
    if candidate is None:
        return frame
    try:
        pattern = re.compile(candidate)
    except re.error as problem:
        raise InvalidInput(
            f"--candidate must be a regular expression; {candidate!r} is none: {problem}."
        ) from None
    there = sorted(frame[frame["state"] == "ok"]["candidate"].dropna().unique())
    wanted = [name for name in there if pattern.search(name)]
    if not wanted:
        raise InvalidInput(
            f"--candidate {candidate!r} matches none that was measured: {_few(there)}."
        )
    return frame[frame["candidate"].isin(wanted)]


def _few(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"


def _since(
    name: str, order: Sequence[str], frame: Any, git_order: Sequence[str] | None
) -> list[str]:
    """The commits from this one on; it need not be measured itself if git can place it."""
    measured = [commit for commit in order if len(name) >= 4 and commit.startswith(name)]
    if measured:
        return list(order[order.index(measured[0]) :])
    commit = repository.commit(repository.OWN, name)
    if commit is not None and git_order is not None and commit in git_order:
        later = set(git_order[git_order.index(commit) :])
        return [commit for commit in order if commit in later]
    try:
        day = datetime.fromisoformat(name)
    except ValueError:
        raise InvalidInput(
            f"--since must be a date, or a commit or tag in the measured history; got {name!r}."
        ) from None
    day = day if day.tzinfo else day.replace(tzinfo=UTC)
    later = set(frame[frame["commit_date"] >= day]["commit"])
    if not later:
        raise InvalidInput(f"--since {name}: no measured commit is that young.")
    return [commit for commit in order if commit in later]


def _series_row(line: Line) -> dict[str, Any]:
    one = line.series
    first, last = (one.values[0], one.values[-1]) if one.values else (None, None)
    return {
        **_identity(one),
        "first": first,
        "last": last,
        "ratio": last / first if first and last is not None else None,
        "steps": [
            {"commit": s.commit, "before": s.before, "after": s.after, "ratio": s.ratio}
            for s in line.steps
        ],
        "points": [
            {
                "commit": point.commit,
                "date": point.date.isoformat() if point.date else None,
                "value": point.value,
                "state": point.state,
                "reason": point.reason,
            }
            for point in one.points
        ],
    }


def _regression_row(regression: past.Regression) -> dict[str, Any]:
    own = {key: value for key, value in vars(regression).items() if key != "series"}
    return {**_identity(regression.series), **own}


def _identity(one: past.Series) -> dict[str, Any]:
    return {name: getattr(one, name) for name in IDENTITY}
