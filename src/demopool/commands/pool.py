"""``demopool pool``: descriptors of a whole dataset, in one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import click

from ..common.program import EXIT_WRONG
from ..common.units import readable
from ..datasets.pooling import PoolResult, Progress, images_of, pool_files
from ..datasets.settings import ZERO_ROWS
from ..problem.candidates import Candidate
from ..problem.vocabulary import DESCRIPTORS, LAYOUTS, NORMALIZATIONS, NUMPY_DTYPES, VECTORIZATIONS
from .output import console, emit, envelope, json_option, progress, size_in_bytes

SCHEMA = 1
LINE_SECONDS = 10.0
"""Between two lines of progress where there is no terminal."""


@click.command(name="pool", context_settings={"max_content_width": 80, "show_default": True})
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="A .npy or .zarr. Beside it: OUT.index.parquet (or .csv), which image each row is, and "
    "OUT.json, how it was made.",
)
@click.option(
    "--descriptor",
    type=click.Choice(DESCRIPTORS),
    metavar="NAME",
    default="democratic",
    help=f"{', '.join(DESCRIPTORS)}.",
)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    help="nchw or nhwc for conv maps; nd for arrays (images, n, d) or (n, d).  [default: nd, but "
    "arrays of four axes are never guessed at]",
    show_default=False,
)
@click.option("--dataset", metavar="NAME", help="Take only these arrays of files with several.")
@click.option("--gamma", type=float, default=0.5, help="0 equalises contributions, 1 is sum.")
@click.option("--tau", type=float, default=0.5, help="Damping of the Sinkhorn iteration.")
@click.option("--iterations", type=int, default=10, help="Of the Sinkhorn iteration.")
@click.option("--p", type=float, default=0.5, help="Exponent of power.")
@click.option("--k", type=int, default=8192, help="Length of a sketch.")
@click.option("--seed", type=int, default=0, help="Which hashes a sketch has.")
@click.option("--order", type=int, default=2, help="2, or 1 for first-order sum and democratic.")
@click.option("--normalize", type=click.Choice(NORMALIZATIONS), default="signed-sqrt-l2")
@click.option("--center", is_flag=True, help="Covariance instead of second moment.")
@click.option(
    "--vectorize", type=click.Choice(VECTORIZATIONS), default="full", help="upper: the triangle."
)
@click.option("--zero-rows", type=click.Choice(ZERO_ROWS), default="ignore", help="Of features.")
@click.option(
    "--dtype", type=click.Choice(NUMPY_DTYPES), help="Of the descriptors.  [default: as describe]"
)
@click.option("--backend", default="auto", help="Decided once per size.")
@click.option("--route", default="auto")
@click.option("--accuracy", default="fast", help="fast, accurate, or the largest error: 1e-5.")
@click.option(
    "--choose", is_flag=True, help="First measure what is fastest, 20 s, on some of the images."
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="Maximum in all: 500MB, 2GB.  [default: a quarter of what is free]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Work in so many processes, which share cores and --memory.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on this Dask cluster (tcp://...); --memory is then of each worker.",
)
@click.option("--keep-going", is_flag=True, help="Leave out what fails; its rows are NaN.")
@click.option("--fresh", is_flag=True, help="Overwrite OUT, and begin again.")
@json_option
def pool_command(
    inputs: tuple[str, ...],
    output: Path,
    descriptor: str,
    memory: str | None,
    accuracy: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Descriptors of all images of feature files, one row each, in the order of IN.

    IN are files, folders and globs: .npy, .npz, .h5, .safetensors, .zarr (v3), .pt. Nothing is ever
    unpickled. The number of features may differ from image to image.

    The same command goes on where it was interrupted, by kill -9, a full disk or a bad image:
    nothing finished is done again, and OUT is the same, bit by bit. With other settings or changed
    files it says so, and only --fresh overwrites.

    \b
    demopool pool maps/ -o descriptors.npy --layout nchw
    demopool pool 'shards/*.h5' -o out.zarr --descriptor sketched-democratic
    demopool pool a.npy b.npz -o out.npy --descriptor power --memory 2GB
    demopool pool maps/ -o out.zarr --layout nchw --jobs 2
    """
    with _progress() as report:
        result = pool_files(
            inputs,
            output,
            descriptor,
            memory=None if memory is None else size_in_bytes("--memory", memory),
            accuracy=_number_or_word(accuracy),
            progress=report,
            **given,
        )
    if as_json:
        emit(envelope(SCHEMA, result.as_result()))
    else:
        _show(result)
    return EXIT_WRONG if result.failed or result.skipped else 0


def _number_or_word(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _show(result: PoolResult) -> None:
    screen = console()
    for reason in result.skipped.values():
        screen.print(f"left out: {reason}", soft_wrap=True)
    screen.print(result.sentence, soft_wrap=True)
    taken: dict[str, int] = {}
    for one in result.decisions:
        candidate = str(Candidate(one.backend, one.route))
        taken[candidate] = taken.get(candidate, 0) + one.images
    by = ", ".join(f"{name} ({images_of(count)})" for name, count in taken.items())
    screen.print(f"{result.length} values each, {result.dtype}, by {by}.", soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Progress]:
    """On standard error: a bar, gone at the end; without a terminal a line every ten seconds."""
    with progress("pool", LINE_SECONDS) as bar:
        begun: list[tuple[float, int]] = []

        def report(done: int, total: int, what: str) -> None:
            now = monotonic()
            if not what and not begun:
                begun.append((now, done))
            text = what or _pace(done, total, now - begun[0][0], done - begun[0][1])
            bar(done, total, text)

        yield report


def _pace(done: int, total: int, seconds: float, new: int) -> str:
    if not new or seconds <= 0:
        return "starting"
    left = readable(seconds * (total - done) / new, "time")
    return f"{new / seconds:.3g} images/s, {left} left"
