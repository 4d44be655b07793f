"""``demopool profile``: what was measured on this machine; shows, exports or forgets it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from ..common.units import readable
from ..errors import InvalidInput
from ..problem.candidates import Candidate
from ..profiles import file_format, store
from ..profiles.records import Decided, Profile
from .output import check_writable, console, emit, envelope, json_option

SCHEMA = 1

_WORDS = {"wrong": "wrong", "error": "crashed", "timeout": "out of time"}


@click.command(name="profile")
@click.option("--reset", is_flag=True, help="Forget all of it; auto starts anew.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to FILE as JSON, as auto reads it; with --reset, before that.",
)
@json_option
def profile_command(reset: bool, export: Path | None, as_json: bool) -> int:
    """What `demopool choose` has taught this machine, which backend="auto" uses.

    One line for every job that was measured: what was recommended, or the best time of a race that
    was restricted, interrupted or undecided (then auto goes by the times and a fitted model), how
    many candidates were timed, and how many were wrong, crashed or ran out of time or memory.

    \b
    demopool profile                         look at it
    demopool profile --export learnt.json    keep a copy
    demopool profile --reset                 forget it: auto starts anew

    Another profile is used after a change of hardware or libraries, and times of a backend whose
    code has changed are not used. --reset leaves the samples alone: the next `demopool choose`
    goes on from them, unless it is given --fresh.
    """
    check_writable(export)
    path = store.path_here()
    known = store.here()
    if export is not None:
        emit(file_format.as_text(known, path.stem).rstrip("\n"), export)
    if reset:
        try:
            store.reset()
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be removed: {problem.strerror}.") from None
    if as_json:
        emit(envelope(SCHEMA, {"file": str(path), "reset": reset, **asdict(known)}))
        return 0
    screen = console()
    cases = f"{len(known.decided)} {'job' if len(known.decided) == 1 else 'jobs'}"
    if export is not None:
        screen.print(f"{cases} written to {export}.", soft_wrap=True)
    if reset:
        screen.print(f"Forgotten: {cases}.", soft_wrap=True)
    if export is not None or reset:
        return 0
    if outdated := store.outdated():
        jobs = "1 job was" if outdated == 1 else f"{outdated} jobs were"
        screen.print(
            f"{jobs} measured with code that has changed since, and is not used: "
            "`demopool choose` measures again.",
            soft_wrap=True,
        )
    if not known.decided and not outdated:
        screen.print("Nothing was measured here yet: `demopool choose` does that.", soft_wrap=True)
    if not known.decided:
        return 0
    screen.print(_table(known))
    screen.print(f"{cases} in {path}", soft_wrap=True)
    return 0


def _table(known: Profile) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for heading in ("job", "best measured", "time", "timed"):
        right = heading in ("time", "timed")
        table.add_column(
            heading,
            justify="right" if right else "left",
            no_wrap=heading == "time",
            overflow="fold",  # names are never cut off
        )
    for decided in reversed(known.decided):
        table.add_row(_job(decided), *_answer(decided), _timed(decided))
    return table


def _job(decided: Decided) -> str:
    case = decided.case
    sketch = f" k={case.k}" if case.descriptor.is_sketched else ""
    threads = f"{decided.threads} thread" + ("" if decided.threads == 1 else "s")
    sizes = f"{case.batch} x n={case.n} d={case.d}{sketch}, {case.dtype}, {threads}"
    return f"{case.descriptor}\n{sizes}"


def _answer(decided: Decided) -> tuple[str, str]:
    """The recommendation; else the lowest time, which is not one."""
    times = {Candidate(m.backend, m.route): m.seconds for m in decided.candidates}
    if decided.whole:
        found = Candidate(decided.backend, decided.route)
        verdict = decided.state
    elif times:
        found = min(times, key=lambda candidate: times[candidate])
        verdict = "best of a part"
    else:
        return "-\nnothing was timed", "-"
    return f"{found}\n{verdict}", readable(times.get(found), "time")


def _timed(decided: Decided) -> str:
    rest = Counter(_WORDS.get(u.state, "out of memory") for u in decided.untimed)
    return "\n".join([str(len(decided.candidates)), *(f"{n} {word}" for word, n in rest.items())])
