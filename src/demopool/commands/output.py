"""Output of all commands: the JSON envelope, the console, progress and files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf, nan
from pathlib import Path
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from ..common.files import write_text
from ..common.program import __version__
from ..errors import InvalidInput
from ..machine.fingerprint import machine

LINE_SECONDS = 5.0
"""Between two lines about what is being done, where there is no terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one strict JSON object.")


def envelope(schema: int, payload: dict[str, Any]) -> str:
    """One strict JSON object: schema, version and machine first, then the payload; never NaN."""
    everything = {"schema": schema, "demopool": __version__, "machine": machine(), **payload}
    return json.dumps(everything, indent=2, allow_nan=False)


def check_writable(output: Path | None) -> None:
    """Reject a file in a missing folder before the work instead of after it."""
    if output is not None and not output.resolve().parent.is_dir():
        raise InvalidInput(f"{output} cannot be written: there is no such folder.")


def size_in_bytes(option: str, text: str) -> float:
    """Of an option such as ``--memory 2GB``."""
    units = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "b": 1.0, "": 1.0}
    number = text.strip().rstrip("kKmMgGbB ")
    unit = text.strip()[len(number) :].strip().lower()
    try:
        found = float(number) * units[unit]
    except (ValueError, KeyError):
        found = nan
    if not 0 < found < inf:
        raise InvalidInput(f"{option} must be like 500MB or 2GB; got {text!r}.")
    return found


def emit(text: str, output: Path | None = None) -> None:
    """Write text to standard output, or atomically to a file."""
    if output is None:
        click.echo(text)
    else:
        write_text(output, text + "\n")


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters such as ESC, except tab and new line
    "\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # line separators and changes of text direction
)


def printable(text: str) -> str:
    """Replace what would control a terminal: escapes, other controls, changes of direction.

    Names of files, and names in results files, may contain them and may be untrusted.
    """
    return _UNPRINTABLE.sub("?", text)


class _Screen(Console):
    """A console that makes all its output printable."""

    def on_broken_pipe(self) -> None:
        """Raise it, where Rich would end the program with an error."""
        raise BrokenPipeError

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """A console on standard output or error; Rich omits colours where there is no terminal.

    Markup is off, because pip's extras and error messages contain square brackets.
    """
    return _Screen(stderr=stderr, highlight=False, markup=False)


def tell(line: str) -> None:
    """Write a line about progress to standard error, whole; none where that is full or closed."""
    with suppress(OSError):
        console(stderr=True).print(line, soft_wrap=True)


@contextmanager
def progress(
    title: str, line_seconds: float | None = None
) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on standard error, removed at the end; without a terminal a line every few seconds."""
    every = LINE_SECONDS if line_seconds is None else line_seconds
    errors = console(stderr=True)
    last = time.monotonic()
    bar = Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=None)

        def report(done: int, total: int, what: str) -> None:
            nonlocal last
            bar.update(task, completed=done, total=total, description=what)
            if bar.disable and time.monotonic() - last >= every:
                last = time.monotonic()
                tell(f"{title}: {done} of {total}, {what}")

        yield report
