"""``make suite``: every benchmark class once, on its smallest case, so that the suite cannot rot.

With asv itself, into a folder of its own. Every class must give a number on every usable backend,
and whatever has none must have a reason that is meant. ``make test-all`` runs all routes, else a
draw of them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console

from benchmarks.profiles import Slice, pattern_of, slices
from demopool.problem.candidates import Candidate
from demopool.problem.vocabulary import Backend

from .asv_process import run
from .bench import config_with, planned, usable_backends

ABSENT = "torch:cuda"
"""Asked for as well, to see that what cannot run here is skipped and not failed."""
MEANT = ("unavailable", "unsupported")
ALL = "DEMOPOOL_TEST_ALL"

Cell = tuple[str, str, str]
"""Benchmark, candidate, case."""


def main() -> int:
    errors = Console(stderr=True, highlight=False, markup=False)
    backends = tuple(dict.fromkeys((*usable_backends(), ABSENT)))
    parts = slices("smallest", backends)
    # Nothing is resumed, so one run for all.
    cells = frozenset[Cell]().union(*(part.cells for part in parts))
    if os.environ.get(ALL) != "1":
        cells = drawn(cells)
    patterns = tuple(pattern_of(*cell) for cell in sorted(cells))
    every = Slice("every benchmark class once", patterns, cells)
    plan = planned(config_with(folder="suite"), [every])
    shutil.rmtree(plan.folder.parent, ignore_errors=True)
    plan = planned(plan.config, [every])
    run([(every, plan.command(every, "--quick"))])
    found = problems(plan.results(), every)
    for problem in found:
        errors.print(problem)
    click.echo(f"{len(cells)} benchmarks run by asv, {len(found)} problems")
    return 1 if found else 0


def drawn(cells: Iterable[Cell]) -> frozenset[Cell]:
    """One route of every benchmark on one backend, each in its turn; one that is absent too."""
    benchmarks: dict[str, dict[Backend, Cell]] = {}
    for cell in sorted(cells):
        benchmarks.setdefault(cell[0], {}).setdefault(_backend(cell), cell)
    absent = next(of[Backend(ABSENT)] for of in benchmarks.values() if ABSENT in of)
    kept = {absent}
    for turn, of in enumerate(benchmarks.values()):
        here = [cell for backend, cell in of.items() if backend != ABSENT]
        if here:  # else it is a measure of GPUs only
            kept.add(here[turn % len(here)])
    return frozenset(kept)


def _backend(cell: Cell) -> Backend:
    return Candidate.parse(cell[1]).backend


def problems(frame: Any, every: Slice) -> list[str]:
    """What has neither a number nor a reason that is meant, and classes without any number."""
    rows = {(r.benchmark, r.candidate, r.case): r for r in frame.itertuples()}
    found = []
    for cell in sorted(every.cells):
        row = rows.get(cell)
        if row is None:
            found.append(f"{cell}: absent from the results")
            continue
        meant = row.state == "skipped" and row.candidate_state in MEANT and row.reason
        if row.state != "ok" and not meant:
            found.append(f"{cell}: {row.state}, {row.reason}")
    numbers = {(cell[0], _backend(cell)) for cell, row in rows.items() if row.state == "ok"}
    usable = usable_backends()
    for benchmark, backend in sorted({(cell[0], _backend(cell)) for cell in every.cells}):
        is_usable = backend == "baseline" or backend in usable
        if is_usable and (benchmark, backend) not in numbers:
            found.append(f"{benchmark} gave no number on {backend}")
    return found


if __name__ == "__main__":
    sys.exit(main())
