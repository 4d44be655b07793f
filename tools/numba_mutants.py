"""Would a mistake in a kernel of numba:cuda be seen? ``python -m tools.numba_mutants [kernel ...]``

Mutants of every kernel (``demopool.ptx.mutants``) are launched as ``numba_cases`` says, and are
caught by a fault, or by a result that is not bit for bit that of the kernel as it is.
"""

from __future__ import annotations

import time
from dataclasses import replace

import click
import numpy as np

from demopool import ptx
from tools import numba_launches
from tools.numba_cases import CASES, cases

MUTANTS = 50
STEPS = 20_000
"""No case takes half as many: a mutant that does never ends."""

Results = list[list[bytes]]


def fresh(name: str) -> ptx.Module:
    """A kernel's module of which only the cases have executed anything."""
    module = replace(numba_launches.compiled(cases(name)[0]), executed={})
    results(module, name)
    return module


def results(module: ptx.Module, name: str) -> Results:
    """The bits of all arrays after every case."""
    return [_bits(module, made) for made in cases(name)]


def _bits(module: ptx.Module, made: numba_launches.Launch) -> list[bytes]:
    found = numba_launches.run(module, made, counting=False, most_steps=STEPS)
    # Any NaN is as good as any other, zeros have their signs.
    return [np.where(np.isnan(array), np.nan, array).tobytes() for array in found]


def is_caught(mutant: ptx.Mutant, name: str, wanted: Results) -> bool:
    """By the first case that shows it."""
    try:
        return any(
            _bits(mutant.module, made) != right
            for made, right in zip(cases(name), wanted, strict=True)
        )
    except ptx.PtxError:
        return True


def drawn(module: ptx.Module, name: str, count: int = MUTANTS) -> list[ptx.Mutant]:
    """The first of them are the same for every count."""
    return list(ptx.mutants(module, name, count, seed=0))


@click.command()
@click.argument("names", nargs=-1)
@click.option("--count", default=MUTANTS, help="Mutants of each kernel.")
def main(names: tuple[str, ...], count: int) -> None:
    """Print how many mutants of each kernel are left, and which."""
    made = missed = 0
    for name in names or sorted(CASES):
        start = time.perf_counter()
        module = fresh(name)
        wanted = results(module, name)
        mutants = drawn(module, name, count)
        left = [mutant for mutant in mutants if not is_caught(mutant, name, wanted)]
        made, missed = made + len(mutants), missed + len(left)
        share, took = ptx.coverage(module, name), time.perf_counter() - start
        click.echo(f"{name}: {len(left)} of {len(mutants)} left, {share:.0%} covered, {took:.0f} s")
        for mutant in left:
            source = next(i.source for i in module.kernel(name).code if i.line == mutant.line)
            click.echo(f"    line {mutant.line} {source}: {mutant.what}")
    click.echo(f"{made - missed} of {made} are caught: {1 - missed / made:.1%}")


if __name__ == "__main__":
    main()
