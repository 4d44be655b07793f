"""asv as a process: one at a time for a folder of results, followed, and ended whole."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from benchmarks.notes import TICKS_VARIABLE
from benchmarks.profiles import Slice
from demopool.commands.output import progress, tell
from demopool.common import guard

FAILED = 2
"""asv's exit code when a benchmark failed; its results are kept all the same."""
PATIENCE = 10.0
"""Seconds for asv to end its processes when it is interrupted."""
LINE_SECONDS = 20.0
"""Between two lines about progress, where there is no terminal: a run may take hours."""
PREFIX = "demopool-bench-"
"""Of the folders of temporary files."""


class Lock:
    """The right to write to a folder of results; asv inherits it and keeps it while it lives."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def remember(self, folder: Path) -> None:
        """Where temporary files are, so that the next run can remove what kill -9 has left."""
        self._write(str(folder))

    def forget(self) -> None:
        """Remove the folder that is remembered, if there is one."""
        self._file.seek(0)
        left = Path(self._file.read())
        # The file could be anybody's: only a folder of the kind that is made here is removed.
        if left.parent == Path(tempfile.gettempdir()) and left.name.startswith(PREFIX):
            shutil.rmtree(left, ignore_errors=True)
        self._write("")

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


@contextmanager
def alone(folder: Path) -> Iterator[Lock]:
    """asv rewrites a result file whole: of two runs at once one would lose its results."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise click.ClickException(
                f"another make bench is writing to {folder}; wait for it to end"
            ) from None
        lock = Lock(file)
        lock.forget()
        yield lock


class Interrupted(click.ClickException):
    """One sentence on what is kept."""


def run(todo: list[tuple[Slice, list[str]]], lock: Lock | None = None, times: int = 1) -> None:
    """Slice after slice; ``times`` is how often a command measures each cell."""
    total = sum(times * len(part.cells) for part, _ in todo)
    failed = []
    with progress("measuring", LINE_SECONDS) as report:
        done = 0
        for number, (part, command) in enumerate(todo):

            def tick(count: int, what: str, done: int = done, part: Slice = part) -> None:
                most = times * len(part.cells)
                report(done + min(count, most), total, f"{part.title}: {what}")

            try:
                code, output = follow(command, tick, lock)
            except KeyboardInterrupt:
                raise Interrupted(
                    f"interrupted; {number} of {len(todo)} parts are finished and kept, "
                    "the next run goes on from there"
                ) from None
            # asv has the code of a failed benchmark for a command line that it does not know, too.
            if code not in (0, FAILED) or output.startswith("usage:"):
                raise click.ClickException(f"asv failed with code {code}:\n{output[-3000:]}")
            if code == FAILED:
                failed.append(part.title)
            done += times * len(part.cells)
    for title in failed:
        tell(f"{title}: something failed; the reasons come at the end")


def follow(
    command: list[str], report: Callable[[int, str], None], lock: Lock | None = None
) -> tuple[int, str]:
    """Run asv under its guard and show how far it is: its exit code and output.

    asv is silent while it measures, so every measurement adds a line to a file (notes.py).
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    inherited: tuple[int, ...] = ()
    if lock is not None:
        lock.remember(folder)
        inherited = (lock.descriptor,)
    ticks = folder / "ticks"
    ticks.touch()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        # A session of its own: Ctrl-C reaches asv by its guard, and only once.
        process = subprocess.Popen(
            [sys.executable, guard.__file__, str(folder), str(PATIENCE), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, TICKS_VARIABLE: str(ticks)},
            pass_fds=inherited,
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            while process.poll() is None:
                done = _lines(ticks)
                report(len(done), done[-1] if done else "preparing")
                time.sleep(0.1)
        finally:
            process.stdin.close()
            process.wait()
        if lock is not None:
            lock.forget()
        output.seek(0)
        return process.returncode, output.read()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:  # the guard has just removed it
        return []
