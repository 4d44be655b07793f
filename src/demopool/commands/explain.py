"""``demopool explain``: what ``auto`` takes for a job, and why. Nothing is measured."""

from __future__ import annotations

from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Table

from ..common.units import readable
from ..problem.vocabulary import DESCRIPTORS, DTYPES, State
from ..profiles.auto import explain
from ..profiles.options import DEFAULT, Option
from .output import console, emit, envelope, json_option

SCHEMA = 1
_COLUMNS = (
    ("predicted", "predicted_s", "time"),
    ("measured", "measured_s", "time"),
    ("memory", "needed_bytes", "memory"),
    ("error", "error", "error"),
)
"""Shown if something is known: heading, field of an option, quantity."""


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
    type=click.Choice(DTYPES),
    metavar="NAME",
    default="float32",
    show_default=True,
    help=f"{', '.join(DTYPES)}; bfloat16 only of torch.",
)
@click.option(
    "--home",
    default=DEFAULT,
    show_default=True,
    metavar="NAME",
    help="The backend that the array belongs to: torch:cuda for a CUDA tensor.",
)
@click.option("--backend", default="auto", show_default=True, help="Only this one.")
@click.option("--route", default="auto", show_default=True, help="Only this one.")
@click.option(
    "--accuracy",
    default="fast",
    show_default=True,
    help="fast, accurate, or the largest error: 1e-5.",
)
@json_option
def explain_command(
    descriptor: str,
    batch: int,
    n: int,
    d: int,
    k: int,
    dtype: str,
    home: str,
    backend: str,
    route: str,
    accuracy: str,
    as_json: bool,
) -> int:
    """What backend="auto" and route="auto" take for features of these sizes, and why.

    What `demopool choose` recommended, if it measured this job here. Else the lowest predicted
    time, by a model fitted to what was measured; without any measurement the home of the array by
    its cheapest route. Ruled out, unless nothing else is left: what was wrong or crashed here, and
    what is predicted to need more than half of the free memory, or to be less accurate than was
    asked for. `demopool profile` shows what was measured.

    \b
    demopool explain --batch 8 --n 784 --d 512
    demopool explain --descriptor power --accuracy 1e-5
    demopool explain --descriptor sketched-power --n 196 --d 2048 --json
    demopool explain --home torch:cuda --batch 8
    """
    given: dict[str, Any] = {"backend": backend, "route": route, "accuracy": _accuracy(accuracy)}
    found = explain((batch, n, d), descriptor, dtype=dtype, home=home, k=k, **given)
    if as_json:
        emit(envelope(SCHEMA, found.as_result()))
        return 0
    screen = console()
    screen.print(found.sentence, style="bold", soft_wrap=True)
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("candidate", no_wrap=True)
    known = {
        heading: [readable(getattr(option, name), kind) for option in found.options]
        for heading, name, kind in _COLUMNS
        if any(getattr(option, name) is not None for option in found.options)
    }
    for heading in known:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for option, *cells in zip(found.options, *known.values(), strict=True):
        table.add_row(str(option.candidate), *cells, _reason(option))
    screen.print(table)
    return 0


def _accuracy(text: str) -> str | float:
    """A number, or the word that it is, which ``explain`` judges."""
    try:
        return float(text)
    except ValueError:
        return text


def _reason(option: Option) -> str:
    """Why it is ruled out, or what is known beside a time."""
    if option.state is State.INACCURATE:
        return "inaccurate"  # the column beside it says how much
    words = {State.WRONG: "wrong: ", State.ERROR: "crashed: "}.get(option.state, "")
    if option.reason:
        return words + option.reason
    if option.at_least_s is not None and option.measured_s is None:
        return f"given up after {readable(option.at_least_s, 'time')}"
    if option.state is State.OK and option.predicted_s is None and option.measured_s is None:
        return "not measured yet"
    return ""
