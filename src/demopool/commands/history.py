"""``demopool history``: how time, memory and error moved from commit to commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..errors import InvalidInput
from ..report import history_plot
from ..results import asv_files, table
from ..results import history as past
from ..results.history import asv_runs, repository, text
from ..results.history import sentences as told
from ..results.history.changes import RATIO
from ..results.history.points import IDENTITY
from ..results.history.repository import Place
from ..results.history.text import Line
from . import history_choice as choice
from .output import check_writable, console, emit, envelope, json_option, progress

SCHEMA = 1
DOUBTED = ("open", "confirmed", "suspect")
NO_RESULTS = (
    "There are no asv results{where}. `asv run`, or `make bench` in a clone of demopool, measures "
    "the present commit and `asv run A..B` a range of them; then call this again."
)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH|ADDRESS]...")
@click.option("--since", metavar="DATE|COMMIT|TAG", help="Only this commit or day and later ones.")
@click.option("--machine", "machines", multiple=True, metavar="NAME", help="Only this machine.")
@click.option("--threads", type=int, multiple=True, metavar="N", help="Only results of N threads.")
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
    "--confirm",
    is_flag=True,
    help="Measure slow suspects again with asv: commits before and after the step, in turns.",
)
@click.option(
    "--fail-on-regression",
    is_flag=True,
    help="Exit code 1 unless everything was measured and is fine.",
)
@click.option(
    "--allow-unmeasured",
    is_flag=True,
    help="With --fail-on-regression: HEAD need not have results.",
)
@json_option
def history(
    paths: tuple[str, ...],
    since: str | None,
    machines: tuple[str, ...],
    threads: tuple[int, ...],
    cases: tuple[str, ...],
    candidate: str | None,
    measures: tuple[str, ...],
    subjects: tuple[str, ...],
    ratio: float,
    png: Path | None,
    all_branches: bool,
    show_all: bool,
    confirm: bool,
    fail_on_regression: bool,
    allow_unmeasured: bool,
    as_json: bool,
) -> int:
    """How time, memory and error moved from commit to commit, and which commit made them worse.

    Reads what asv has measured: PATH is a folder of results or a result file, of any number of
    machines, ADDRESS a git repository that keeps them (https://..., git@..., #branch); without
    one, the results of the project around the current folder. Steps are found over the whole
    series, against its noise. Of times the lower quartile is followed, or the fastest call where
    asv was told to keep them all (asv run --record-samples).
    Git is asked for the order of commits in the repository around the current folder only.

    \b
    demopool history                              steps and regressions, if any
    demopool history --all --case vgg-b1          every series of one case
    demopool history --since HEAD~20 --png h.png  a picture of the last commits
    demopool history --candidate '^torch:' --measure peak_host_bytes
    demopool history mine/results yours/results   two machines, each for itself
    demopool history https://example.org/results  of a repository that others keep
    demopool history --confirm                    measure what looks slower again
    demopool history --fail-on-regression --json  for a script

    A step counts from a ratio of 1.10 and 50 microseconds or 1 MB on; an error from 3 times on;
    a number of instructions (make counts) from 1.005 on.
    A step that stands out little from the noise is seen a commit or two later, and two or three
    commits show only large ones. A baseline's code never changes: a step that it shares, by the
    same factor, is the machine's. Steps that only a busy machine shows are suspected, not found:
    --confirm measures these cells with asv at the commits around the step and at the newest one,
    in 6 to 20 rounds that measure them all, and believes these alone. It also tries steps that
    stand out too little to be told. To see 10 %, say --ratio 1.05.

    \b
    Exit codes with --fail-on-regression:
      0  measured, and fine
      1  a regression is open or confirmed
      1  something failed at the newest commit (even if it never worked), or had
         values and was skipped there, and not because of other hardware, other
         libraries or less free memory
      1  HEAD has no results, unless --allow-unmeasured is given
      2  invalid usage, or no results to read

    Without --fail-on-regression 0 and 2 only.
    """
    check_writable(png)
    project = _project(paths) if confirm else None
    frame = table.read(paths or None, with_samples=False)
    stale, unreadable = frame.attrs["stale"], frame.attrs["unreadable"]
    if frame.empty:
        where = f" in {', '.join(map(str, paths))}" if paths else " here"
        raise InvalidInput(" ".join([NO_RESULTS.format(where=where), *unreadable]))
    place = repository.place(frame, all_branches)
    columns = {"machine": machines, "threads": threads, "case": cases}
    columns |= {"measure": measures, "subject": subjects}
    whole = choice.chosen(place.frame, columns)
    frame = choice.matching(whole, candidate)
    head = _head(frame, place)
    order = past.commits(frame, place.order)
    lines = past.series(frame, place.order)
    if since is not None:
        order = choice.since(since, order, frame, place.order)
        lines = past.only(lines, order)
    judged = _judged(lines, whole, frame, place, order)
    found = past.regressions(judged, ratio=ratio)
    if project is not None:
        found = _confirmed(found, past.hints(judged, found, ratio=ratio), project, ratio)
    lost = past.losses(lines)
    doubted = {r.series for r in found if r.state in DOUBTED and r.fixed_by is None}
    thresholds = past.Thresholds(ratio=ratio)
    shown_lines = [Line(one, past.steps(one, thresholds), one in doubted) for one in lines]
    note = None
    if png is not None:
        note = history_plot.draw(lines, order, {one.series: one.steps for one in shown_lines}, png)
    if as_json:
        payload = {
            "head": head,
            "series": [_series_row(line) for line in shown_lines],
            "regressions": [_regression_row(regression) for regression in found],
            "lost": [{**_identity(loss.series), **_own(loss)} for loss in lost],
            "files": [str(png)] if png is not None else [],
            "stale": stale,
            "unreadable": unreadable,
        }
        emit(envelope(SCHEMA, payload))
    else:
        screen = console()
        text.show(shown_lines, len(order), show_all, screen)
        sentences = [*told.regressed(found), *told.lost(lost)]
        if head and not head["measured"]:
            sentences.append(told.unmeasured(head["newest"], head["behind"]))
        elif head and order[-1:] == [head["commit"]]:
            sentences += told.not_at_head(lines, head["commit"])
        if not sentences and len(order) > 1:
            sentences = ["No regression found."]
        if place.elsewhere:
            sentences.append(
                f"{place.elsewhere} measured commits are not in the history of HEAD and are left "
                "out; --all-branches shows them."
            )
        if stale:
            sentences.append(f"{stale} values of older or removed benchmarks are left out.")
        for sentence in [*sentences, *filter(None, [note]), *unreadable]:
            screen.print(sentence)
        if png is not None:
            screen.print(f"Written: {png}")
    unmeasured = head is not None and not head["measured"] and not allow_unmeasured
    wrong = any(r.stands for r in found) or any(loss.fails for loss in lost)
    return 1 if fail_on_regression and (wrong or unmeasured) else 0


def _project(paths: Sequence[str]) -> Path:
    """Where --confirm runs asv."""
    if paths:
        raise InvalidInput("--confirm measures in the project around the current folder: no PATH.")
    project = asv_files.project_folder(Path.cwd())
    if project is None:
        raise InvalidInput(
            f"--confirm runs asv: call it in a project with an {asv_files.CONFIGURATION}."
        )
    return project


def _head(frame: Any, place: Place) -> dict[str, Any] | None:
    """Whether HEAD has results of what was asked for, and which commit is the newest that has."""
    if place.head is None:
        return None
    asked = set(frame[frame["state"] != "not run"]["commit"])
    newest = next((commit for commit in reversed(place.line) if commit in asked), None)
    return {
        "commit": place.head,
        "measured": place.head in asked,
        "newest": newest,
        "behind": place.behind(newest) if newest else None,
    }


def _judged(
    lines: Sequence[past.Series], whole: Any, frame: Any, place: Place, order: Sequence[str]
) -> list[past.Series]:
    """What is shown, and the baselines, also where these are not."""
    shown = set(lines)
    judged = past.series(whole, place.order) if len(whole) > len(frame) else lines
    controls = [one for one in past.only(judged, order) if one.is_baseline and one not in shown]
    return [*lines, *controls]


def _confirmed(
    found: Sequence[past.Regression],
    hints: Sequence[past.Regression],
    project: Path,
    ratio: float,
) -> list[past.Regression]:
    """What is found, and of the hints those that prove true."""
    with progress("measuring again") as report:
        try:
            return asv_runs.confirmed(found, hints, project, ratio, report)
        except KeyboardInterrupt:
            console(stderr=True).print(
                f"Nothing is confirmed; rounds that are whole lie in {asv_runs.FOLDER}."
            )
            raise


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
                "load": point.load,
                "busy": point.busy,
            }
            for point in one.points
        ],
    }


def _regression_row(regression: past.Regression) -> dict[str, Any]:
    again = regression.confirmation
    row = {**_identity(regression.series), **_own(regression)}
    return {**row, "confirmation": None if again is None else asdict(again)}


def _own(found: past.Regression | past.Loss) -> dict[str, Any]:
    return {key: value for key, value in vars(found).items() if key != "series"}


def _identity(one: past.Series) -> dict[str, Any]:
    return {name: getattr(one, name) for name in IDENTITY}
