"""Why the winner wins: its work by the cost model beside the next one's, and how near the limit.

The limit is what this machine is seen to reach: NumPy's matrix product, and a copy from memory to
memory. A job cannot be done faster than its arithmetic at the one or its bytes at the other rate,
unless a GPU does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..choosing.answer_types import Choice, Ranked
from ..common.units import readable
from ..errors import DemopoolError
from ..measurement.worker import Worker
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import Dtype, State
from ..profiles import costs

_SECONDS = 0.33
_SIDES, _COPIED = (384, 1024), 2**25
_ROUGH = ("eigen", "svd", "inverse")
_DIFFERS = 1.1
"""A tenth: less is not why one is faster."""


class Limit(NamedTuple):
    """Floating-point operations and bytes in a second."""

    flops: float
    bytes: float
    threads: int
    dtype: str

    def seconds(self, work: LeastWork) -> float:
        return max(work.flops / self.flops, work.bytes / self.bytes)

    def __str__(self) -> str:
        return (
            f"{self.flops / 1e9:.3g} GFLOP/s by NumPy's matrix product and {self.bytes / 1e9:.3g} "
            f"GB/s by a copy, {self.dtype}, {self.threads} thread{'s' * (self.threads > 1)}"
        )


class LeastWork(NamedTuple):
    """``is_counted``: nothing in it is a decomposition, whose operations are counted roughly."""

    flops: float
    bytes: float
    is_counted: bool = True


def limit(threads: int, dtype: str) -> Limit | None:
    """Measured now, in a second, with this number of threads; None if it cannot be."""
    with Worker(threads) as worker:
        answer = worker.ask(run_limits, Dtype(dtype).result, timeout=60.0)
    if answer.state is not State.OK:
        return None
    flops, moved = answer.value
    return Limit(flops, moved, threads, Dtype(dtype).result)


def run_limits(dtype: str) -> tuple[float, float]:
    """In the worker: the best of a third of a second each; input and output are two bytes moved."""
    source = np.ones(_COPIED // np.dtype(dtype).itemsize, dtype)
    target = np.empty_like(source)
    flops = max(2.0 * side**3 / _product(side, dtype) for side in _SIDES)
    return flops, 2.0 * source.nbytes / _quickest(lambda: np.copyto(target, source))


def _product(side: int, dtype: str) -> float:
    a = np.ones((side, side), dtype)
    product = np.empty_like(a)
    return _quickest(lambda: np.matmul(a, a, out=product))


def _quickest(call: Callable[[], Any]) -> float:
    call()
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while True:
        began = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - began)
        if now > end:
            return best


def work(candidate: Candidate, case: Case) -> LeastWork:
    """Of one call, by the cost model."""
    steps = Subject("descriptor", case.descriptor).steps(candidate.route).items()
    flops = sum(costs.flops(operation, route, case) for operation, route in steps)
    moved = sum(costs.bytes_moved(operation, route, case) for operation, route in steps)
    kinds = {kind for op, route in steps for kind in costs.work(op, route, case).counts}
    return LeastWork(flops, moved, kinds.isdisjoint(_ROUGH))


def reason(choice: Choice, at_most: Limit | None) -> str:
    """A sentence or two; empty where the cost model does not know the route."""
    best, following = _two(choice)
    if best is None:
        return ""
    try:
        own = work(best.candidate, choice.case)
        theirs = work(following.candidate, choice.case) if following else None
    except (DemopoolError, KeyError, ArithmeticError):
        return ""
    text = f"{best.candidate}: {_work_text(own)} by the cost model"
    if following and theirs:
        text += _compared(best, following, own, theirs)
    text += "."
    if at_most and best.median_s and own.is_counted and best.candidate.backend.on_host:
        share = at_most.seconds(own) / best.median_s
        by = "arithmetic" if own.flops / at_most.flops > own.bytes / at_most.bytes else "bytes"
        if share <= 1:
            text += f" It runs at {share:.0%} of the limit that its {by} would allow."
        else:
            text += " How near to the limit cannot be said: the machine is busier now than it was."
    return text


def _two(choice: Choice) -> tuple[Ranked | None, Ranked | None]:
    """The recommended row, and the one that comes next."""
    timed = [row for row in choice.rows if row.median_s is not None and row.state is State.OK]
    best = next((r for r in timed if r.candidate == choice.candidate), None)
    others = [row for row in timed if row is not best and row.ratio is not None]
    return best, min(others, key=lambda row: row.ratio or 0.0, default=None)


def _work_text(of: LeastWork) -> str:
    return f"{of.flops / 1e9:.3g} GFLOP and {readable(of.bytes, 'memory')} moved"


def _compared(best: Ranked, following: Ranked, own: LeastWork, theirs: LeastWork) -> str:
    differences = []
    for word, mine, other in (
        ("arithmetic", own.flops, theirs.flops),
        ("bytes moved", own.bytes, theirs.bytes),
        ("memory held", best.peak_host_bytes, following.peak_host_bytes),
    ):
        if not mine or not other:
            continue
        if other > _DIFFERS * mine:
            fewer = "fewer" if word.startswith("bytes") else "less"
            differences.append(f"{other / mine:.1f}x {fewer} {word}")
        elif mine > _DIFFERS * other:
            differences.append(f"{mine / other:.1f}x more {word}")
    name = str(following.candidate)
    if best.route == following.route:
        memory = [d for d in differences if d.endswith("memory held")]
        same = f", the same as {name}"
        return f"{same}, with {memory[0]}" if memory else f"{same}: the difference is in the code"
    return f"; {', '.join(differences) or 'about the same work'} than {name}".replace(
        "about the same work than", "about the same work as"
    )
