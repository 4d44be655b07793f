"""Would a mistake in a kernel be seen? What the checks of several sets of kernels share.

Mutants of a kernel (``demopool.ptx.mutants``) are launched in every case that its set has for it,
and are caught by a fault, or by a result that is not bit for bit that of the kernel as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

from demopool import ptx

MUTANTS = 50
Launch = Any
"""Of a set of kernels: only the set knows what is in it."""

Results = list[list[bytes]]


@dataclass(frozen=True)
class Kernels:
    """A set of kernels and their cases.

    cases       launches of a kernel, by its name
    compiled    the module of a launch, with that kernel alone
    run         a launch of a module: all arrays after it, those that were given stay as they are
    most_steps  no case takes half as many: a mutant that does never ends
    """

    names: tuple[str, ...]
    cases: Callable[[str], Sequence[Launch]]
    compiled: Callable[[Launch], ptx.Module]
    run: Callable[..., list[Any]]
    most_steps: int = 20_000

    def fresh(self, name: str) -> tuple[ptx.Module, Results]:
        """A kernel's module of which only the cases have executed anything, and their results."""
        module = replace(self.compiled(self.cases(name)[0]), executed={})
        return module, self.results(module, name)

    def results(self, module: ptx.Module, name: str) -> Results:
        """The bits of all arrays after every case."""
        return [self._bits(module, made) for made in self.cases(name)]

    def _bits(self, module: ptx.Module, made: Launch) -> list[bytes]:
        found = self.run(module, made, counting=False, most_steps=self.most_steps)
        # Any NaN is as good as any other, zeros have their signs.
        return [np.where(np.isnan(array), np.nan, array).tobytes() for array in found]

    def is_caught(self, mutant: ptx.Mutant, name: str, wanted: Results) -> bool:
        """By the first case that shows it."""
        try:
            return any(
                self._bits(mutant.module, made) != right
                for made, right in zip(self.cases(name), wanted, strict=True)
            )
        except ptx.PtxError:
            return True

    def survivors(
        self, mutants: Sequence[ptx.Mutant], name: str, wanted: Results
    ) -> list[ptx.Mutant]:
        """Those that nothing shows."""
        return [mutant for mutant in mutants if not self.is_caught(mutant, name, wanted)]

    def command(self) -> click.Command:
        """A command for this set."""

        @click.command()
        @click.argument("names", nargs=-1)
        @click.option("--count", default=MUTANTS, help="Mutants of each kernel.")
        @click.option("--seed", default=0, help="Of the draw; the survivors of 0 are explained.")
        def main(names: tuple[str, ...], count: int, seed: int) -> None:
            """Print how many mutants of each kernel are left, and which."""
            made = missed = 0
            for name in names or self.names:
                start = time.perf_counter()
                module, wanted = self.fresh(name)
                mutants = drawn(module, count, seed)
                left = self.survivors(mutants, name, wanted)
                made, missed = made + len(mutants), missed + len(left)
                share, took = ptx.coverage(module), time.perf_counter() - start
                text = f"{len(left)} of {len(mutants)} left, {share:.0%} covered, {took:.0f} s"
                click.echo(f"{name}: {text}")
                for mutant in left:
                    click.echo(f"    line {mutant.line} {source_of(module, mutant)}: {mutant.what}")
            click.echo(f"{made - missed} of {made} are caught: {1 - missed / made:.1%}")

        return main


def drawn(module: ptx.Module, count: int = MUTANTS, seed: int = 0) -> list[ptx.Mutant]:
    """Of a module's only kernel; the first of them are the same for every count."""
    return list(ptx.mutants(module, count=count, seed=seed))


def source_of(module: ptx.Module, mutant: ptx.Mutant) -> str:
    """The line of the source that was changed."""
    return next(ins.source for ins in module.kernel().code if ins.line == mutant.line)
