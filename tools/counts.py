"""``make counts``: instructions and cache misses of every CPU candidate, for noisy machines.

Times on a shared machine move by 10 %; these counts hardly move at all, so they show a change of
0.5 % in the code's own work. They do not see memory bandwidth, threads, the clock frequency, the
wider vectors of another CPU, or GPUs: what is fastest is decided by times.

    python -m tools.counts --descriptor democratic --backend numpy:cpu
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import demopool
from benchmarks.counts import CASE, counted_candidates, load, made
from benchmarks.suite import BASELINE
from demopool.commands.output import console, progress
from demopool.common.program import EXIT_INTERRUPTED, EXIT_WRONG
from demopool.measurement import counting
from demopool.measurement.worker import Answer
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import NAMED, named
from demopool.problem.vocabulary import DESCRIPTORS, TIMED_BACKENDS, State
from demopool.profiles.eligibility import NO_LIMITS, ineligible

BACKENDS = (BASELINE.backend, *(backend for backend in TIMED_BACKENDS if backend.on_host))
MEANT = (State.UNAVAILABLE, State.UNSUPPORTED)
"""States of what cannot run here at all; that it was not counted is no fault."""

Found = dict[tuple[str, str], Answer]
"""By descriptor and candidate."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--descriptor",
    "descriptors",
    type=click.Choice([*map(str, DESCRIPTORS)]),
    multiple=True,
    help="Only this one; can be repeated.",
)
@click.option(
    "--backend",
    "backends",
    type=click.Choice([*map(str, BACKENDS)]),
    multiple=True,
    help="Only this one; can be repeated.",
)
@click.option("--case", type=click.Choice([*NAMED]), default=CASE, show_default=True)
def main(descriptors: tuple[str, ...], backends: tuple[str, ...], case: str) -> None:
    """Count instructions and cache misses of every CPU candidate with valgrind.

    All are counted on one thread, a small case and a simulated CPU with 32 kB and 1 MB of cache.
    Counting is slow: everything takes several minutes. The exit code
    is 1 if something that can run here could not be counted; Ctrl-C shows what has been counted.

    Example: python -m tools.counts --descriptor democratic --backend numpy:cpu
    """
    reason = counting.refusal()
    if reason is not None:
        raise click.ClickException(f"nothing can be counted: {reason}")
    found: Found = {}
    jobs = [
        (descriptor, candidate)
        for backend in backends or BACKENDS
        for descriptor in descriptors or DESCRIPTORS
        for candidate in counted_candidates(descriptor)
        if Candidate.parse(candidate).backend == backend
    ]
    stopped = False
    with progress("counting") as report:
        report(0, len(jobs), "starting")
        try:
            for (descriptor, candidate), answer in count_all(jobs, case):
                found[descriptor, candidate] = answer
                report(len(found), len(jobs), f"{descriptor} {candidate}")
        except KeyboardInterrupt:
            stopped = True
    show(found, case, console())
    if stopped:
        console(stderr=True).print(f"Interrupted: {len(found)} of {len(jobs)} candidates.")
        sys.exit(EXIT_INTERRUPTED)
    lost = [a for a in found.values() if a.state is not State.OK and a.state not in MEANT]
    sys.exit(EXIT_WRONG if lost else 0)


def count_all(jobs: list[tuple[str, str]], case: str) -> Iterator[tuple[tuple[str, str], Answer]]:
    """One process under valgrind for each backend, which imports its library once."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for job in jobs:
        refused = _refused(*job, case)
        if refused is None:
            groups.setdefault(Candidate.parse(job[1]).backend, []).append(job)
        else:
            yield job, refused
    for group in groups.values():
        asked = [(*job, case) for job in group]
        answers = counting.count_each(made, asked, before=(load, (group[0][1],)), caches=True)
        yield from zip(group, answers, strict=True)


def _refused(descriptor: str, name: str, case: str) -> Answer | None:
    """Why it cannot run here, as everywhere else."""
    candidate = Candidate.parse(name)
    if name == str(BASELINE):
        return None
    subject = Subject("descriptor", descriptor)
    found = ineligible(subject, candidate, named(case), NO_LIMITS, package=demopool)
    return Answer(found[0], None, found[1]) if found else None


def show(found: Found, case: str, screen: Console) -> None:
    """A table for each descriptor, the fewest instructions first; then why others are absent."""
    for descriptor in DESCRIPTORS:
        rows = {
            candidate: answer.value
            for (name, candidate), answer in found.items()
            if name == descriptor and answer.value is not None
        }
        if rows:
            screen.print(_table(f"descriptor {descriptor}, {case}", rows))
    reasons: dict[str, list[str]] = {}
    for job, answer in found.items():
        if answer.value is None:
            reasons.setdefault(answer.reason, []).append(" ".join(job))
    for reason, absent in reasons.items():
        screen.print(f"Not counted: {', '.join(absent)}: {reason}.")
    screen.print(
        "Per call, on one thread; LL is the last level of cache. Not seen: memory bandwidth, "
        "threads, clock frequency, the wider vectors of another CPU, GPUs."
    )


def _table(title: str, rows: dict[str, counting.Counts]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("candidate", overflow="fold")
    for heading in ("instructions", "x base", "L1 misses", "LL misses"):
        table.add_column(heading, justify="right", no_wrap=True)
    baseline = rows.get(str(BASELINE))
    for candidate, counts in sorted(rows.items(), key=lambda row: row[1].instructions):
        ratio = f"{counts.instructions / baseline.instructions:.3g}" if baseline else "-"
        misses = (f"{number:,}" for number in (counts.d1_misses, counts.last_level_misses))
        table.add_row(candidate, f"{counts.instructions:,}", ratio, *misses)
    return table


if __name__ == "__main__":
    main()
