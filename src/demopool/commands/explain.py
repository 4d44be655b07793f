"""``demopool explain``: what ``auto`` takes for a job, and why. Nothing is measured."""

from __future__ import annotations

import click
from rich.box import SIMPLE
from rich.table import Table

from ..common.units import readable
from ..problem.vocabulary import DESCRIPTORS, NUMPY_DTYPES, State
from ..profiles.auto import explain
from ..profiles.options import Option
from .output import console, emit, envelope, json_option

SCHEMA = 1


@click.command(name="explain")
@click.option(
    "--descriptor",
    type=click.Choice(DESCRIPTORS),
    metavar="NAME",
    default="democratic",
    show_default=True,
    help=f"{', '.join(DESCRIPTORS)}.",
)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Images.")
@click.option("--n", type=click.IntRange(1), default=784, show_default=True, help="Features.")
@click.option("--d", type=click.IntRange(1), default=512, show_default=True, help="Their length.")
@click.option("--k", type=click.IntRange(1), default=8192, show_default=True, help="Of a sketch.")
@click.option(
    "--dtype",
    type=click.Choice(NUMPY_DTYPES),
    default="float32",
    show_default=True,
)
@click.option("--backend", default="auto", show_default=True, help="Only this one.")
@click.option("--route", default="auto", show_default=True, help="Only this one.")
@json_option
def explain_command(
    descriptor: str,
    batch: int,
    n: int,
    d: int,
    k: int,
    dtype: str,
    backend: str,
    route: str,
    as_json: bool,
) -> int:
    """What backend="auto" and route="auto" take for NumPy features of these sizes, and why.

    What `demopool choose` recommended, if it measured this job here. Else the lowest predicted
    time, by a model fitted to what was measured; without any measurement numpy:cpu by its cheapest
    route. Ruled out, unless nothing else is left: what was wrong or crashed here, and what is
    predicted to need more than half of the free memory. `demopool profile` shows what was measured.

    \b
    demopool explain --batch 8 --n 784 --d 512
    demopool explain --descriptor sketched-power --n 196 --d 2048 --json
    """
    found = explain((batch, n, d), descriptor, dtype=dtype, k=k, backend=backend, route=route)
    if as_json:
        emit(envelope(SCHEMA, found.as_result()))
        return 0
    screen = console()
    screen.print(found.sentence, style="bold", soft_wrap=True)
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("candidate", no_wrap=True)
    for heading in ("predicted", "measured", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for option in found.options:
        table.add_row(
            str(option.candidate),
            readable(option.predicted_s, "time"),
            readable(option.measured_s, "time"),
            readable(option.needed_bytes, "memory"),
            _reason(option),
        )
    screen.print(table)
    return 0


def _reason(option: Option) -> str:
    """Why it is ruled out, or what is known beside a time."""
    words = {State.WRONG: "wrong: ", State.ERROR: "crashed: "}.get(option.state, "")
    if option.reason:
        return words + option.reason
    if option.at_least_s is not None and option.measured_s is None:
        return f"given up after {readable(option.at_least_s, 'time')}"
    return ""
