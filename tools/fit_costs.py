"""Fit the cost model's coefficients to this machine: prints the entry for ``costs.json``.

Times every (operation, route) of a backend on a grid of sizes and solves, with coefficients >= 0,
for the seconds per unit of work that fit best relative to each time.

    python -m tools.fit_costs numpy:cpu
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy.optimize import nnls

import demopool as dp
from demopool import capabilities, costs
from demopool.routes import ROUTES, Sizes

GRID = [(49, 64), (196, 64), (784, 64), (3136, 64), (49, 512), (196, 512), (784, 512), (3136, 128)]
LONGEST = 2.0


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else "numpy:cpu"
    console = Console(stderr=True)
    fitted = {}
    for dtype in ("float32", "float64"):
        rows, times, names = [], [], []
        for n, d in track(GRID, dtype, console=console, transient=True):
            case = dp.Case(n=n, d=d, dtype=dtype)
            for route in ROUTES:
                if route.operation == "normalize" or not _fits(backend, route, case):
                    continue
                seconds = _time(_call(backend, route.operation, route.name, case))
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
    print(json.dumps({backend: {"whole_batch": False, "seconds": fitted}}, indent=2))


def _fits(backend: str, route: Any, case: dp.Case) -> bool:
    supported = capabilities.supports(
        backend,
        route.operation,
        route=route.name,
        dtype=case.dtype,
        sizes=Sizes(case.n, case.d, case.p),
    )
    return bool(supported) and costs.seconds(backend, route.operation, route.name, case) < LONGEST


def _call(backend: str, operation: str, route: str, case: dp.Case) -> Callable[[], Any]:
    ops = dp.backend(backend)
    rng = np.random.default_rng(0)
    X = ops.asarray(rng.standard_normal((case.n, case.d)).astype(case.dtype))
    h = ops.prepare(dp.hashes(case.d, case.k))
    arguments: dict[str, tuple[Any, ...]] = {
        "pool": (X, ops.weights(X)),
        "sketch": (X, h),
        "pool_sketch": (X, h),
        "matrix_power": (ops.pool(X),),
        "power_sketch": (X, h),
    }
    options = {} if operation in ("pool", "sketch") else {"route": route}

    def call() -> None:
        getattr(ops, operation)(*arguments.get(operation, (X,)), **options)
        ops.synchronize()

    return call


def _time(call: Callable[[], Any]) -> float:
    """Lowest of a few calls: what the work costs when nobody disturbs."""
    call()
    found: list[float] = []
    end = time.perf_counter() + 0.15
    while len(found) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


if __name__ == "__main__":
    main()
