"""Races as ``choose`` and ``report --claims`` store them, with times that are known beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from demopool.common import places
from demopool.measurement.code_identity import code_key
from demopool.problem.cases import Case
from demopool.profiles import store
from demopool.report.building import Built, build
from demopool.trials import samples
from demopool.trials.samples import Sample

ROUNDS = 15


def race(
    case: Case,
    times: Mapping[str, float],
    *,
    session: str,
    fingerprint: str = "",
    threads: int = 2,
    rounds: int = ROUNDS,
    spread: float = 0.01,
    seed: int = 0,
) -> Iterator[Sample]:
    """Samples in the order in which a race writes them; all candidates stay until the end."""
    noise = np.random.default_rng(seed)
    common = {"session": session, "threads": threads, "fingerprint": fingerprint or store._key()}
    for place, name in enumerate(times):
        of = (*name.split("/", 1), case)
        code = {"code": code_key(of[0])}
        yield Sample(*of, "error", 1e-7 * (1 + place), **common, **code)
        yield Sample(*of, "first_call_s", 10 * times[name], **common, **code)
        held = 4.0 * case.n * case.d * (1 + place)
        yield Sample(*of, "peak_host_bytes", held, **common, **code)
        yield Sample(*of, "calls", 1, **common, **code)
    for number in range(1, rounds + 1):
        for name, seconds in times.items():
            of = (*name.split("/", 1), case)
            code = {"code": code_key(of[0])}
            lowest = seconds * float(np.exp(spread * noise.standard_normal()))
            yield Sample(*of, "lowest_s", lowest, phase="round", round=number, **common, **code)
            yield Sample(*of, "mean_s", 1.1 * lowest, phase="round", round=number, **common, **code)


def claim(
    key: str,
    sides: Sequence[tuple[Case, Mapping[str, float]]],
    *,
    fingerprint: str = "",
    rounds: int = ROUNDS,
    spread: float = 0.01,
) -> Iterator[Sample]:
    """One race of the candidates of all sides; a measurement of memory is read thrice."""
    for number, (case, times) in enumerate(sides):
        options = {"fingerprint": fingerprint, "rounds": rounds, "spread": spread, "seed": number}
        for sample in race(case, times, session=f"claim:{key}:1", **options):
            yield sample
            if sample.measure == "peak_host_bytes":
                yield replace(sample, phase="round", round=2)
                yield replace(sample, phase="round", round=3)


def sweep(folder: Path) -> None:
    """Races over n, d and the batch, of another dtype, and of another machine."""
    over_n = [Case(n=n, d=64) for n in (49, 196, 784)]
    here = [*over_n, *(Case(n=196, d=d) for d in (256, 1024)), Case(n=784, d=256)]
    here += [Case(batch=b, n=196, d=256) for b in (4, 16)]
    here += [replace(case, dtype="float64") for case in over_n]
    jobs = [("", case) for case in here] + [("another-machine", case) for case in over_n]
    for number, (fingerprint, case) in enumerate(jobs):
        options = {"session": f"s{number}", "fingerprint": fingerprint}
        rows = race(case, _times(case), spread=0.2 if number % 4 == 3 else 0.01, **options)
        samples.append(folder / "samples" / f"{number}.jsonl", rows)


@contextmanager
def built(folder: Path) -> Iterator[Built]:
    """The report of a sweep, in a folder with a cache of its own and without asv results."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(places.VARIABLE, str(folder / "cache"))
        patch.chdir(folder)
        store.forget()
        sweep(folder / "cache")
        yield build(folder / "out")


def _times(case: Case) -> dict[str, float]:
    b, n, d = case.batch, case.n, case.d
    return {
        "numpy:cpu/dense": b * 1e-11 * n * n * d + 1e-5,
        "numba:cpu/dense": b * 1.01e-11 * n * n * d + 2e-5,
        "numpy:cpu/matrix-free": b * 1e-11 * n * d * d + 1e-5,
        "torch:cpu/dense": b * 2e-11 * n * n * d + 1e-4,
    }
