"""How often ``make bench-pr`` errs: ``python -m tools.pull_request_errors`` simulates it.

A run has the cells that ``make bench-pr`` measures on this machine, each a call of 10 ms with a
noise of 4 % and one of 2 % that a process keeps, in two rounds, on machines where the truth is
known. asv's own statistics make times of the samples, and what seems changed is judged by turns, as
``tools.bench_pr`` does. One candidate may be slower at HEAD. Counted are runs that call it slower,
runs that call another one slower, and runs that do neither and cannot tell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import click
from asv_runner.statistics import compute_stats

from demopool.results.history.changes import RATIO
from demopool.results.history.confirming import LOOKS, Confirmation, judge

from . import verdicts
from .bench_pr import cells_of
from .cells import Cell

ROUNDS = 2
SAMPLES = 25
SECONDS = 0.01
NOISE = 0.04
NOISE_OF_A_PROCESS = 0.02

Slowed = Callable[[random.Random], float]
"""By what the machine multiplies all times of one process."""


def quiet(draw: random.Random) -> float:
    return 1.0


def bursts(draw: random.Random) -> float:
    return draw.uniform(1.3, 2.2) if draw.random() < 1 / 12 else 1.0


def often_busy(draw: random.Random) -> float:
    return draw.uniform(1.3, 2.2) if draw.random() < 1 / 3 else 1.0


MACHINES: dict[str, Slowed] = {
    "quiet": quiet,
    "1 process in 12 slowed by 1.3 to 2.2": bursts,
    "1 process in 3 slowed by 1.3 to 2.2": often_busy,
}
FACTORS = (1.0, 1.2, 1.42, 2.0)


class Shares(NamedTuple):
    """Of all runs."""

    found: float
    false: float
    unclear: float


def shares(slowed: Slowed, factor: float, cells: Sequence[Cell], runs: int, seed: int) -> Shares:
    """If the first candidate takes ``factor`` times as long at HEAD."""
    draw = random.Random(seed)
    victim = next(cell for cell in cells if not verdicts.is_baseline(cell))

    def rows(chosen: Iterable[Cell]) -> dict[Cell, verdicts.Row]:
        found = {}
        for cell in sorted(chosen):
            head = factor if cell == victim else 1.0
            base, changed = (_time(slowed, true, draw) for true in (1.0, head))
            found[cell] = verdicts.Row(cell, cell.suite.subject.name, base, changed)
        return found

    found = false = unclear = 0
    for _ in range(runs):
        said = verdicts.judged(rows(cells).values())
        suspects = said.cells(verdicts.SLOWER, verdicts.FASTER)
        heads = {cell: factor if cell == victim else 1.0 for cell in suspects}
        faster = said.cells(verdicts.FASTER)
        answers = {
            cell: _turns(slowed, 1 / head if cell in faster else head, draw)
            for cell, head in sorted(heads.items())
        }
        said = verdicts.confirmed(said, answers)
        slower = said.cells(verdicts.SLOWER)
        found += victim in slower and factor > 1
        false += bool(slower - {victim}) or (victim in slower and factor == 1)
        unclear += said.exit_code == 2
    return Shares(found / runs, false / runs, unclear / runs)


def _turns(slowed: Slowed, true: float, draw: random.Random) -> Confirmation:
    rounds: list[tuple[float, float]] = []
    answer = None
    for look in LOOKS:
        while len(rounds) < look:
            first, second = (min(_samples(slowed, factor, draw)) for factor in (1.0, true))
            rounds.append((first, second))
        answer = judge(("base", "head"), rounds, RATIO)
        if answer is not None and answer.verdict != "undecided":
            break
    assert answer is not None
    return answer


def _time(slowed: Slowed, true: float, draw: random.Random) -> verdicts.Time:
    samples = [one for _ in range(ROUNDS) for one in _samples(slowed, true, draw)]
    _, about = compute_stats(samples, 1)
    return verdicts.Time(about["q_25"], about["ci_99_a"], about["ci_99_b"])


def _samples(slowed: Slowed, true: float, draw: random.Random) -> list[float]:
    """Of one process."""
    process = SECONDS * true * slowed(draw) * draw.gauss(1.0, NOISE_OF_A_PROCESS)
    return [process * draw.gauss(1.0, NOISE) for _ in range(SAMPLES)]


def table(runs: int, seed: int) -> Sequence[str]:
    """In Markdown, in percent."""
    cells = sorted(cells_of(None))
    names = ["no change", *(f"x{factor:g}" for factor in FACTORS[1:])]
    rows = [f"| machine | {' | '.join(names)} |", "|---" * (len(FACTORS) + 1) + "|"]
    for name, slowed in MACHINES.items():
        told = []
        for factor in FACTORS:
            found = shares(slowed, factor, cells, runs, seed)
            told.append(" / ".join(f"{100 * share:.1f}" for share in found))
        rows.append(f"| {name} | {' | '.join(told)} |")
    return rows


@click.command()
@click.option("--runs", default=1000, show_default=True, help="Simulated pull requests a cell.")
@click.option("--seed", default=0, show_default=True)
def main(runs: int, seed: int) -> None:
    """Percent of runs that find the slower candidate / accuse another / cannot tell."""
    click.echo("\n".join(table(runs, seed)))


if __name__ == "__main__":
    main()
