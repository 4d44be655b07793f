"""``demopool choose``: which candidate should run here, for these sizes?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import inf, nan
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from demopool import crossover, pictures
from demopool.answers import Choice, Row
from demopool.cases import NAMED, Case, named
from demopool.choosing import BUDGET, choose
from demopool.errors import InvalidInput
from demopool.measurement.fingerprint import usual_threads
from demopool.racing import Report, Workers
from demopool.units import readable
from demopool.vocabulary import DESCRIPTORS, State

from .output import check_writable, console, emit, envelope, json_option

SCHEMA = 1
DEFAULT_CASE = "vgg-b8"
SWEEP_BUDGET = 10.0


@click.command(name="choose")
@click.option(
    "--descriptor",
    type=click.Choice([*DESCRIPTORS, "all"]),
    metavar="NAME",
    default="democratic",
    show_default=True,
    help=f"What is to be computed: {', '.join(DESCRIPTORS)}, all.",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    type=click.Choice(list(NAMED)),
    metavar="NAME",
    help=f"Sizes by name, can be repeated: {', '.join(NAMED)}.  [default: {DEFAULT_CASE}]",
)
@click.option("--batch", type=click.IntRange(1), help="Images.  [default: 1 with --n or --d]")
@click.option("--n", type=click.IntRange(1), help="Features per image.  [default: 784]")
@click.option("--d", type=click.IntRange(1), help="Length of a feature.  [default: 512]")
@click.option("--k", type=click.IntRange(1), help="Length of a sketch.  [default: 8192]")
@click.option(
    "--like",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE.npy",
    help="Sizes and dtype of these features, (images, n, d) or (n, d).",
)
@click.option(
    "--dtype", type=click.Choice(["float16", "float32", "float64"]), help="[default: float32]"
)
@click.option(
    "--data",
    type=click.Choice(["host", "device"]),
    default="host",
    show_default=True,
    help="Where features start and descriptors end: host counts a GPU's transfers.",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, 1e6, min_open=True),
    metavar="SECONDS",
    help="For the race of one case; it ends as soon as there is an answer.  [default: 60]",
)
@click.option("--max-memory", metavar="SIZE", help="A call may need so much: 500MB, 2GB.")
@click.option(
    "--backends", metavar="NAME,...", help="Only these: numpy:cpu,torch:cpu.  [default: all]"
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="Of every library.  [default: OMP_NUM_THREADS if set, else all cores]",
)
@click.option(
    "--sweep",
    nargs=2,
    metavar="n=... d=...",
    help="A map over sizes: --sweep n=49,196,784 d=64,512.  [its budget: 10 s a cell]",
)
@click.option(
    "--png",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the map of a sweep into this file.",
)
@click.option("--fresh", is_flag=True, help="Measure again what was measured before.")
@click.option(
    "--save/--no-save", default=True, show_default=True, help='Keep it for backend="auto".'
)
@json_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the JSON into this file instead.",
)
def choose_command(
    descriptor: str,
    cases: tuple[str, ...],
    like: Path | None,
    dtype: str | None,
    data: str,
    budget: float | None,
    max_memory: str | None,
    backends: str | None,
    threads: int | None,
    sweep: tuple[str, str] | None,
    png: Path | None,
    fresh: bool,
    save: bool,
    as_json: bool,
    output: Path | None,
    **sizes: int | None,
) -> int:
    """Measure the candidates for a job and say which one to use.

    A candidate is a backend and a route. Each is checked against the reference first; those that
    are right take turns, each backend in a process of its own, until one is at least 3 % faster
    than all others, or the rest is within 5 % of the best (a tie: then less memory, then fewer
    dependencies decide), or the budget is spent (unknown). Ctrl-C gives the best answer so far;
    what was measured is kept, and the next call goes on from there.

    \b
    demopool choose                    democratic pooling of 8 VGG-16 images
    demopool choose --descriptor sketched-democratic --n 196 --d 2048 --batch 8
    demopool choose --like features.npy --budget 120
    demopool choose --descriptor all --json
    demopool choose --sweep n=49,196,784 d=64,256,1024 --png map.png
    """
    check_writable(output)
    check_writable(png)
    if png and not sweep:
        raise click.UsageError("--png draws the map of a --sweep; give one.")
    wanted = list(_cases(descriptor, cases, like, dtype, data, sizes))
    if sweep:
        ns, ds = crossover.parse(sweep)
        if cases or like or len(wanted) > 1 or sizes["n"] or sizes["d"]:
            raise click.UsageError("--sweep takes one descriptor, and its sizes from n= and d=.")
        base = replace(wanted[0], batch=sizes["batch"] or 1)
        wanted = [replace(base, n=n, d=d) for n in ns for d in ds]
    budget = budget or (SWEEP_BUDGET if sweep else BUDGET)
    most = None if max_memory is None else _bytes(max_memory)
    names = tuple(name.strip() for name in backends.split(",")) if backends else ()
    screen = console()
    choices: list[Choice] = []
    with Workers(threads or usual_threads()) as workers:
        for number, case in enumerate(wanted, start=1):
            title = f"{number}/{len(wanted)} n={case.n} d={case.d}" if sweep else case.descriptor
            with _progress(title, budget) as report:
                found = choose(
                    case,
                    backends=names,
                    budget=budget,
                    max_memory=most,
                    fresh=fresh,
                    save=save,
                    report=report,
                    workers=workers,
                )
            choices.append(found)
            if not (as_json or output or sweep):
                show(found, screen)
            if found.interrupted:
                break
    cells = [crossover.cell(choice) for choice in choices] if sweep else []
    if png:
        pictures.save(crossover.draw(cells, f"{descriptor}: fastest by n and d"), png)
    if as_json or output:
        payload: dict[str, Any] = {"results": [choice.as_result() for choice in choices]}
        if sweep:
            payload["map"] = [asdict(cell) for cell in cells]
        emit(envelope(SCHEMA, payload), output)
    elif sweep:
        _show_map(cells, screen)
    failed = any(row.state is State.WRONG for choice in choices for row in choice.rows)
    return 1 if failed or any(choice.backend is None for choice in choices) else 0


def _cases(
    descriptor: str,
    names: tuple[str, ...],
    like: Path | None,
    dtype: str | None,
    data: str,
    sizes: dict[str, int | None],
) -> Iterator[Case]:
    given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    if (names and (like or given.keys() - {"k"})) or (like and given.keys() - {"k"}):
        raise click.UsageError("give --case, or --like, or --batch, --n and --d; not several.")
    changes: dict[str, Any] = {"data": data}
    if dtype:
        changes["dtype"] = dtype
    for what in DESCRIPTORS if descriptor == "all" else (descriptor,):
        changes["descriptor"] = what
        if like:
            yield replace(_like(like), **changes, **given)
        elif given.keys() - {"k"}:
            yield Case(**changes, **given)
        else:
            for name in names or (DEFAULT_CASE,):
                yield replace(named(name), **changes, **given)


def _like(path: Path) -> Case:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise InvalidInput(f"{path} cannot be read as a .npy file: {problem}.") from None
    if not isinstance(array, np.ndarray) or array.ndim not in (2, 3):
        raise InvalidInput(f"{path} must hold one array (images, n, d) or (n, d).")
    if 0 in array.shape:
        raise InvalidInput(f"{path} is empty: its shape is {array.shape}.")
    *batch, n, d = array.shape
    return Case(batch=batch[0] if batch else 1, n=n, d=d, dtype=array.dtype.name)


def _bytes(text: str) -> float:
    units = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "b": 1.0, "": 1.0}
    number = text.strip().rstrip("kKmMgGbB ")
    unit = text.strip()[len(number) :].strip().lower()
    try:
        found = float(number) * units[unit]
    except (ValueError, KeyError):
        found = nan
    if not 0 < found < inf:
        raise InvalidInput(f"--max-memory must be like 500MB or 2GB; got {text!r}.")
    return found


@contextmanager
def _progress(title: str, budget: float) -> Iterator[Report]:
    """A bar over the budget on standard error, gone when done; nothing without a terminal."""
    errors = console(stderr=True)
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("", total=budget)
        yield lambda seconds, what: bar.update(task, completed=seconds, description=what)


def show(choice: Choice, screen: Console) -> None:
    """The sentence, the table, what was not tried, and how it was measured."""
    case = choice.case
    sizes = f"{case.batch} x n={case.n} x d={case.d}, {case.dtype}"
    if case.descriptor.startswith("sketched-"):
        sizes += f", k={case.k}"
    screen.print(f"\n{case.descriptor} of {sizes}, data on the {case.data}")
    screen.print(choice.sentence, style="bold", soft_wrap=True)
    timed = [row for row in choice.rows if row.median_s is not None]
    if timed:
        screen.print(_table(timed, screen.width))
    for row in choice.rows:
        if row.median_s is None:
            what = row.backend if not row.route else str(row.candidate)
            screen.print(f"not tried: {what}: {row.reason or row.state}", soft_wrap=True)
    again = ", from stored measurements" if choice.reused else ""
    screen.print(
        f"{choice.rounds} rounds, {choice.threads} threads, {choice.seconds:.0f} s in all{again}.",
        soft_wrap=True,
    )
    for warning in choice.warnings:
        screen.print(f"Warning: {warning}", soft_wrap=True)


def _show_map(cells: list[crossover.Cell], screen: Console) -> None:
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("n")
    ds = sorted({cell.d for cell in cells})
    for d in ds:
        table.add_column(f"d={d}")
    for n in sorted({cell.n for cell in cells}):
        row = {cell.d: cell.label for cell in cells if cell.n == n}
        table.add_row(str(n), *(row.get(d, "-") for d in ds))
    screen.print(table)
    screen.print("1.3x: so many times faster than the next; =: a tie, recommended; ?: probably.")


def _table(rows: list[Row], width: int) -> Table:
    """Fewer columns on a narrow terminal; those of devices only where there are some."""
    devices = any(not row.backend.endswith(":cpu") for row in rows)
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("candidate", no_wrap=True)
    columns = {"median": 60, "95 % interval": 90, "x best": 0, "first call": 78}
    columns |= {"with transfer": 110, "host": 78, "device": 110, "error": 90, "verdict": 0}
    if not devices:
        columns = {name: w for name, w in columns.items() if name not in ("device",)}
    shown = [name for name, least in columns.items() if width >= least]
    for name in shown:
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for row in rows:
        cells = {
            "median": readable(row.median_s, "time"),
            "95 % interval": f"{readable(row.low_s, 'time')} - {readable(row.high_s, 'time')}",
            "x best": f"{row.ratio:.2f}" if row.ratio is not None else "-",
            "first call": readable(row.first_call_s, "time"),
            "with transfer": readable(row.with_transfer_s, "time"),
            "host": readable(row.peak_host_bytes, "memory"),
            "device": readable(row.peak_device_bytes, "memory"),
            "error": readable(row.error, "error"),
            "verdict": str(row.verdict),
        }
        table.add_row(str(row.candidate), *(cells[name] for name in shown))
    return table
