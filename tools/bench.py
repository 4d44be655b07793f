"""``make bench``: a profile of the suite on the current commit, with progress, then a table.

asv does the work, slice by slice (profiles.py); a slice whose results are on disk is not run again,
so what an interrupted run had finished is kept. Results lie where plain ``asv run`` puts them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
from asv.config import Config
from rich.console import Console

import demopool
from benchmarks import checkout, plugins
from benchmarks.harness import ROOT, vocabulary
from benchmarks.machine_name import machine_name
from benchmarks.profiles import PROFILES, Slice, slices
from demopool import results
from demopool.common.files import write_text
from demopool.machine import fingerprint, system

from . import estimate
from .asv_process import alone, run
from .cells import Cell, in_a_shell
from .summary import show, show_absent

LASTING = ("unavailable", "unsupported", "timeout")
"""A failure is tried again, and what did not fit into the memory that was free then."""

NEW = "NEW"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--profile",
    type=click.Choice([name for name in PROFILES if name != "smallest"]),
    default="fast",
    show_default=True,
    help="fast: minutes; the others: hours (--show estimates how many).",
)
@click.option("--threads", type=click.IntRange(1), help="Another number than asv.conf.json has.")
@click.option(
    "--commits",
    metavar="RANGE",
    help=f"Those of a git range, oldest first; {NEW}: from the last measured one on.",
)
@click.option("--machine", metavar="NAME", help="Another name than <host>-<gpu>.")
@click.option("--fresh", is_flag=True, help="Measure again what is measured already.")
@click.option("--show", "only_show", is_flag=True, help="Print asv's commands and an estimate.")
def bench(
    profile: str,
    threads: int | None,
    commits: str | None,
    machine: str | None,
    fresh: bool,
    only_show: bool,
) -> None:
    """Measure the current commit with asv on every usable backend, and print a table.

    Interrupt it as you like: the next run goes on where it stopped.

    \b
    python -m tools.bench --show                     how long, and which asv commands
    python -m tools.bench --profile regular
    python -m tools.bench --commits HEAD~5..HEAD     every commit of a range
    python -m tools.bench --commits NEW              every night
    """
    errors = Console(stderr=True, highlight=False, markup=False)
    plan = planned(config_with(threads=threads), slices(profile, usable_backends()), machine)
    if commits is None:
        plans = [plan]
    else:
        plans = [plan._replace(commit=commit) for commit in chosen(commits, plan)]
    if only_show:
        show_commands(plan, profile, commits, plans)
        return
    todo = [work for each in plans for work in each.todo(fresh)]
    total = sum(len(each.parts) for each in plans)
    if len(todo) < total:
        errors.print(
            f"{total - len(todo)} of {total} parts are measured already "
            "(make bench FRESH=1 measures them again)."
        )
    if todo:
        warn(errors)
        seconds = sum(estimate.seconds(part.cells) for part, _ in todo)
        errors.print(f"{len(todo)} parts, {estimate.sentence(seconds)} by the cost model.")
    with alone(plan.folder) as lock:
        run(todo, lock)
    frame = plans[-1].results()
    screen = table_console()
    show(frame, screen)
    if profile == "fast":
        screen.print(
            "The fast profile leaves out the slow routes at d = 2048 and the other cases: "
            "make bench PROFILE=regular has them."
        )
    show_absent(demopool.backends(), screen)
    click.echo(f"Results: {plan.folder}. Over commits: demopool history")
    sys.exit(1 if (frame["state"] == "failed").any() else 0)


class Plan(NamedTuple):
    """What is run, on which commit, and where its results go."""

    config: Path
    folder: Path
    threads: int
    commit: str
    parts: list[Slice]

    def command(self, part: Slice, *extra: str, commits: str | None = None) -> list[str]:
        patterns = [argument for pattern in part.patterns for argument in ("--bench", pattern)]
        where = ["--config", self.config.name, "--machine", self.folder.name]
        commits = commits or f"{self.commit}^!"
        return [sys.executable, "-m", "asv", "run", *where, *extra, *patterns, commits]

    def todo(self, fresh: bool = False) -> list[tuple[Slice, list[str]]]:
        """The parts that are not finished, each with its command."""
        finished = set() if fresh else self.finished()
        missing = [part for part in self.parts if not part.cells <= finished]
        return [(part, self.command(part, "--attribute", "rounds=1")) for part in missing]

    def results(self) -> Any:
        """The rows of this commit with this number of threads."""
        frame = results.read(self.folder)
        return frame[(frame["commit"] == self.commit) & (frame["threads"] == self.threads)]

    def finished(self) -> set[tuple[str, str, str]]:
        """The cells that have a value, or a reason for having none that will hold."""
        if not self.folder.exists():
            return set()
        frame = self.results()
        lasting = (frame["state"] == "skipped") & frame["candidate_state"].isin(LASTING)
        frame = frame[(frame["state"] == "ok") | lasting]
        return set(zip(frame["benchmark"], frame["candidate"], frame["case"], strict=True))


def planned(config: Path, parts: list[Slice], machine: str | None = None) -> Plan:
    """The parts, on the commit that is checked out; nothing is written."""
    os.chdir(ROOT)
    settings = Config.load(str(config))
    threads = int(settings.matrix["env_nobuild"]["OPENBLAS_NUM_THREADS"][0])
    folder = Path(settings.results_dir, machine or machine_name())
    return Plan(config, folder, threads, _head(), parts)


def chosen(commits: str, plan: Plan) -> list[str]:
    """The commits of a git range, or from the last that was measured on; oldest first.

    The last one is among them: its measurement may have been interrupted.
    """
    if checkout.is_shallow():
        raise click.ClickException(checkout.SHALLOW)
    try:
        if commits != NEW:
            found = checkout.git("rev-list", "--reverse", commits, "--").split()
        else:
            measured = {file.name[:8] for file in plan.folder.glob("*-*.json")}
            line = checkout.git("rev-list", "--first-parent", "HEAD").split()
            last = next((n for n, c in enumerate(line) if c[:8] in measured), 0)
            found = line[last::-1]
    except checkout.NoCommit as problem:
        raise click.ClickException(str(problem)) from None
    if not found:
        raise click.ClickException(f"there is no commit in {commits}")
    return found


def show_commands(plan: Plan, profile: str, commits: str | None, plans: list[Plan]) -> None:
    """To be read, and to be pasted into a shell."""
    total = 0.0
    which = f"{plans[0].commit[:8]}^..HEAD" if commits == NEW else commits or "HEAD^!"
    for part in plan.parts:
        seconds = estimate.seconds(part.cells)
        total += seconds
        click.echo(f"# {part.title}: {len(part.cells)} cells, {estimate.sentence(seconds)}")
        options = [] if plan.config.name == "asv.conf.json" else ["--config", plan.config.name]
        if plan.folder.name != machine_name():
            options += ["--machine", plan.folder.name]
        lines = [shlex.join(["asv", "run", *options, "--attribute", "rounds=1"])]
        names = [Cell(*cell).name for cell in part.cells]
        useful = [p for p in part.patterns if any(re.search(p, name) for name in names)]
        lines += [f"  --bench {in_a_shell(pattern)}" for pattern in useful]
        click.echo(" \\\n".join([*lines, f"  {shlex.quote(which)}"]) + "\n")
    count = sum(len(part.cells) for part in plan.parts)
    click.echo(
        f"# {profile}: {len(plan.parts)} commands, {count} cells on machine {plan.folder.name}, "
        f"{estimate.sentence(total)} for a commit (an estimate by the cost model)"
    )
    if len(plans) > 1:
        click.echo(f"# {len(plans)} commits: {estimate.sentence(len(plans) * total)}")


def table_console() -> Console:
    """Where the output is no terminal there is no width to keep to."""
    plain = Console(highlight=False, markup=False)
    wide = not plain.is_terminal and "COLUMNS" not in os.environ
    return Console(highlight=False, markup=False, width=120) if wide else plain


def usable_backends() -> tuple[str, ...]:
    """Those that have times of their own and can run here."""
    return tuple(
        row["backend"] for row in demopool.backends() if row["state"] == "ok" and _is_timed(row)
    )


def _is_timed(row: dict[str, Any]) -> bool:
    return row["backend"] in (*vocabulary.TIMED_BACKENDS, *plugins.listed())


def config_with(*, threads: int | None = None, folder: str | None = None) -> Path:
    """asv's configuration; with anything changed a copy beside it, where asv needs it."""
    original = ROOT / "asv.conf.json"
    text = original.read_text()
    name = "asv"
    if threads is not None:
        text = re.sub(r'(_NUM_THREADS": \[")\d+', rf"\g<1>{threads}", text)
        name += f".{threads}-threads"
    if folder is not None:
        text = re.sub(r'("results_dir": ")[^"]*', rf"\g<1>.asv/{folder}", text)
        name += f".{folder}"
    copy = ROOT / f"{name}.conf.json"
    if copy != original:
        write_text(copy, text)
    return copy


def warn(errors: Console) -> None:
    """What makes the figures less than they seem."""
    found = fingerprint.warnings(fingerprint.fingerprint(), system.busy_share())
    for sentence in [*checkout.warnings(), *found]:
        errors.print(f"Warning: {sentence}")


def _head() -> str:
    try:
        return checkout.head()
    except checkout.NoCommit as problem:
        raise click.ClickException(str(problem)) from None


def end_as_by_interrupt() -> None:
    """A closed terminal or a kill ends asv as Ctrl-C does."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    end_as_by_interrupt()
    bench()
