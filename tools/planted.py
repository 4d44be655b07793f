"""Does ``demopool history --confirm`` name what was planted? ``python -m tools.planted`` tries it.

On a copy of this repository one commit makes a candidate 10 % slower, one lets another need 5 MB
more, one breaks the import of a backend, one makes a result wrong, and later ones mend each; the
commits between change nothing. asv measures them all beside two busy processes. A repetition is
right if history names exactly these: at the last bad commit what is wrong and where it came from,
at the end what was mended and by which commit. With ``--nothing`` no commit changes anything, and
nothing may be named.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.harness import ROOT
from demopool.problem.candidates import Candidate

from .asv_process import follow

RATIO = 1.05
"""Of ``--ratio``: half of what is to be seen. At 1.10 itself noise would decide about +10 %."""
CELLS = (
    r"^scaling_n\.Democratic\.time_call\('(baseline/plain|(numpy|torch):cpu/dense)', 196\)$",
    r"^scaling_n\.Sum\.time_call\('(baseline/plain|numpy:cpu/direct)', 16\)$",
    r"^scaling_n\.Democratic\.track_peak_host_bytes\('numpy:cpu/(dense|matrix-free)', 16\)$",
    r"^descriptors\.Sum\.track_error\('(numpy|torch):cpu/direct', 'vgg-b1'\)$",
)
"""Calls of about a millisecond: they often end before another process gets the core, and 10 % of
them is still more than the least time that counts."""


class Plant(NamedTuple):
    """What a commit does to a file; the text must be there once, and so must the new one later.

    Named by history are the quantity and the candidate.
    """

    quantity: str
    candidate: str
    file: str
    old: str
    new: str


_DESCRIBE = "src/demopool/pooling/description.py"
PLANTS = {
    "slow": Plant(
        "time",
        "numpy:cpu/dense",
        _DESCRIBE,
        "\ndef describe(\n",
        """
def describe(*given: Any, **named: Any) -> Any:
    from time import perf_counter

    start = perf_counter()
    found = _describe(*given, **named)
    if (named.get("backend"), named.get("route")) == ("numpy:cpu", "dense"):
        end = perf_counter() + 0.10 * (perf_counter() - start)
        while perf_counter() < end:
            pass
    return found


def _describe(
""",
    ),
    "fat": Plant(
        "memory",
        "numpy:cpu/matrix-free",
        _DESCRIBE,
        "\n    split = None\n",
        """
    if (backend, route) == ("numpy:cpu", "matrix-free"):
        fat = np.ones(5_000_000, np.int8)  # noqa: F841
    split = None
""",
    ),
    "gone": Plant(
        "lost",
        "torch:cpu",
        "implementations/torch_any/implementation.py",
        "import torch\n",
        "import torch\nimport planted_and_missing\n",
    ),
    "wrong": Plant(
        "error",
        "numpy:cpu/direct",
        "implementations/numpy_cpu/pool.py",
        "            blas.weighted_outer(image, weights, pooled[index])\n",
        "            blas.weighted_outer(image, weights, pooled[index])\n"
        "            pooled[index][0, 0] *= 1 if a is not None else 2\n",
    ),
}
BAD = ("", "", "", "", "slow", "", "fat", "gone", "wrong", "")
MENDED = ("-slow", "", "-fat", "-gone", "-wrong", "")
"""What each commit does: plant, mend (-), or nothing."""
NOTHING = ("",) * 10

BASE = "planted-upon"
"""A tag: later repetitions have the same commits, however this repository goes on."""

Named = frozenset[tuple[str, str, str, str | None]]
"""Quantity, candidate, the commit that did it, and the one that mended it."""


class Copy(NamedTuple):
    """A repository with planted commits; ``steps`` are their hashes in order, ``bad`` how many
    come before the first that mends."""

    folder: Path
    steps: list[tuple[str, str]]
    bad: int

    def commit(self, name: str) -> str:
        return next(commit for step, commit in self.steps if step == name)


def planted(folder: Path, steps: Sequence[str], bad: int) -> Copy:
    """The same commits each time, so what asv has built of them can be used again."""
    if not folder.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        _git(folder, "tag", BASE)
    _git(folder, "checkout", "--quiet", "--force", "--detach", BASE)
    settings = folder / "asv.conf.json"
    # One thread: two would wait for each other wherever the machine is busy.
    settings.write_text(
        settings.read_text().replace('_NUM_THREADS": ["2"]', '_NUM_THREADS": ["1"]')
    )
    made = []
    for number, step in enumerate(steps):
        (folder / "planted.txt").write_text(f"{number} {step}\n")
        if step:
            plant = PLANTS[step.removeprefix("-")]
            texts = (plant.new, plant.old) if step.startswith("-") else (plant.old, plant.new)
            replace_once(folder / plant.file, *texts)
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "--message", step or "nothing")
        made.append((step, _git(folder, "rev-parse", "HEAD")))
    return Copy(folder, made, bad)


def replace_once(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    if text.count(old) != 1:
        raise click.ClickException(f"{file.name} must have this text once: {old.strip()!r}")
    file.write_text(text.replace(old, new))


def _git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_NAME": "planted" for role in ("AUTHOR", "COMMITTER")}
    who |= {f"GIT_{role}_EMAIL": "planted@localhost" for role in ("AUTHOR", "COMMITTER")}
    when = {f"GIT_{role}_DATE": "2026-01-02T03:04:05+00:00" for role in ("AUTHOR", "COMMITTER")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **who, **when},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many other processes that never wait; they end with this one, whatever ends it."""
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(9999))"
    spinning = [sys.executable, "-c", spin]
    # Linux may share the cores among sessions: in one together they would count as one.
    others = [subprocess.Popen(spinning, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def repetition(copy: Copy, ratio: float, kept: Path) -> dict[str, Any]:
    """Measured anew, and what history says at the last bad commit and at the end."""
    results = copy.folder / ".asv" / "results"
    shutil.rmtree(results, ignore_errors=True)
    start, end = copy.steps[0][1], copy.steps[-1][1]
    chosen = [part for cell in CELLS for part in ("--bench", cell)]
    began = time.monotonic()
    _git(copy.folder, "checkout", "--quiet", "--force", end)
    command = ["asv", "run", "--record-samples", *chosen, f"{start}^..{end}"]
    code, output = _run(copy, command)
    if code not in (0, 2):
        raise click.ClickException(f"asv failed with code {code}:\n{output[-3000:]}")
    found: dict[str, Any] = {"measuring_s": round(time.monotonic() - began), "history": []}
    for commit in dict.fromkeys((copy.steps[copy.bad - 1][1], end)):
        _git(copy.folder, "checkout", "--quiet", "--force", commit)
        command = ["-P", "-m", "demopool", "history", "--confirm", "--ratio", str(ratio), "--json"]
        environment = {**os.environ, "HOME": _home(copy)}
        done = subprocess.run(
            [sys.executable, *command],
            cwd=copy.folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise click.ClickException(f"demopool history failed:\n{done.stderr[-3000:]}")
        said = json.loads(done.stdout)
        found["history"].append({name: said[name] for name in ("regressions", "lost")})
    found["seconds"] = round(time.monotonic() - began)
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(results, kept)
    return found


def _run(copy: Copy, command: Sequence[str]) -> tuple[int, str]:
    before = Path.cwd()
    os.chdir(copy.folder)
    try:
        run = ["env", f"HOME={_home(copy)}", sys.executable, "-m", *command]
        return follow(run, lambda count, what: None)
    finally:
        os.chdir(before)


def _home(copy: Copy) -> str:
    """asv's list of machines is not the user's."""
    home = copy.folder.parent / "home"
    home.mkdir(exist_ok=True)
    return str(home)


# --- judging ---


def expected(copy: Copy) -> list[Named]:
    """At the last bad commit, and at the end."""
    if not any(step for step, _ in copy.steps):
        return [frozenset()]
    found = []
    for mended in (False, True):
        found.append(
            frozenset(
                (
                    p.quantity,
                    p.candidate,
                    copy.commit(name),
                    copy.commit(f"-{name}") if mended else None,
                )
                for name, p in PLANTS.items()
            )
        )
    return found


def named(said: Mapping[str, Any]) -> Named:
    """What history calls a regression, or only suspects; not what it puts down to the machine."""
    kinds = {"call_s": "time", "peak_host_bytes": "memory", "error": "error"}
    found: set[tuple[str, str, str, str | None]] = {
        (kinds[row["measure"]], row["candidate"], row["commit"], row["fixed_by"])
        for row in said["regressions"]
        if row["state"] in ("open", "confirmed", "suspect", "fixed")
    }
    for row in said["lost"]:
        if not row["by_machine"]:
            backend = Candidate.parse(row["candidate"]).backend
            found.add(("lost", backend, row["since"], row["fixed_by"]))
    return frozenset(found)


def judged(copy: Copy, repetition: Mapping[str, Any]) -> dict[str, Any]:
    """Whether all was named, what was not, and what was named besides."""
    names = {commit: step or f"nothing {n}" for n, (step, commit) in enumerate(copy.steps)}
    missing, besides = [], []
    for wanted, said in zip(expected(copy), repetition["history"], strict=True):
        got = named(said)
        missing += [_words(one, names) for one in sorted(wanted - got, key=str)]
        besides += [_words(one, names) for one in sorted(got - wanted, key=str)]
    return {"right": not missing and not besides, "missing": missing, "besides": besides}


def _words(one: tuple[str, str, str, str | None], names: Mapping[str, str]) -> str:
    quantity, candidate, commit, fixed = one
    outcome = f", fixed by {names.get(fixed, fixed)}" if fixed else ""
    return f"{quantity} of {candidate} at {names.get(commit, commit)}{outcome}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repetitions", default=10, show_default=True, help="In all, earlier ones included.")
@click.option("--nothing", is_flag=True, help="Commits that change nothing: nothing may be named.")
@click.option("--ratio", default=RATIO, show_default=True, help="That history is called with.")
@click.option("--busy", "others", default=2, show_default=True, help="Busy processes beside it.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(tempfile.gettempdir(), "demopool-planted"),
    show_default=True,
    help="For the copy and for what was found; repetitions that are there are not done again.",
)
def main(repetitions: int, nothing: bool, ratio: float, others: int, folder: Path) -> None:
    """Measure planted changes on a copy of this repository, and judge what history says.

    \b
    python -m tools.planted --repetitions 10
    python -m tools.planted --repetitions 10 --nothing
    """
    kind = "nothing" if nothing else "planted"
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    steps, bad = (NOTHING, len(NOTHING)) if nothing else ((*BAD, *MENDED), len(BAD))
    copy = planted(folder / f"copy-{kind}", steps, bad)
    file = folder / f"{kind}.jsonl"
    errors = Console(stderr=True, highlight=False, markup=False)
    with busy(others):
        for number in range(len(_read(file)), repetitions):
            found = repetition(copy, ratio, folder / f"{kind}-{number}")
            found = {"commit": _git(ROOT, "rev-parse", "HEAD"), **judged(copy, found), **found}
            with file.open("a") as lines:
                lines.write(json.dumps(found) + "\n")
            said = "right" if found["right"] else "; ".join(found["missing"] + found["besides"])
            errors.print(f"[{number + 1}/{repetitions}] {found['seconds']} s: {said}")
    show(_read(file), kind)


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def show(found: Sequence[Mapping[str, Any]], kind: str) -> None:
    screen = Console(highlight=False, markup=False, width=120)
    table = Table("repetition", "seconds", "right", "not named", "named besides")
    for number, one in enumerate(found):
        cells = [str(number + 1), str(one["seconds"]), "yes" if one["right"] else "no"]
        table.add_row(*cells, "\n".join(one["missing"]), "\n".join(one["besides"]))
    screen.print(table)
    screen.print(f"{kind}: {sum(one['right'] for one in found)} of {len(found)} right.")


if __name__ == "__main__":
    main()
