"""``demopool backends``: what can run here."""

from __future__ import annotations

from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from ..common.files import write_text
from ..contract import registry
from ..contract.listing import backends as list_backends
from ..contract.support_matrix import insert_matrix, markdown_matrix
from ..errors import InvalidInput
from .output import console, emit, envelope, json_option

SCHEMA = 1


@click.command()
@json_option
@click.option(
    "--matrix", is_flag=True, help="Show the support matrix instead, as Markdown, with plug-ins."
)
@click.option(
    "--write",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Insert that of demopool's own backends into this file, between its two marker lines.",
)
def backends(as_json: bool, matrix: bool, file: Path | None) -> None:
    """List all backends: usable here or why not, and how to install what is missing.

    This is cheap: no library is imported and no GPU is used.
    """
    if file is not None:
        if not matrix:
            raise InvalidInput("--write goes with --matrix.")
        write_text(file, insert_matrix(_read(file), markdown_matrix()))
    elif matrix:
        emit(markdown_matrix(registry.names()))
    elif as_json:
        emit(envelope(SCHEMA, {"backends": list_backends()}))
    else:
        _show()


def _show() -> None:
    table = Table(box=SIMPLE, show_edge=False)  # so that `head -1` shows the heading
    for heading in ("backend", "state", "device, or why not"):
        table.add_column(heading, no_wrap=heading == "backend")
    for row in list_backends():
        versions = [f"{name} {version}" for name, version in row["versions"].items()]
        details = ", ".join([row["device"] or row["reason"] or "", *versions])
        if row["install"]:
            details += f"\n{row['install']}"
        table.add_row(row["backend"], row["state"], details)
    console().print(table)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(f"{file} cannot be read: {problem.strerror}.") from None
