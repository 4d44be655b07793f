"""How often ``demopool history`` errs: ``python -m tools.history_errors`` simulates it.

Every run has one candidate with its baseline and the baselines of three other cases over 12
commits, with values of 10 ms and a noise of 4 %, on machines where the truth is known. Counted are
runs that fail (a regression is open) and runs that only suspect one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from demopool.report import history_plot
from demopool.results import history
from demopool.results.history import Point, Series
from demopool.results.history.confirming import LOOKS, judge

COMMITS = [40 * f"{number:x}" for number in range(12)]
NOISE = 0.04
SECONDS = 0.01
RATIO = 1.10

NONE = (1.0, len(COMMITS))
STEPS = {
    "none": NONE,
    "x1.42 at the newest": (1.42, 11),
    "x1.42 since three": (1.42, 9),
    "x2 at the newest": (2.0, 11),
    "x2 since three": (2.0, 9),
}
"""Planted: the factor, and the commit from which on it is there."""


class Commit(NamedTuple):
    """What the machine did to the values of one commit, and the load if it was written down."""

    candidate: float = 1.0
    baseline: float = 1.0
    others: float = 1.0
    load: float | None = None


Machine = Callable[[random.Random], list[Commit]]


def quiet(draw: random.Random) -> list[Commit]:
    return [Commit() for _ in COMMITS]


def _loaded(draw: random.Random, known: bool, share: float = 0.3) -> list[Commit]:
    """Other work slows a commit by 1.2 to 2.2; baselines and candidate feel it differently."""
    found = []
    for _ in COMMITS:
        if draw.random() < share:
            factor = draw.uniform(1.2, 2.2)
            felt = [factor ** draw.uniform(0.5, 1.5) for _ in range(3)]
            found.append(Commit(*felt)._replace(load=0.5 if known else None))
        else:
            found.append(Commit(load=0.02 if known else None))
    return found


def busy_known(draw: random.Random) -> list[Commit]:
    return _loaded(draw, known=True)


def busy_unknown(draw: random.Random) -> list[Commit]:
    return _loaded(draw, known=False)


def always_busy(draw: random.Random) -> list[Commit]:
    return _loaded(draw, known=True, share=1.0)


def bursts(draw: random.Random) -> list[Commit]:
    """Too short to be seen in the load; each value is hit alone, one in twelve, by 1.3 to 2.2."""

    def hit() -> float:
        return draw.uniform(1.3, 2.2) if draw.random() < 1 / 12 else 1.0

    return [Commit(hit(), hit(), hit(), 0.05) for _ in COMMITS]


def slower_machine(draw: random.Random) -> list[Commit]:
    """By 1.6 since three commits, felt nearly alike."""
    felt = [1.6 ** draw.uniform(0.85, 1.15) for _ in range(3)]
    since = Commit(*felt)._replace(load=0.05)
    return [since if n >= 9 else Commit(load=0.05) for n in range(len(COMMITS))]


def faster_machine(draw: random.Random) -> list[Commit]:
    felt = [(1 / 1.6) ** draw.uniform(0.85, 1.15) for _ in range(3)]
    since = Commit(*felt)._replace(load=0.05)
    return [since if n >= 9 else Commit(load=0.05) for n in range(len(COMMITS))]


def baseline_jumps(draw: random.Random) -> list[Commit]:
    """By 2.17 at the newest commit, alone."""
    return [*[Commit(load=0.05)] * (len(COMMITS) - 1), Commit(baseline=2.17, load=0.05)]


MACHINES: dict[str, Machine] = {
    "quiet": quiet,
    "3 of 10 commits beside others, load known": busy_known,
    "the same, load not known": busy_unknown,
    "every commit beside others": always_busy,
    "bursts: 1 value in 12 by 1.3 to 2.2": bursts,
    "x1.6 slower since three commits": slower_machine,
    "x1.6 faster since three commits": faster_machine,
    "the baseline jumps x2.17 at the newest": baseline_jumps,
}


def lines(
    machine: Machine, step: tuple[float, int], draw: random.Random, noise: float = NOISE
) -> list[Series]:
    """A candidate, its baseline, and others."""
    factor, since = step
    state = machine(draw)
    found = []
    cells = {("numpy:cpu/dense", "vgg-b1"): "candidate", ("baseline/plain", "vgg-b1"): "baseline"}
    cells |= {("baseline/plain", case): "others" for case in ("vgg-b8", "resnet-b1", "resnet-b8")}
    for (name, case), felt in cells.items():
        points = []
        for number, (commit, did) in enumerate(zip(COMMITS, state, strict=True)):
            value = SECONDS * getattr(did, felt) * max(0.5, 1.0 + draw.gauss(0.0, noise))
            value *= factor if felt == "candidate" and number >= since else 1.0
            points.append(Point(commit, None, value, load=did.load))
        found.append(
            Series(
                machine="simulated",
                environment=None,
                threads=1,
                benchmark="descriptors.Democratic.time_call",
                kind="descriptor",
                subject="democratic",
                measure="call_s",
                unit="seconds",
                candidate=name,
                case=case,
                parameters=None,
                points=tuple(points),
            )
        )
    return found


def rates(machine: Machine, step: tuple[float, int], runs: int, seed: int) -> tuple[float, float]:
    """Share of runs that fail, and of those that only suspect."""
    draw = random.Random(seed)
    failed = suspected = 0
    for _ in range(runs):
        found = history.regressions(lines(machine, step, draw), ratio=RATIO)
        states = {r.state for r in found if r.fixed_by is None}
        failed += "open" in states
        suspected += "suspect" in states and "open" not in states
    return failed / runs, suspected / runs


def hinted(factor: float, noise: float, runs: int, seed: int) -> tuple[float, float]:
    """Of quiet histories with that step for half of the commits: share that tell it, at a threshold
    of 1.05, and share that tell it or have --confirm measure it."""
    draw = random.Random(seed)
    told = tried = 0
    for _ in range(runs):
        made = lines(quiet, (factor, len(COMMITS) // 2), draw, noise)
        found = history.regressions(made, ratio=1.05)
        told += bool(found)
        tried += bool(found) or bool(history.hints(made, found, ratio=1.05))
    return told / runs, tried / runs


def confirmations(
    factor: float, burst: float, spread: float, runs: int, seed: int
) -> dict[str, float]:
    """Shares of verdicts of measuring again, where every value is hit by x1.3 to 2.2 so often."""
    draw = random.Random(seed)

    def value(true: float) -> float:
        hit = draw.uniform(1.3, 2.2) if draw.random() < burst else 1.0
        return SECONDS * true * hit * max(0.5, 1.0 + draw.gauss(0.0, spread))

    found = dict.fromkeys(("confirmed", "refuted", "undecided"), 0.0)
    for _ in range(runs):
        rounds: list[tuple[float, float]] = []
        for look in LOOKS:
            rounds += [(value(1.0), value(factor)) for _ in range(look - len(rounds))]
            answer = judge((COMMITS[0], COMMITS[-1]), rounds, RATIO)
            if answer is not None and answer.verdict != "undecided":
                break
        assert answer is not None
        found[answer.verdict] += 1 / runs
    return found


def table(runs: int, seed: int) -> Sequence[str]:
    """In Markdown."""
    rows = [f"| machine | {' | '.join(STEPS)} |", "|---" * (len(STEPS) + 1) + "|"]
    for name, machine in MACHINES.items():
        cells = []
        for step in STEPS.values():
            failed, suspected = rates(machine, step, runs, seed)
            cells.append(f"{100 * failed:.1f} / {100 * suspected:.1f}")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    rows += ["", "| rounds | x1 | x1.05 | x1.2 | x1.42 |", "|---" * 5 + "|"]
    for name, burst, spread in (
        ("noise of 4 %", 0.0, 0.04),
        ("noise of 8 %", 0.0, 0.08),
        ("4 %, 1 value in 12 by 1.3 to 2.2", 1 / 12, 0.04),
        ("4 %, 1 value in 3 by 1.3 to 2.2", 1 / 3, 0.04),
    ):
        cells = []
        for factor in (1.0, 1.05, 1.2, 1.42):
            shares = confirmations(factor, burst, spread, runs, seed)
            cells.append(" / ".join(f"{100 * share:.1f}" for share in shares.values()))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    rows += ["", "| noise | no step | x1.1 for half of the commits |", "|---" * 3 + "|"]
    for noise in (0.015, 0.025, 0.04):
        hints = [hinted(factor, noise, runs, seed) for factor in (1.0, 1.1)]
        cells = [f"{100 * told:.1f} / {100 * tried:.1f}" for told, tried in hints]
        rows.append(f"| {100 * noise:.1f} % | {' | '.join(cells)} |")
    return rows


def draw_one(file: Path, seed: int) -> None:
    """Left a commit that made a candidate slower, right a machine that became slower."""
    draw = random.Random(seed)
    shown = []
    for case, machine, step in (
        ("vgg-b1", busy_known, (1.42, 6)),
        ("vgg-b8", slower_machine, NONE),
    ):
        shown += [replace(one, case=case) for one in lines(machine, step, draw)[:2]]
    found = {one: history.steps(one, history.Thresholds()) for one in shown}
    history_plot.draw(shown, COMMITS, found, file)


@click.command()
@click.option("--runs", default=1000, show_default=True, help="Simulated histories a cell.")
@click.option("--seed", default=0, show_default=True)
@click.option("--png", type=click.Path(path_type=Path), help="Only draw one such history.")
def main(runs: int, seed: int, png: Path | None) -> None:
    """Percent of runs that fail / only suspect; confirmed / refuted / undecided; told / tried."""
    if png is not None:
        draw_one(png, seed)
        return
    click.echo("\n".join(table(runs, seed)))


if __name__ == "__main__":
    main()
