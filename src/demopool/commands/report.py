"""``demopool report``: everything that was measured, as one page to look at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..choosing.runners import ProgressCallback
from ..errors import DemopoolError
from .output import LINE_SECONDS, console, emit, envelope, json_option, tell

SCHEMA = 2


@click.command()
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demopool-report"),
    show_default=True,
    help="Folder to write into.",
)
@click.option(
    "--results",
    "paths",
    multiple=True,
    metavar="PATH|ADDRESS",
    help="asv results or samples, of any machine, or the git repository that keeps them; can be "
    "repeated.  [default: this machine's]",
)
@click.option(
    "--claims",
    "race_claims",
    is_flag=True,
    help="First race the candidates of the paper's claims, unless this machine has done so.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    help="Maximum seconds for the race of one claim, without set-up.  [default: 60]",
)
@click.option("--fresh", is_flag=True, help="Race the claims again.")
@json_option
def report(
    folder: Path,
    paths: tuple[str, ...],
    race_claims: bool,
    budget: float | None,
    fresh: bool,
    as_json: bool,
) -> int:
    """Write report.html, one self-contained page, and its pictures as PNG files.

    It has the recommendations of `demopool choose` with their intervals and reasons, the paper's
    claims, time and memory over n, d and the batch, the crossover map, memory and error against
    time, the history if asv has measured several commits, the support matrix and the machine.

    Only --claims measures candidates: for each claim one race of exactly those it compares. What
    is missing is named with the command that measures it.

    \b
    demopool choose --descriptor all --case vgg-b1  recommendations
    demopool report --claims                        the paper's claims; the page
    demopool report -o out --results mine/results --results yours/results
    """
    if not race_claims and (budget or fresh):
        raise click.UsageError("--budget and --fresh are for --claims.")
    try:
        import matplotlib  # noqa: F401
        import pandas  # noqa: F401
    except ImportError as missing:
        raise DemopoolError(
            f"The report needs {missing.name}, which is not installed: "
            "pip install '.[report]' (in a clone)"
        ) from None
    from ..report import claim_races, data
    from ..report.building import build

    if race_claims:
        before = data.gather(paths).claimed
        with _progress() as progress:
            claim_races.measure(
                before, budget=budget or claim_races.BUDGET, fresh=fresh, progress=progress
            )
    built = build(folder, paths)
    if as_json:
        payload = {
            "files": [str(file) for file in built.files],
            "claims": [claim._asdict() for claim in built.claims],
            "notes": built.notes,
        }
        emit(envelope(SCHEMA, payload))
        return 0
    screen = console()
    screen.print(f"{built.files[0]}", soft_wrap=True)
    if len(built.files) > 1:
        screen.print(f"and {len(built.files) - 1} pictures beside it")
    for note in built.notes:
        screen.print(f"Warning: {note}", soft_wrap=True)
    return 0


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """What is being done: on one line of a terminal, or a line every few seconds without one."""
    errors = console(stderr=True)
    if errors.is_terminal:
        with errors.status("the paper's claims") as status:
            yield lambda seconds, what: status.update(what)
        return
    last = -LINE_SECONDS

    def progress(seconds: float, what: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            tell(what)

    yield progress
