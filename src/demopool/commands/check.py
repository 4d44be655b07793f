"""``demopool check``: the conformance matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from .. import conformance
from ..choosing.printing import LONG_COMPILATION
from ..conformance import Cell, failed
from ..conformance.cells import CELL_SECONDS, EMULATED_CELL_SECONDS
from ..conformance.features import seed
from ..contract import registry
from ..contract.listing import backends as listed
from ..machine.gpu import gpus
from ..measurement.worker import SETUP_SECONDS
from ..problem.operations import OPERATIONS
from ..problem.vocabulary import DTYPES
from .output import check_writable, console, emit, envelope, json_option, progress, tell

SCHEMA = 1


@click.command()
@click.argument("backends", nargs=-1, metavar="[BACKEND]...")
@click.option("--quick", is_flag=True, help="Leave out the largest examples.")
@click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice(tuple(OPERATIONS)),
    metavar="NAME",
    help=f"Only this operation ({', '.join(OPERATIONS)}); can be repeated.",
)
@click.option("--route", "routes", multiple=True, metavar="NAME", help="Only this route: dense.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(tuple(map(str, DTYPES))),
    metavar="NAME",
    help=f"Only this dtype ({', '.join(DTYPES)}).",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Threads for BLAS. On a busy machine, several threads wait for each other.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Maximum for the first call of a cell, which compiles, and for the rest of it; to load a "
    f"library has {SETUP_SECONDS:g} s of its own.  "
    f"[default: {SETUP_SECONDS:g} and {CELL_SECONDS:g}, for GPU code on the CPU "
    f"{EMULATED_CELL_SECONDS:g}]",
)
@click.option("--worst", is_flag=True, help="Show the worst example and how to run it in Python.")
@json_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the JSON into this file instead.",
)
def check(
    backends: tuple[str, ...],
    quick: bool,
    operations: tuple[str, ...],
    routes: tuple[str, ...],
    dtypes: tuple[str, ...],
    threads: int,
    seconds: float | None,
    worst: bool,
    as_json: bool,
    output: Path | None,
) -> int:
    """Compare every operation and route with the float64 reference.

    Without BACKEND, check all backends usable on this machine except GPU code executed on the CPU
    (cupy:ptx, numba:ptx, triton:interpreter), which takes minutes and must be named. Each cell
    shows the worst error and its tolerance. Both are relative to the result; the tolerance is
    derived from dtype, sizes and exponent. The exit code is 1 if anything is wrong or a named
    backend is absent.

    Each backend runs in a process of its own: a kernel that exits, crashes or takes longer than
    --seconds fails its cell, with the line of code it was at, and the next cell is judged. Without
    a terminal every cell is written to standard error when it is finished.

    \b
    demopool check                            this machine
    demopool check numpy:cpu --quick          one backend, half a minute
    demopool check cupy:ptx numba:ptx         GPU kernels, from their PTX
    demopool check cupy:cuda --output f.json  to attach to a bug report
    demopool check --operation power --worst  the worst case, to run again
    demopool check --route dense --dtype float32
    """
    check_writable(output)
    with progress("checking") as report:
        cells = conformance.check(
            backends,
            operations=operations,
            routes=routes,
            dtypes=dtypes,
            quick=quick,
            threads=threads,
            seconds=seconds,
            progress=report if console(stderr=True).is_terminal else None,
            finished=_tell,
        )
    bad = failed(cells)
    if as_json or output:
        rows = [cell.as_row() for cell in cells]
        # Includes what a bug report needs: devices, driver and versions.
        emit(envelope(SCHEMA, {"rows": rows, "backends": listed(), "gpus": gpus()}), output)
    else:
        screen = console()
        for backend in dict.fromkeys(cell.backend for cell in cells):
            _show([cell for cell in cells if cell.backend == backend], screen)
        for cell in bad:
            where = f" (on: {cell.worst_case})" if cell.worst_case else ""
            screen.print(f"{cell.name} is {cell.state}: {cell.reason}{where}")
        for sentence in _compilations(cells):
            screen.print(sentence)
        if worst:
            _show_worst(bad or cells, screen)
        judged = sum(cell.dtype is not None for cell in cells)
        screen.print(f"{judged - len(bad)} of {judged} cells conform to the reference.")
    return 1 if bad else 0


def _show(cells: Sequence[Cell], screen: Console) -> None:
    """Show one backend: a line per operation, route and order, a column per dtype."""
    dtypes = [dtype for dtype in DTYPES if any(cell.dtype == dtype for cell in cells)]
    table = Table(
        title=f"{cells[0].backend}: worst error / tolerance",
        caption="(1): first order; -: not for this dtype",
        box=SIMPLE,
        pad_edge=False,
    )
    table.add_column("operation", overflow="fold")
    table.add_column("route", overflow="fold")
    for dtype in dtypes:
        table.add_column(dtype, justify="right", no_wrap=True)
    judged = [cell for cell in cells if cell.dtype is not None]
    for operation, route, order in dict.fromkeys((c.operation, c.route, c.order) for c in judged):
        row = [c for c in judged if (c.operation, c.route, c.order) == (operation, route, order)]
        shown = {cell.dtype: _cell(cell) for cell in row}
        name = operation if order == 2 else f"{operation} (1)"
        table.add_row(name, route, *(shown.get(dtype, "-") for dtype in dtypes))
    screen.print(table)
    absent = Counter(cell.reason for cell in cells if cell.dtype is None)
    for reason, count in absent.items():
        screen.print(f"{count} routes are not available: {reason}.")


def _tell(cell: Cell) -> None:
    """A line about a finished cell; a terminal has a bar, and gets lines about failures only."""
    if cell.dtype is not None and (failed([cell]) or not console(stderr=True).is_terminal):
        took = f" ({cell.seconds:.1f} s{_compiled(cell)})" if cell.seconds is not None else ""
        tell(f"{cell.name}: {_cell(cell)}{took}")


def _compiled(cell: Cell) -> str:
    if (cell.compile_s or 0.0) < LONG_COMPILATION:
        return ""
    return f", {cell.compile_s:.1f} s to compile before"


def _compilations(cells: Sequence[Cell]) -> Iterator[str]:
    """Where first calls took longer than others, once for each backend."""
    for backend in dict.fromkeys(cell.backend for cell in cells):
        long = [cell for cell in cells if cell.backend == backend and _compiled(cell)]
        if long:
            worst = max(long, key=lambda cell: cell.compile_s or 0.0)
            of = {"shape": ", as for every new shape", "dtype": ", for a dtype"}
            how = of.get(registry.compiles_per(backend) or "", ", or loads")
            calls = f"{len(long)} first call{'s' * (len(long) > 1)}"
            yield (
                f"{backend} compiles{how}: {calls} took up to {worst.compile_s:.1f} s longer "
                f"({worst.operation} by {worst.route}, {worst.dtype})."
            )


def _cell(cell: Cell) -> str:
    if cell.worst_error is None or cell.tolerance is None:
        return cell.state
    figures = f"{cell.worst_error:.0e}/{cell.tolerance:.0e}".replace("e-0", "e-")
    return figures if cell.state == "ok" else f"{figures} {cell.state}"


def _show_worst(cells: Sequence[Cell], screen: Console) -> None:
    """Show the cell that used most of its tolerance, and how to run it again."""
    cell = max(
        cells,
        key=lambda c: c.worst_error / c.tolerance if c.worst_error and c.tolerance else 0.0,
    )
    example = cell.worst_case or ""
    screen.print(f"\nworst: {cell.name}, on: {example}")
    features = example.rpartition(", on ")[2] if example.startswith("law: ") else example
    screen.print(f"seed of its features: {seed(features.partition(';')[0])}")
    screen.print("To run it again in Python:")
    screen.print(cell.again)
