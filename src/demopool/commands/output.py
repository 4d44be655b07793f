"""What all commands share: the JSON envelope, the console, progress and files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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

json_option = click.option("--json", "as_json", is_flag=True, help="One strict JSON object.")


def envelope(schema: int, payload: dict[str, Any]) -> str:
    """One strict JSON object: schema, version and machine first, then the payload; never NaN."""
    everything = {"schema": schema, "demopool": __version__, "machine": machine(), **payload}
    return json.dumps(everything, indent=2, allow_nan=False)


def check_writable(output: Path | None) -> None:
    """Before the work, not after it."""
    if output is not None and not output.resolve().parent.is_dir():
        raise InvalidInput(f"{output} cannot be written: there is no such folder.")


def emit(text: str, output: Path | None = None) -> None:
    """To standard output, or whole into a file."""
    if output is None:
        click.echo(text)
    else:
        write_text(output, text + "\n")


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls but for tab and new line; ESC is one
    "\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # lines and directions of text
)


def printable(text: str) -> str:
    """Without what would command a terminal: escapes, other controls, changes of direction.

    Names in files of results and names of files may hold them, and may be a stranger's.
    """
    return _UNPRINTABLE.sub("?", text)


class _Screen(Console):
    """All that is shown leaves through here, so nothing unprintable does."""

    def on_broken_pipe(self) -> None:
        """Rich would end the program with an error."""
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
    """Standard output; rich leaves out colour and drawing where they cannot be shown.

    No markup: square brackets are part of pip's extras and of error messages.
    """
    return _Screen(stderr=stderr, highlight=False, markup=False)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on standard error, gone when done; nothing where there is no terminal."""
    errors = console(stderr=True)
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
            bar.update(task, completed=done, total=total, description=what)

        yield report
