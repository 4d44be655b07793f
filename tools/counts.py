"""Counts that are kept in a file: the command that prints or writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def command(counted: Callable[[], dict[str, Any]], file: Path) -> click.Command:
    """A command for one file."""

    @click.command()
    @click.option("--write", is_flag=True, help="Replace the file.")
    def main(write: bool) -> None:
        """Print the counts, or write them."""
        text = json.dumps(counted(), indent=1, sort_keys=True) + "\n"
        if write:
            file.write_text(text)
        else:
            click.echo(text, nl=False)

    return main
