"""``demopool pool`` against a loop written by hand: ``python -m tools.pool_ratio --images 2000``.

Makes a folder of conv maps (512 x 28 x 28, float16), measures which candidate is the fastest for
them, and takes turns: one ``demopool pool`` command, and a script with a loop of that candidate
over the same maps, whose time to load the maps does not count. The figure is the least time of the
one over the least time of the other, from start to end of both processes; then the command over the
loop alone, and the units of the command over the loop alone. Also: the peak memory of the
command, the same file after kills at random moments, how much faster two processes are than one,
and how many units a second a scheduler can give out.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

import demopool as dp
from demopool.commands.output import size_in_bytes
from demopool.common.places import VARIABLE
from demopool.common.units import readable
from demopool.datasets import cluster
from demopool.datasets.journal import Journal
from demopool.datasets.planning import Plan
from demopool.datasets.units import Record
from demopool.problem.vocabulary import Descriptor, Dtype

SHAPE = (512, 28, 28)
BAR = 1.15
LOOP = """
import sys, time
from pathlib import Path
import numpy as np
import demopool as dp
folder, backend, route = sys.argv[1:]
begin = time.perf_counter()
maps = np.stack([np.load(path) for path in sorted(Path(folder).iterdir())])
options = dict(layout="nchw", backend=backend, route=route, zero_rows="ignore")
out = np.empty((len(maps), 8192), np.float32)
loading = time.perf_counter() - begin
dp.describe(maps[:8], "sketched-democratic", **options)
begin = time.perf_counter()
for start in range(0, len(maps), 8):
    out[start : start + 8] = dp.describe(maps[start : start + 8], "sketched-democratic", **options)
print(loading, time.perf_counter() - begin)
"""


class Loop(NamedTuple):
    """Time of the process without loading the maps; of its loop alone."""

    seconds: float
    loop_s: float


class Run(NamedTuple):
    """Time from start to end of the process; of its units alone; its peak."""

    seconds: float
    units_s: float
    peak_bytes: int


@click.command()
@click.option("--images", type=click.IntRange(8), default=2000, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=3, show_default=True)
@click.option("--kills", type=click.IntRange(0), default=20, show_default=True)
@click.option("--jobs/--no-jobs", default=True, show_default=True, help="Compare --jobs too.")
@click.option("--memory", default="1GB", show_default=True, help="Of the command.")
@click.option("--budget", default=20.0, show_default=True, help="Seconds to find the candidate.")
def main(images: int, turns: int, kills: int, jobs: bool, memory: str, budget: float) -> None:
    """Compare one `demopool pool` command with a loop over maps in memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ[VARIABLE] = str(folder / "cache")  # what is measured here stays here
        make_maps(folder / "maps", images)
        d, height, width = SHAPE
        case = dp.Case(
            Descriptor("sketched-democratic"),
            batch=8,
            n=height * width,
            d=d,
            dtype=Dtype("float16"),
        )
        chosen = dp.choose(case, budget=budget).candidate
        if chosen is None:
            raise click.ClickException("No candidate could be measured; give a larger --budget.")
        click.echo(f"{images} maps, {readable(images * 2 * math.prod(SHAPE), 'memory')}: {chosen}")
        loop = [sys.executable, "-c", LOOP, str(folder / "maps"), chosen.backend, chosen.route]
        loops, commands = [], []
        for _ in range(turns):
            commands.append(pooled(folder, "out.npy", memory))
            loops.append(looped(loop))
        command_s = min(run.seconds for run in commands)
        ratio = command_s / min(one.seconds for one in loops)
        loop_s = min(one.loop_s for one in loops)
        units_s = min(run.units_s for run in commands)
        click.echo(f"command / script with the maps in memory: {ratio:.2f} (at most {BAR})")
        click.echo(f"command / loop alone: {command_s / loop_s:.2f}")
        click.echo(f"units of the command / loop alone: {units_s / loop_s:.2f}")
        click.echo(f"without --jobs: {images / units_s:.3g} images/s")
        peak, limit = max(run.peak_bytes for run in commands), size_in_bytes("--memory", memory)
        click.echo(f"peak memory: {readable(peak, 'memory')} (at most {memory})")
        if jobs:
            one, two = (
                min(pooled(folder, f"{n}.npy", memory, "--jobs", n).units_s for _ in range(turns))
                for n in ("1", "2")
            )
            click.echo(
                f"--jobs 1: {images / one:.3g} images/s, --jobs 2: {images / two:.3g}, "
                f"time of --jobs 2 / --jobs 1: {two / one:.2f}"
            )
            click.echo(
                f"units that do nothing, by a cluster of two: {units_per_second():.3g} a second"
            )
        moments = random.Random(0)
        for _ in range(kills):
            killed(command_of(folder, "killed.npy", memory), moments.uniform(0, command_s))
        pooled(folder, "killed.npy", memory, fresh=False)
        same = digest(folder / "killed.npy") == digest(folder / "out.npy")
        click.echo(f"after {kills} kills: {'the same file' if same else 'ANOTHER FILE'}")
        if not same:
            tell_difference(folder / "out.npy", folder / "killed.npy")
        sys.exit(0 if same and ratio <= BAR and peak <= limit else 1)


def make_maps(folder: Path, images: int) -> None:
    """Rectified noise, as a network's last maps look."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(images):
        values = np.maximum(rng.standard_normal(SHAPE, dtype=np.float32), 0)
        np.save(folder / f"{number:06}.npy", values.astype(np.float16))
    os.sync()  # not while others are timed


def command_of(folder: Path, output: str, memory: str) -> list[str]:
    """Run as a user runs it, in a process of its own."""
    where = [str(folder / "maps"), "-o", str(folder / output), "--layout", "nchw"]
    what = ["--descriptor", "sketched-democratic", "--memory", memory]
    return [sys.executable, "-m", "demopool", "pool", *where, *what]


def pooled(folder: Path, output: str, memory: str, *options: str, fresh: bool = True) -> Run:
    """Run it to its end."""
    command = [*command_of(folder, output, memory), *options, *["--fresh"] * fresh]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with exit code {process.returncode}")
    seconds = time.perf_counter() - begin
    notes = json.loads((folder / f"{output}.json").read_text())
    return Run(seconds, notes["seconds"] - notes["starting_s"], usage.ru_maxrss * 1024)


def looped(command: list[str]) -> Loop:
    begin = time.perf_counter()
    loading, loop_s = map(float, subprocess.check_output(command, text=True).split())
    return Loop(time.perf_counter() - begin - loading, loop_s)


def units_per_second(units: int = 500) -> float:
    """What the scheduler and the journal allow, whatever the units do."""
    distributed: Any = import_module("distributed")
    with tempfile.TemporaryDirectory() as folder, cluster.client_of(2, None) as client:
        journal = Journal(Path(folder) / "out.npy")
        journal.clear()
        journal.begin({}, Plan(units, 1, "float32", 1, 0, ()))
        done = distributed.as_completed([client.submit(int, -worker) for worker in (1, 2)])
        begin = time.perf_counter()
        for number in range(units):
            next(done).result()
            journal.append(Record(number, 1))
            done.add(client.submit(int, number))
        seconds = time.perf_counter() - begin
        journal.close()
    return units / seconds


def killed(command: list[str], after: float) -> None:
    """With SIGKILL, unless it ends before."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tell_difference(one: Path, other: Path) -> None:
    """Which rows, by how much, and how both files were made."""
    a, b = (np.load(path, mmap_mode="r") for path in (one, other))
    rows = np.flatnonzero((a != b).any(axis=-1))
    most = np.abs(a - b).max()
    click.echo(f"{len(rows)} rows differ, by up to {most:.2g}; the first are {rows[:10].tolist()}")
    for path in (one, other):
        notes = json.loads(path.with_name(f"{path.name}.json").read_text())
        click.echo(f"{path.name}: {notes['decisions']}, units of {notes['unit_images']} images")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
