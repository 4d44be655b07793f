"""How good is ``auto`` on sizes that were never measured? ``python -m tools.held_out``

It measures a grid of cases with ``choose`` into a separate profile, asks ``auto`` for sizes between
and beyond them, and only then measures all candidates on those. The figure is the share of held-out
sizes where the candidate that auto selected takes at most 1.3 times as long as the fastest one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import click

import demopool as dp
from demopool.choosing.runners import Workers
from demopool.common import places
from demopool.common.units import readable
from demopool.machine.system import usable_cores
from demopool.problem import vocabulary
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.profiles import store

WITHIN, SHARE = 1.3, 0.9
DESCRIPTORS = ("democratic", "sketched-democratic", "power")
MEASURED = (
    *((1, 49, 64), (1, 196, 512), (8, 784, 128), (1, 1568, 256), (16, 49, 256), (1, 196, 1024)),
)
HELD_OUT = (
    *((1, 100, 128), (4, 400, 256), (1, 2500, 64), (32, 64, 128), (1, 300, 700), (2, 1000, 100)),
    *((8, 150, 400), (1, 600, 600), (64, 36, 64), (1, 30, 1500)),
)


def cases(descriptors: tuple[str, ...], sizes: tuple[tuple[int, int, int], ...]) -> Iterator[Case]:
    for descriptor in descriptors:
        for batch, n, d in sizes:
            yield Case(descriptor=vocabulary.Descriptor(descriptor), batch=batch, n=n, d=d)


@click.command()
@click.option("--budget", default=3.0, show_default=True, help="Seconds per case.")
@click.option(
    "--descriptor",
    "descriptors",
    multiple=True,
    default=DESCRIPTORS,
    show_default=True,
    type=click.Choice(vocabulary.DESCRIPTORS),
)
def main(budget: float, descriptors: tuple[str, ...]) -> None:
    """Test auto on held-out sizes; all descriptors take a quarter of an hour."""
    good = total = 0
    with tempfile.TemporaryDirectory() as folder, Workers(usable_cores()) as workers:
        os.environ[places.VARIABLE] = folder
        for case in cases(descriptors, MEASURED):
            found = dp.choose(case, budget=budget, save=False, workers=workers)
            store.remember(found)
            click.echo(f"measured {_job(case)}: {found.candidate}", err=True)
        for case in cases(descriptors, HELD_OUT):
            picked = dp.explain((case.batch, case.n, case.d), case.descriptor)
            found = dp.choose(case, budget=budget, save=False, workers=workers)
            times = {(r.backend, r.route): r.median_s for r in found.rows if r.median_s}
            took = times.get((picked.backend, picked.route))
            best = min(times, key=lambda name: times[name])
            ratio = float("inf") if took is None else took / times[best]
            total += 1
            good += ratio <= WITHIN
            name = str(Candidate(picked.backend, picked.route))
            click.echo(
                f"{_job(case):40}  {name:34} {readable(took, 'time'):>8}  "
                f"{ratio:5.2f}x of {'/'.join(best)}"
            )
    click.echo(f"within {WITHIN}x of the best: {good} of {total} ({good / max(total, 1):.0%})")
    sys.exit(0 if good >= SHARE * total else 1)


def _job(case: Case) -> str:
    return f"{case.descriptor} {case.batch} x {case.n} x {case.d}"


if __name__ == "__main__":
    main()
