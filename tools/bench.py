"""``make bench``: a profile of the suite on the current commit, with progress, then a table.

asv does the work, slice by slice (profiles.py); a slice whose results are on disk is not run again,
so what an interrupted run had finished is kept. Results lie where plain ``asv run`` puts them.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
from asv.config import Config
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import demopool
from benchmarks.harness import ROOT, vocabulary
from benchmarks.notes import TICKS_VARIABLE
from benchmarks.profiles import Slice, slices
from demopool import results
from demopool.common.files import write_text
from demopool.machine import fingerprint, system

from .summary import show, show_absent

FAILED = 2
"""asv's exit code when a benchmark failed; its results are kept all the same."""

LASTING = ("unavailable", "unsupported", "timeout")
"""A failure is tried again, and what did not fit into the memory that was free then."""
PATIENCE = 10.0
"""Seconds for asv to end its processes when it is interrupted."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--profile",
    type=click.Choice(["fast", "regular", "full"]),
    default="fast",
    show_default=True,
    help="fast: minutes; regular: all cases; full: everything, hours with several backends.",
)
@click.option("--threads", type=click.IntRange(1), help="Another number than asv.conf.json has.")
@click.option("--fresh", is_flag=True, help="Measure again what is measured already.")
@click.option("--show", "only_show", is_flag=True, help="Print the asv commands instead.")
def bench(profile: str, threads: int | None, fresh: bool, only_show: bool) -> None:
    """Measure the current commit with asv on every usable backend, and print a table.

    Interrupt it as you like: the next run goes on where it stopped.
    """
    errors = Console(stderr=True, highlight=False, markup=False)
    plan = planned(config_with(threads=threads), slices(profile, usable_backends()))
    commands = [plan.command(part, "--attribute", "rounds=1") for part in plan.parts]
    if only_show:
        for command in commands:
            click.echo(subprocess.list2cmdline(["asv", *command[3:]]))
        return
    finished = set() if fresh else plan.finished()
    todo = [
        (part, command)
        for part, command in zip(plan.parts, commands, strict=True)
        if not part.cells <= finished
    ]
    if len(todo) < len(plan.parts):
        errors.print(
            f"{len(plan.parts) - len(todo)} of {len(plan.parts)} parts are measured already "
            "(make bench FRESH=1 measures them again)."
        )
    if todo:
        _warn(errors)
    with _alone(plan.folder):
        run(todo, errors)
    frame = plan.results()
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

    def command(self, part: Slice, *extra: str) -> list[str]:
        patterns = [argument for pattern in part.patterns for argument in ("--bench", pattern)]
        where = ["--config", self.config.name, "--machine", self.folder.name]
        return [sys.executable, "-m", "asv", "run", *where, *extra, *patterns, "HEAD^!"]

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


def planned(config: Path, parts: list[Slice]) -> Plan:
    os.chdir(ROOT)
    settings = Config.load(str(config))
    machine = machine_name()
    _asv(["machine", "--yes", "--config", config.name, "--machine", machine])
    threads = int(settings.matrix["env_nobuild"]["OPENBLAS_NUM_THREADS"][0])
    folder = Path(settings.results_dir, machine)
    return Plan(config, folder, threads, _git("rev-parse", "HEAD"), parts)


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
    return row["backend"] in vocabulary.TIMED_BACKENDS


def machine_name() -> str:
    """``<host>-<gpu>``: two GPUs on one host are two machines to asv."""
    gpus = fingerprint.machine().get("gpu") or []
    return re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join([platform.node(), *gpus[:1]])).lower()


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


def run(todo: list[tuple[Slice, list[str]]], errors: Console) -> None:
    """Slice after slice."""
    bar = Progress(
        TextColumn("measuring"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=float(sum(len(part.cells) for part, _ in todo)))
        done = 0
        for number, (part, command) in enumerate(todo):
            size = len(part.cells)
            bar.update(task, completed=done, description=part.title)
            if not errors.is_terminal:
                errors.print(f"[{number + 1}/{len(todo)}] {part.title}: {size} measurements")

            def progress(count: int, what: str, done: int = done, size: int = size) -> None:
                bar.update(task, completed=done + min(count, size), description=what)

            try:
                code, output = _follow(command, progress)
            except KeyboardInterrupt:
                bar.stop()
                raise click.ClickException(
                    f"interrupted; {number} of {len(todo)} parts are finished and kept, "
                    "the next run goes on from there"
                ) from None
            if code not in (0, FAILED):
                bar.stop()
                raise click.ClickException(f"asv failed with code {code}:\n{output[-3000:]}")
            if code == FAILED:
                errors.print(f"{part.title}: something failed; the reasons come at the end")
            done += size


def _follow(command: list[str], progress: Callable[[int, str], None]) -> tuple[int, str]:
    """Run asv and show how far it is; it has a session of its own, to be killed whole.

    asv is silent while it measures, so every measurement adds a line to a file (notes.py).
    """
    with TemporaryDirectory() as folder:
        output, ticks = Path(folder, "output"), Path(folder, "ticks")
        ticks.touch()
        with output.open("w") as file:
            asv = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, TICKS_VARIABLE: str(ticks)},
                start_new_session=True,
            )
        try:
            while asv.poll() is None:
                done = ticks.read_text().splitlines()
                progress(len(done), done[-1] if done else "preparing")
                time.sleep(0.1)
        finally:
            if asv.poll() is None:
                _stop(asv)
        return asv.returncode, output.read_text()


def _stop(asv: subprocess.Popen[str]) -> None:
    """As Ctrl-C would: asv then ends its fork server and what that has started."""
    asv.send_signal(signal.SIGINT)
    try:
        asv.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(asv.pid, signal.SIGKILL)
        asv.wait()


def _asv(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "asv", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise click.ClickException(f"asv {arguments[0]} failed:\n{done.stdout[-3000:]}")


def _warn(errors: Console) -> None:
    """What makes the figures less than they seem."""
    if _git("status", "--porcelain", "--", "src", "implementations", "reference"):
        errors.print("Uncommitted changes are not measured: asv installs the commit.")
    for sentence in fingerprint.warnings(fingerprint.fingerprint(), system.busy_share()):
        errors.print(f"Warning: {sentence}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """asv rewrites a result file whole: of two runs at once one would lose its results."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise click.ClickException(
                f"another make bench is writing to {folder}; wait for it to end"
            ) from None
        yield


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise click.ClickException(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    # A closed terminal or a kill ends asv as Ctrl-C does.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    bench()
