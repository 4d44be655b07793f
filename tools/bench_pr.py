"""``make bench-pr``: what HEAD changed in speed since it left another branch, as Markdown.

Both commits are measured by asv in interleaved rounds, into a folder of their own. What seems
changed is measured again in turns, as ``demopool history --confirm`` does, which decides.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks import checkout
from benchmarks.harness import ROOT
from benchmarks.profiles import Slice, slices
from benchmarks.suite import BASELINE
from demopool import results
from demopool.commands.output import progress
from demopool.common.files import write_text
from demopool.errors import DemopoolError
from demopool.results.history import asv_runs
from demopool.results.history.changes import RATIO
from demopool.results.history.confirming import Confirmation

from . import estimate, verdicts
from .asv_process import Interrupted, Lock, alone, run
from .bench import (
    Plan,
    config_with,
    end_as_by_interrupt,
    planned,
    usable_backends,
    warn,
)
from .cells import Cell

FOLDER = "pull-request"
UNMEASURED = 2
"""Exit code if there was nothing to compare."""


class NothingMeasured(click.ClickException):
    """One sentence on why."""

    exit_code = UNMEASURED


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--base", default="origin/main", show_default=True, help="Branch or commit.")
@click.option(
    "--bench",
    "pattern",
    metavar="REGEX",
    help="Times to compare, of the full profile; without it descriptors of the fast profile.",
)
@click.option("--rounds", type=click.IntRange(2), default=2, show_default=True, help="In turns.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="The table too.")
def bench_pr(base: str, pattern: str | None, rounds: int, output: Path | None) -> None:
    """Compare HEAD with the commit where it left BASE, and print a table in Markdown.

    The time of every candidate is put in relation to the baseline beside it, whose code is the same
    at both commits, so that a machine that became slower meanwhile is no regression.

    \b
    python -m tools.bench_pr --base origin/main
    python -m tools.bench_pr --base HEAD~1 --bench 'Democratic.*numpy:cpu.*vgg-b1'

    Exit codes: 0 nothing is slower; 1 something is; 2 something could not be measured or told.
    """
    errors = Console(stderr=True, highlight=False, markup=False)
    cells = cells_of(pattern)
    try:
        plan, start = _plan(base)
        warn(errors)
        seconds = estimate.seconds(cells, runs=2 * rounds)
        errors.print(
            f"{len(cells)} cells at {start[:8]} and {plan.commit[:8]}, {rounds} rounds, "
            f"{estimate.sentence(seconds)} by the cost model."
        )
        with alone(plan.folder) as lock:
            for old in plan.folder.glob("*-*.json*"):
                old.unlink()
            found = compared(plan, start, cells, rounds, errors, lock)
    except (KeyboardInterrupt, Interrupted):
        raise NothingMeasured("interrupted; nothing is kept") from None
    except (checkout.NoCommit, click.ClickException, DemopoolError) as problem:
        raise NothingMeasured(str(problem)) from None
    text = verdicts.markdown(found, start, plan.commit)
    click.echo(text, nl=False)
    if output is not None:
        write_text(output, text)
    sys.exit(found.exit_code)


def cells_of(pattern: str | None) -> set[Cell]:
    """What is compared, each with the baseline beside it."""
    profile = "fast" if pattern is None else "full"
    timed = {
        Cell(*cell)
        for part in slices(profile, usable_backends())
        for cell in part.cells
        if ".time_" in cell[0] and (pattern is not None or cell[0].startswith("descriptors."))
    }
    if pattern is None:
        return timed
    try:
        chosen = {cell for cell in timed if re.search(pattern, cell.name)}
    except re.error as problem:
        raise click.UsageError(f"--bench must be a regular expression: {problem}") from None
    if not chosen:
        raise NothingMeasured(f"--bench {pattern!r} matches no time of the suite on this machine.")
    return chosen | (timed & {baseline_of(cell) for cell in chosen})


def baseline_of(cell: Cell) -> Cell:
    return cell._replace(candidate=str(BASELINE))


def compared(
    plan: Plan, start: str, cells: set[Cell], rounds: int, errors: Console, lock: Lock
) -> verdicts.Comparison:
    """Measured, and what seems changed measured again."""
    _measure(plan, start, cells, rounds, lock)
    found = verdicts.compare(results.read(plan.folder), start, plan.commit, cells)
    seem = {kind: found.cells(kind) for kind in (verdicts.SLOWER, verdicts.FASTER)}
    count = sum(map(len, seem.values()))
    if not count:
        return found
    errors.print(f"{count} seem changed and are measured again.")
    answers: dict[Cell, Confirmation] = {}
    for kind, suspects in seem.items():
        # What was faster at HEAD is slower at the base.
        pair = (start, plan.commit) if kind == verdicts.SLOWER else (plan.commit, start)
        if suspects:
            answers |= in_turns(plan, pair, suspects)
    return verdicts.confirmed(found, answers)


def in_turns(plan: Plan, pair: tuple[str, str], cells: set[Cell]) -> dict[Cell, Confirmation]:
    """Whether these take longer at the second commit."""
    group = asv_runs.Group(plan.folder.name, plan.threads, pair)
    patterns = {cell.pattern: cell for cell in sorted(cells)}
    with progress("measuring again") as report:
        _, found = asv_runs.in_turns(group, list(patterns), ROOT, RATIO, report)
    return {patterns[name]: answer for name, answer in found.items()}


def _measure(plan: Plan, start: str, cells: set[Cell], rounds: int, lock: Lock) -> None:
    part = Slice(
        "both commits in turns", tuple(cell.pattern for cell in sorted(cells)), frozenset(cells)
    )
    hashes = plan.folder / "commits.txt"
    write_text(hashes, f"{start}\n{plan.commit}\n")
    turns = ("--interleave-rounds", "--attribute", f"rounds={rounds}")
    command = plan.command(part, *turns, commits=f"HASHFILE:{hashes}")
    run([(part, command)], lock, times=2 * rounds)


def _plan(base: str) -> tuple[Plan, str]:
    """Where results go, and the commit where HEAD left the base."""
    plan = planned(config_with(folder=FOLDER), [])
    try:
        start = checkout.git("merge-base", base, "HEAD")
    except checkout.NoCommit:
        if checkout.is_shallow():
            raise checkout.NoCommit(checkout.SHALLOW) from None
        raise checkout.NoCommit(
            f"There is no commit that {base} and HEAD share: BASE must be a branch or commit that "
            "git knows here, such as origin/main (git fetch origin)."
        ) from None
    if start == plan.commit:
        raise checkout.NoCommit(f"HEAD has no commit that {base} lacks: there is no change.")
    return plan, start


if __name__ == "__main__":
    end_as_by_interrupt()
    bench_pr()
