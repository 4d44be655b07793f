"""What the kernels of a backend do in one call, from executing their real PTX: work, not time.

The kernels of ``cupy:cuda`` and ``numba:cuda`` are those of ``cupy:ptx`` and ``numba:ptx``, which
need no GPU; counts are the same on every machine.
"""

from __future__ import annotations

from typing import Any

from .. import pooling, ptx
from ..contract import capabilities, registry
from ..measurement.worker import Worker
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.vocabulary import Backend, State
from ..trials import jobs

SECONDS = 600.0
"""Maximum for one candidate."""

CASE = Case(batch=2, n=49, d=64)
"""Small, because every instruction is executed in NumPy."""


def twin(backend: str) -> str:
    """The backend that would execute the same kernels without a GPU."""
    return f"{Backend(backend).library}:ptx"


def emulated(backend: str) -> str | None:
    """That, if there is one and it can be used here."""
    name = twin(backend)
    if name not in registry.names() or registry.probe(name).state is not State.OK:
        return None
    return name


def count(backend: str) -> list[dict[str, Any]]:
    """One row for each kernel of each route of the weights; empty if they cannot be executed."""
    name = emulated(backend)
    if name is None:
        return []
    rows: list[dict[str, Any]] = []
    with Worker(1) as worker:
        for _, route in Subject("descriptor", CASE.descriptor).candidates((name,)):
            if not capabilities.supports(name, "weights", route=route, dtype=CASE.dtype):
                continue
            answer = worker.ask(run_counts, name, route, CASE, timeout=SECONDS, words="its counts")
            if answer.state is not State.OK:
                rows.append({"candidate": f"{name}/{route}", "reason": answer.reason})
                continue
            rows += answer.value
    return rows


def run_counts(backend: str, route: str, case: Case) -> list[dict[str, Any]]:
    """In the worker: the launches of one call, added up by kernel in the order they came."""
    candidate = Candidate(backend, route)
    job = jobs.prepare(pooling, Subject("descriptor", case.descriptor), candidate, case)
    with ptx.recording() as launched:
        job.run()
    rows = []
    for kernel in dict.fromkeys(one.kernel for one in launched):
        own = [one for one in launched if one.kernel == kernel]
        total = sum((one.counts for one in own[1:]), start=own[0].counts)
        rows.append(
            {
                "candidate": str(candidate),
                "kernel": kernel,
                "launches": len(own),
                "grid": list(own[0].grid),
                "block": list(own[0].block),
                "flops": total.flops + total.double_flops,
                "global_bytes": total.global_bytes,
                "useful_share": total.useful_share,
                "bank_conflicts": total.bank_conflicts,
                "atomics": total.atomics,
                "divergent_branches": total.divergent_branches,
                "least_s": {
                    device.name: ptx.bound(total, device).seconds for device in ptx.DEVICES
                },
            }
        )
    return rows
