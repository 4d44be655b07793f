"""``demopool choose``: which candidate is the fastest here, for these sizes?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ..choosing import crossover, printing
from ..choosing.answer_types import Choice
from ..choosing.chooser import BUDGET, choose
from ..choosing.runners import ProgressCallback, Workers
from ..contract import registry
from ..errors import InvalidInput
from ..machine import fingerprint, system
from ..problem import feature_files
from ..problem.cases import NAMED, Case, named
from ..problem.feature_files import IMAGES, Features
from ..problem.vocabulary import DESCRIPTORS, LAYOUTS, NUMPY_DTYPES, State
from ..report import crossover_map, pictures
from .output import check_writable, console, emit, envelope, json_option, size_in_bytes

SCHEMA = 1
DEFAULT_CASE = "vgg-b8"
SWEEP_BUDGET = 10.0
LINE_SECONDS = 5.0
"""Between two lines of progress where there is no terminal."""


@click.command(name="choose", context_settings={"max_content_width": 80})
@click.option(
    "--descriptor",
    type=click.Choice([*DESCRIPTORS, "all"]),
    metavar="NAME",
    default="democratic",
    help=f"Descriptor to compute: {', '.join(DESCRIPTORS)}, or all.  [default: democratic]",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    type=click.Choice(list(NAMED)),
    metavar="NAME",
    help=f"Named sizes; can be repeated: {', '.join(NAMED)}.  [default: {DEFAULT_CASE}]",
)
@click.option("--batch", type=click.IntRange(1), help="Images.  [default: 1 with --n or --d]")
@click.option("--n", type=click.IntRange(1), help="Features per image.  [default: 784]")
@click.option("--d", type=click.IntRange(1), help="Dimension of a feature.  [default: 512]")
@click.option("--k", type=click.IntRange(1), help="Length of a sketch.  [default: 8192]")
@click.option(
    "--like",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE.npy",
    help="Sizes and dtype of these features: (images, n, d), (n, d), or conv maps. "
    f"At most {IMAGES} images are timed at once, or --batch.",
)
@click.option(
    "--layout", type=click.Choice(LAYOUTS), help="Of the file's axes: nchw and nhwc are conv maps."
)
@click.option("--dtype", type=click.Choice(NUMPY_DTYPES), help="[default: float32]")
@click.option(
    "--data",
    type=click.Choice(["host", "device"]),
    default="host",
    show_default=True,
    help="Where features start and descriptors end; with host, a GPU's transfers count.",
)
@click.option(
    "--cold",
    is_flag=True,
    help="Empty the caches before every timed call: features, tables and results come from "
    "memory. auto does not learn of it.  [default: warm, as in a stream of images]",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, 1e6, min_open=True),
    metavar="SECONDS",
    help="Maximum for all cases together, without the set-up of libraries. The command ends as "
    "soon as there is an answer.  [default: 60 a case, 10 a cell of a sweep]",
)
@click.option("--max-memory", metavar="SIZE", help="Maximum memory per call: 500MB, 2GB.")
@click.option(
    "--max-error",
    type=click.FloatRange(0, 1, min_open=True),
    help="Maximum error, relative to the largest entry before the final norm: 1e-5.  "
    "[default: what rounding allows]",
)
@click.option(
    "--calls",
    type=click.IntRange(1, 2**31 - 1),
    help="Calls that a process will make: the least total, with its first call, wins.  "
    "[default: calls after the first decide]",
)
@click.option(
    "--backends", metavar="NAME,...", help="Only these: numpy:cpu,torch:cpu.  [default: all]"
)
@click.option(
    "--routes",
    metavar="NAME,...",
    help="Only these: dense,dense-tf32.  [default: all but those by TF32]",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="Threads of every library.  [default: OMP_NUM_THREADS if set, else all cores]",
)
@click.option(
    "--sweep",
    nargs=2,
    metavar="n=... d=...",
    help="A map over sizes: --sweep n=49,196,784 d=64,512.",
)
@click.option(
    "--png",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the map of a sweep into this file.",
)
@click.option("--fresh", is_flag=True, help="Measure again what is stored.")
@click.option(
    "--retry", is_flag=True, help="Try again what was wrong, crashed or was given up before."
)
@click.option(
    "--save/--no-save",
    default=True,
    show_default=True,
    help='Store the measurements, for the next call and backend="auto".',
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
    layout: str | None,
    dtype: str | None,
    data: str,
    cold: bool,
    budget: float | None,
    max_memory: str | None,
    max_error: float | None,
    calls: int | None,
    backends: str | None,
    routes: str | None,
    threads: int | None,
    sweep: tuple[str, str] | None,
    png: Path | None,
    fresh: bool,
    retry: bool,
    save: bool,
    as_json: bool,
    output: Path | None,
    **sizes: int | None,
) -> int:
    """Measure the candidates for a job and say which one to use.

    A candidate is a backend and a route. Each is checked against the reference first; those that
    conform take turns, each backend in a process of its own, until one is at least 3 % faster
    than all others, or all that are left are within 5 % of the best (a tie: less memory, then
    fewer dependencies decide), or the budget is spent (unknown). Candidates that are predicted to
    be fastest are tried first; what does not fit the budget is left out. Ctrl-C gives the best
    answer so far; what was measured is kept, and the next call goes on from there.

    First calls load and compile. Where the winner pays only after some calls, the sentence says
    after how many; --calls decides for a job of that many in one process.

    A candidate that was wrong, crashed or was given up is not tried again until its code, its
    library or the machine changes, or with --retry.

    \b
    demopool choose                       democratic pooling of 8 VGG-16 images
    demopool choose --descriptor sketched-democratic --n 196 --d 2048 --batch 8
    demopool choose --like features.npy --budget 120
    demopool choose --calls 100           the first call counts, as one of 100
    demopool choose --cold                caches are empty when a call begins
    demopool choose --descriptor power --max-error 1e-5
    demopool choose --descriptor all --json
    demopool choose --sweep n=49,196,784 d=64,256,1024 --png map.png
    """
    check_writable(output)
    check_writable(png)
    if png and not sweep:
        raise click.UsageError("--png draws the map of a --sweep; give one.")
    if png and not find_spec("matplotlib"):
        raise InvalidInput(
            "--png needs Matplotlib, which is not installed: pip install '.[report]' in a clone."
        )
    if layout and not like:
        raise click.UsageError("--layout is that of a file; give --like.")
    screen = console()
    features = None
    if like:
        features = feature_files.read(like, layout, sizes.pop("batch"), dtype)
    wanted = list(_cases(descriptor, cases, features, dtype, (data, cold), sizes))
    if sweep:
        ns, ds = crossover.parse(sweep)
        if cases or like or len(wanted) > 1 or sizes["n"] or sizes["d"]:
            raise click.UsageError("--sweep takes one descriptor, and its sizes from n= and d=.")
        base = replace(wanted[0], batch=sizes["batch"] or 1)
        wanted = [replace(base, n=n, d=d) for n in ns for d in ds]
    total = budget or len(wanted) * (SWEEP_BUDGET if sweep else BUDGET)
    most = None if max_memory is None else size_in_bytes("--max-memory", max_memory)
    names, ways = _names(backends), _names(routes)
    for name in names:
        registry.demand(name)
    if features and not (as_json or output):
        _say(features.sentence, screen)
    warnings = fingerprint.warnings(fingerprint.fingerprint())
    choices: list[Choice] = []
    warned: set[str] = set()
    with Workers(threads or system.usual_threads()) as workers, _progress() as begin:
        for number, case in enumerate(wanted, start=1):
            # What earlier cases did not need is there for the others.
            share = max(total - sum(c.seconds - c.setup_s for c in choices), 0.1)
            share /= len(wanted) - len(choices)
            title = f"{case.descriptor} n={case.n} d={case.d}"
            if len(wanted) > 1:
                title = f"{number}/{len(wanted)} {title}"
            with begin(title, share) as progress:
                found = choose(
                    case,
                    backends=names,
                    routes=ways,
                    budget=share,
                    max_memory=most,
                    max_error=max_error,
                    calls=calls,
                    fresh=fresh,
                    retry=retry,
                    save=save,
                    progress=progress,
                    warnings=warnings,
                    workers=workers,
                )
            choices.append(found)
            if not (as_json or output or sweep):
                show(found, screen, warned)
            if found.interrupted:
                break
    cells = [crossover.cell(choice) for choice in choices] if sweep else []
    if png:
        title = f"{descriptor}: fastest by n and d{' with cold caches' if cold else ''}"
        pictures.save(crossover_map.draw(cells, title), png)
    if as_json or output:
        payload: dict[str, Any] = {"results": [choice.as_result() for choice in choices]}
        if sweep:
            payload["map"] = [asdict(cell) for cell in cells]
        emit(envelope(SCHEMA, payload), output)
    elif sweep:
        _show_map(cells, screen)
        if cold:
            _say("Caches were emptied before every timed call.", screen)
        for warning in _of_cells(choices):
            _say(f"Warning: {warning}", screen)
    failed = any(row.state is State.WRONG for choice in choices for row in choice.rows)
    return 1 if failed or any(choice.backend is None for choice in choices) else 0


def _names(listed: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",")) if listed else ()


def _cases(
    descriptor: str,
    names: tuple[str, ...],
    features: Features | None,
    dtype: str | None,
    begins: tuple[str, bool],
    sizes: dict[str, int | None],
) -> Iterator[Case]:
    given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    chosen = given.keys() - {"k"}
    if (names and (features or chosen)) or (features and chosen):
        raise click.UsageError(
            "give --case, or --like with or without --batch, or --batch, --n and --d; not several."
        )
    data, cold = begins
    changes: dict[str, Any] = {"data": data, "caches": "cold" if cold else "warm"}
    if dtype:
        changes["dtype"] = dtype
    for what in DESCRIPTORS if descriptor == "all" else (descriptor,):
        changes["descriptor"] = what
        if features:
            yield replace(features.case, **changes, **given)
        elif chosen:
            yield Case(**changes, **given)
        else:
            for name in names or (DEFAULT_CASE,):
                yield replace(named(name), **changes, **given)


def _of_cells(choices: Sequence[Choice]) -> Iterator[str]:
    """The warnings of a sweep, each once, with its cells unless it concerns all of them."""
    cells: dict[str, list[str]] = {}
    for choice in choices:
        for warning in choice.warnings:
            cells.setdefault(warning, []).append(f"n={choice.case.n} d={choice.case.d}")
    for warning, of in cells.items():
        yield warning if len(of) == len(choices) else f"{', '.join(of)}: {warning}"


Begin = Callable[[str, float], AbstractContextManager[ProgressCallback]]
"""The progress of one case: its title and its seconds."""


@contextmanager
def _progress() -> Iterator[Begin]:
    """On standard error: a bar for every case, gone when done; lines without a terminal."""
    errors = console(stderr=True)
    if errors.is_terminal:
        yield partial(_bar, errors)
        return
    with _lines() as begin:
        yield begin


@contextmanager
def _bar(errors: Console, title: str, budget: float) -> Iterator[ProgressCallback]:
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("", total=budget)
        yield lambda seconds, what: bar.update(task, completed=seconds, description=what)


@contextmanager
def _lines() -> Iterator[Begin]:
    """One every few seconds of the whole command, also while a long call is waited for."""
    line, ended = ["starting"], Event()

    def write() -> None:
        while not ended.wait(LINE_SECONDS):
            click.echo(line[0], err=True)

    @contextmanager
    def begin(title: str, budget: float) -> Iterator[ProgressCallback]:
        def progress(seconds: float, what: str) -> None:
            line[0] = f"{title}: {seconds:.0f} of {budget:.3g} s, {what}"

        progress(0.0, "starting")
        yield progress

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        yield begin
    finally:
        ended.set()
        thread.join()


def show(choice: Choice, screen: Console, warned: set[str]) -> None:
    """What ``print(choice)`` says; a warning that was given before is not repeated."""
    new = tuple(warning for warning in choice.warnings if warning not in warned)
    warned.update(new)
    screen.print()
    for number, line in enumerate(printing.lines(replace(choice, warnings=new), screen.width)):
        _say(line, screen, style="bold" if number == 1 else None)


def _say(line: str, screen: Console, style: str | None = None) -> None:
    """Wrapped at words on a terminal; whole through a pipe, so that it can be searched."""
    screen.print(line, style=style, soft_wrap=not screen.is_terminal)


def _show_map(cells: list[crossover.MapCell], screen: Console) -> None:
    for line in crossover.text(cells, screen.width):
        screen.print(line, soft_wrap=True)
