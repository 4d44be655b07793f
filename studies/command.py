"""What every study does with its images: extract their features, then ``demopool paper``."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from demopool.commands.output import progress
from demopool.errors import DemopoolError

from .extracting import Picture, extract, write_labels
from .vgg16 import PRECISIONS, Weights

CACHE = Path("build/study")


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those that all studies have."""
    for option in (
        click.option(
            "--sample",
            type=click.IntRange(1),
            default=50,
            help="Images in the figures, drawn at random; the paper draws 50.",
        ),
        click.option(
            "--seed", type=click.IntRange(0), default=0, help="Of all that is drawn at random."
        ),
        click.option(
            "--precision",
            type=click.Choice(tuple(PRECISIONS)),
            default="float32",
            help="Of the convolutions. bfloat16 is many times faster on a processor with AMX.",
        ),
        click.option(
            "--cache",
            type=click.Path(path_type=Path, file_okay=False),
            default=CACHE,
            help="Folder of downloads and features (0.8 MB an image).",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("build/study/found"),
            help="Folder of the page and its figures.",
        ),
    ):
        command = option(command)
    return command


def run(
    name: str,
    pictures: Sequence[Picture],
    weights: Weights,
    *,
    cache: Path,
    output: Path,
    precision: str,
    seed: int,
    sample: int,
) -> None:
    """Features under the cache, then the page."""
    folder = cache / f"{name}-{precision}"
    with progress(name) as report:
        extract(pictures, folder, weights, report, precision=precision)
    labels = write_labels(pictures, folder)
    arguments = ["paper", str(folder), "--layout", "nchw", "--labels", str(labels)]
    arguments += ["--sample", str(sample), "--seed", str(seed), "-o", str(output)]
    click.echo(f"demopool {shlex.join(arguments)}", err=True)
    done = subprocess.run([sys.executable, "-m", "demopool", *arguments])
    if done.returncode:
        sys.exit(done.returncode)


def start(study: click.Command) -> None:
    """Run it; whatever is expected to go wrong is one sentence."""
    try:
        study.main(standalone_mode=False)
    except click.ClickException as problem:
        sys.exit(f"demopool: {problem.format_message()}")
    except DemopoolError as problem:
        sys.exit(f"demopool: {problem}")
    except (click.Abort, KeyboardInterrupt):
        sys.exit("demopool: interrupted; the same command goes on from here")
