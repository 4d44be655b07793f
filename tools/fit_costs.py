"""Fit the cost model's coefficients to this machine and print the entry for ``costs.json``.

It times every (operation, route) of a backend on a grid of sizes and solves for the seconds per
unit of work, with coefficients >= 0, that minimise the relative errors.

    python -m tools.fit_costs numpy:cpu
"""

from __future__ import annotations

import json
import sys

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy.optimize import nnls

import demopool as dp
from demopool.measurement.clock import Clock
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.routes import ROUTES
from demopool.problem.vocabulary import RESULT_DTYPES, Backend
from demopool.profiles import costs
from demopool.profiles.eligibility import CallLimits, ineligible
from demopool.trials import jobs

GRID = [(49, 64), (196, 64), (784, 64), (3136, 64), (49, 512), (196, 512), (784, 512), (3136, 128)]
LONGEST = 2.0


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else "numpy:cpu"
    console = Console(stderr=True)
    fitted = {}
    for dtype in RESULT_DTYPES:
        rows, times, names = [], [], []
        for n, d in track(GRID, dtype, console=console, transient=True):
            case = dp.Case(n=n, d=d, dtype=dtype)
            for route in ROUTES:
                seconds = _seconds(backend, route.operation, route.name, case)
                if route.operation == "normalize" or seconds is None:
                    continue
                counts = costs.work(route.operation, route.name, case).counts
                rows.append([counts.get(kind, 0.0) / seconds for kind in costs.KINDS])
                times.append(seconds)
                names.append(f"{route.operation} {route.name} n={n} d={d}")
        found, _ = nnls(np.array(rows), np.ones(len(rows)))
        fitted[dtype] = {
            kind: float(f"{c:.3g}") for kind, c in zip(costs.KINDS, found, strict=True)
        }
        ratios = np.array(rows) @ found
        for name, seconds, ratio in sorted(
            zip(names, times, ratios, strict=True), key=lambda r: r[2]
        ):
            console.print(
                f"{dtype} predicted/measured {ratio:6.2f}  {seconds * 1e3:9.3f} ms  {name}"
            )
    shipped = {"whole_batch": False, "batched_calls": Backend(backend).library != "numpy"}
    print(json.dumps({backend: {**shipped, "seconds": fitted}}, indent=2))


def _seconds(backend: str, operation: str, route: str, case: dp.Case) -> float | None:
    """The minimum time of a few calls, that is without disturbance; None if it cannot run."""
    subject, candidate = Subject("operation", operation), Candidate(backend, route)
    if ineligible(subject, candidate, case, CallLimits(seconds=LONGEST), package=dp):
        return None
    job = jobs.prepare(dp, subject, candidate, case)
    timing = Clock(job.device).time(job.run, seconds=0.15, warm_up=0.0)
    return min(reading.wall for reading in timing.readings)


if __name__ == "__main__":
    main()
