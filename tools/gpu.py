"""The kernels for GPUs, executed here from their PTX: ``python -m tools.gpu counts|mutants``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from demopool import ptx

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from gpu import counted, mutation  # noqa: E402
from gpu.backends import BACKENDS  # noqa: E402
from ptx_samples import cases as samples  # noqa: E402


def counts() -> dict[Path, dict[str, Any]]:
    """What every kernel does, by the file that keeps it."""
    return {
        samples.COUNTS: samples.counted(),
        **{counted.file(name): counted.counts(name) for name in BACKENDS},
    }


@click.group()
def main() -> None:
    """Verify the kernels for GPUs on the CPU."""


@main.command("counts")
@click.option("--write", is_flag=True, help="Replace the files instead.")
def show_counts(write: bool) -> None:
    """Print what every kernel does, as counts."""
    for file, found in counts().items():
        text = json.dumps(found, indent=1, sort_keys=True) + "\n"
        if write:
            file.write_text(text)
        else:
            click.echo(f"{file.relative_to(TESTS)}\n{text}", nl=False)


@main.command()
@click.argument("backend", type=click.Choice(sorted(BACKENDS)))
@click.argument("kernels", nargs=-1)
@click.option("--count", default=mutation.MUTANTS, help="Mutants of each kernel.")
@click.option("--seed", default=0, help="Of the draw; the survivors of 0 are explained.")
def mutants(backend: str, kernels: tuple[str, ...], count: int, seed: int) -> None:
    """Print which mutants of kernels are left, by the line of the source that was changed."""
    made = missed = 0
    for kernel in kernels or BACKENDS[backend].kernels:
        start = time.perf_counter()
        tested = mutation.Examined(BACKENDS[backend], kernel)
        drawn = tested.drawn(count, seed)
        left = tested.survivors(drawn)
        made, missed = made + len(drawn), missed + len(left)
        share, took = ptx.coverage(tested.module), time.perf_counter() - start
        text = f"{len(left)} of {len(drawn)} left, {share:.0%} covered, {took:.0f} s"
        click.echo(f"{kernel}: {text}")
        for mutant in left:
            line = tested.backend.line(mutant)
            click.echo(f"    {mutant.source} `{line}`\n        {mutant.what}")
    click.echo(f"{made - missed} of {made} are caught: {1 - missed / made:.1%}")


if __name__ == "__main__":
    main()
