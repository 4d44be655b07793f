"""Would a mistake in a kernel be seen? Its mutants, launched in all of its cases.

A mutant (``demopool.ptx.mutants``) is caught by a fault, or by a result that is not bit for bit
that of the kernel as it is. Mutants of what CUDA's own mathematics puts into a kernel (pow, exp2,
ldexp) are drawn with those of its own code: the compiler gives both the same line of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from demopool import ptx

from . import cases
from .backends import Backend, Launch

MUTANTS = 50
STEPS = 20_000
"""No case, and no sample, takes half as many: a mutant that does never ends."""


class Examined:
    """A kernel with its cases and their results, of which only they have executed anything."""

    def __init__(self, b: Backend, kernel: str) -> None:
        self.backend = b
        self.cases = cases.launches(b, kernel)
        self.module = replace(b.compiled(self.cases[0]), executed={})
        self.results = [self._bits(self.module, case) for case in self.cases]

    def _bits(self, module: ptx.Module, case: Launch) -> list[bytes]:
        found = self.backend.run(case, module, counting=False, max_steps=STEPS)
        # Any NaN is as good as any other, zeros have their signs.
        return [np.where(np.isnan(array), np.nan, array).tobytes() for array in found]

    @cached_property
    def mutants(self) -> list[ptx.Mutant]:
        return self.drawn(MUTANTS)

    def drawn(self, count: int, seed: int = 0) -> list[ptx.Mutant]:
        """The first of them are the same for every count."""
        return list(ptx.mutants(self.module, count=count, seed=seed))

    def is_caught(self, mutant: ptx.Mutant) -> bool:
        """By the first case that shows it."""
        try:
            return any(
                self._bits(mutant.module, case) != right
                for case, right in zip(self.cases, self.results, strict=True)
            )
        except ptx.PtxError:
            return True

    def survivors(self, mutants: Sequence[ptx.Mutant]) -> list[ptx.Mutant]:
        """Those that nothing shows."""
        return [mutant for mutant in mutants if not self.is_caught(mutant)]


def check(named: Mapping[str, tuple[str, ...]], lines: Iterable[str], *, all_of_them: bool) -> None:
    """The lines of mutants that are left are those that are named, by a piece of them, with a
    reason for each mutant; of a draw they are some of those."""
    left = dict.fromkeys(named, 0)
    for line in lines:
        (piece,) = [piece for piece in named if piece in line] or [line]
        left[piece] = left.get(piece, 0) + 1
    assert left.keys() == named.keys(), "mutants that are left and not explained"
    assert all(left[piece] <= len(named[piece]) for piece in named)
    assert not all_of_them or all(left[piece] == len(named[piece]) for piece in named)
