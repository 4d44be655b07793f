"""Times in turns, and peaks of memory in a process of their own."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from demopool.contract.device import Host
from demopool.machine.system import usable_cores
from demopool.measurement.clock import Clock
from demopool.measurement.memory import peak_host_bytes
from demopool.measurement.worker import Worker
from tools.ratios import numba_cpu, numpy_cpu, torch_cpu
from tools.ratios.rows import Call, Ratio

BACKENDS = {module.NAME: module for module in (numpy_cpu, numba_cpu, torch_cpu)}
SECONDS_PER_RATIO = 3.0

# Longer than the 93 ms that threads of OpenBLAS spin after a call, measured here.
PAUSE = 0.12

# glibc requests more from the system than a call asks for, and more each time memory was returned:
# 10 MB of slack that say nothing about the code. Not used for timing, which it would slow down.
EXACT_HEAP = {"MALLOC_TOP_PAD_": "0"}


def measure(backend: str, console: Console) -> None:
    """Print every row of a backend, with what was missed."""
    table = Table(title=f"{backend}, float32")
    for heading in ("job", "against", "ratio", "spread", "bar", ""):
        table.add_column(
            heading, justify="right" if heading in ("ratio", "spread", "bar") else "left"
        )
    missed = 0
    for row in track(BACKENDS[backend].ratios(), "timing", console=console, transient=True):
        low, ratio, high = _quartiles(row)
        missed += ratio > row.bar
        verdict = "ok" if ratio <= row.bar else "missed"
        spread = f"{low:.3g}-{high:.3g}"
        table.add_row(row.job, row.baseline, f"{ratio:.3g}", spread, f"<= {row.bar:.3g}", verdict)
    with Worker(usable_cores(), environment=EXACT_HEAP) as worker:
        answer = worker.ask(peaks, backend, timeout=300.0)
    if answer.value is None:
        console.print(f"The memory could not be measured: {answer.reason}")
    for job, peak, most in answer.value or ():
        verdict = "ok" if peak <= most else "missed"
        missed += peak > most
        shown, bar = f"{peak / 1e6:.1f} MB", f"<= {most / 1e6:g} MB"
        table.add_row(job, "extra memory", shown, "", bar, verdict)
    console.print(table)
    console.print("ratio: ours / baseline, median of alternating turns; spread: quartiles")
    if missed:
        console.print(f"{missed} missed; were the cores idle, and do they share a cache?")


def peaks(backend: str) -> list[tuple[str, float, float]]:
    """Job, peak bytes of its second call, and its maximum in bytes. Runs in the worker."""
    found = []
    for job, call, megabytes in BACKENDS[backend].memories():
        call()
        peak = peak_host_bytes(call)
        found.append((job, float("nan") if peak is None else peak, megabytes * 1e6))
    return found


def _quartiles(row: Ratio) -> tuple[float, float, float]:
    """Quartiles of the ratio over turns, after one uncounted call of each version."""
    row.ours(), row.theirs()
    clock = Clock(Host())

    def turn(call: Call) -> float:
        if not row.apart:
            return clock.read(call).wall
        time.sleep(PAUSE)
        call()
        return float(np.median([clock.read(call).wall for _ in range(5)]))

    found: list[float] = []
    end = time.perf_counter() + SECONDS_PER_RATIO
    while time.perf_counter() < end or len(found) < 5:
        found.append(turn(row.ours) / turn(row.theirs))
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)
