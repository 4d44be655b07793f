"""The steps of a report, each stored when it is finished: check, race, count, sanitize, profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import conformance
from ..choosing.chooser import choose
from ..choosing.runners import Workers
from ..conformance import Cell
from ..contract import registry
from ..contract.listing import backends as listed
from ..errors import BackendUnavailable
from ..machine import gpu, gpu_limits, system
from ..machine.limits import Limits
from ..measurement.worker import Worker
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case, name_of, named
from ..problem.routes import left_out
from ..problem.vocabulary import Backend, State
from . import counts, external
from .clocks import Clocks, data_sheet
from .kept import Kept, code_of, digest

CASES = ("vgg-b1", "vgg-b8", "resnet-b8", "n12544-d64", "b64-n49-d512")
"""One image, batches, the two networks, large n, and many small images."""
DESCRIPTORS = ("democratic", "sketched-democratic", "power")
BUDGET = 20.0
"""Seconds for one race."""
PROFILED = ("democratic",)
"""Descriptors whose fastest candidates are profiled."""
_LIMIT_SECONDS = 120.0

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is being done)."""
Found = dict[str, Any]
"""Plain values, for JSON: ``docs/reference/json.md`` has the keys."""


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    backends     those to look at; by default all that work on a GPU here
    operations   those to check; by default all
    quick        leaves the largest examples out of the check
    tools        whether NVIDIA's tools are used where they are installed
    """

    backends: tuple[str, ...] = ()
    cases: tuple[str, ...] = CASES
    descriptors: tuple[str, ...] = DESCRIPTORS
    budget: float = BUDGET
    quick: bool = False
    tools: bool = True
    operations: tuple[str, ...] = ()

    @property
    def jobs(self) -> tuple[Case, ...]:
        """Data starts on the device, where a GPU's own speed shows."""
        return tuple(
            named(case, descriptor=descriptor, data="device")
            for descriptor in self.descriptors
            for case in self.cases
        )


def short_name(case: Case) -> str:
    """Without where its data starts, which is the same for all cases here."""
    return name_of(replace(case, data="host"))


def chosen_backends(names: Sequence[str]) -> tuple[str, ...]:
    """Those that were named, which must be there, or all on a GPU; none is an error."""
    for name in names:
        registry.demand(name)
    found = tuple(dict.fromkeys(names)) or tuple(
        name for name in registry.available() if Backend(name).on_gpu
    )
    if found:
        return found
    reasons = "; ".join(
        f"{name}: {registry.probe(name).reason}"
        for name in registry.names()
        if Backend(name).on_gpu
    )
    raise BackendUnavailable(
        "any GPU", f"{reasons}. Without a GPU, demopool gpu-report cupy:ptx shows the page"
    )


def collect(plan: Plan, folder: Path, *, fresh: bool, progress: Progress) -> Found:
    """Everything, from what is stored in the folder and what is still to be done."""
    backends = chosen_backends(plan.backends)
    kept = Kept(folder, fresh=fresh)
    timed = tuple(name for name in backends if Backend(name).is_timed)
    emulated = tuple(dict.fromkeys(filter(None, map(counts.emulated, backends))))
    sanitized = _sanitized(plan, timed)
    jobs = plan.jobs if timed else ()
    total = 2 + len(jobs) + len(emulated) + len(sanitized)
    done = 0

    def next_step(what: str) -> None:
        nonlocal done
        progress(done, total, what)
        done += 1

    next_step("checking")
    cells = _check(kept, plan, backends, lambda what: progress(1, total, what))
    next_step("how fast this GPU is")
    limits = kept.or_found("limits", _limits) if timed else None
    races = []
    with Workers(system.usual_threads()) as workers:
        for case in jobs:
            next_step(f"racing {case.descriptor} of {short_name(case)}")
            races.append(_race(kept, plan, case, timed, workers))
    counted = []
    for twin in emulated:
        next_step(f"counting the work of {twin}")
        name = f"counts-{digest(twin)}"
        counted += kept.or_found(name, partial(counts.count, twin), code_of(twin))
    sanitizers = []
    for backend, tool in sanitized:
        next_step(f"{external.SANITIZER} {tool} of {backend}")
        sanitizers.append(_sanitizer(kept, backend, tool))
    return {
        "backends": listed(),
        "chosen": list(backends),
        "gpus": gpu.gpus(),
        "limits": limits,
        "cells": [cell.as_row() for cell in cells],
        "races": races,
        "counts": counted,
        "sanitizer": sanitizers,
        "profiles": _profiles(kept, plan, races, lambda what: progress(done, total, what)),
        "tools": {
            tool: external.installed(tool) for tool in (external.SANITIZER, external.PROFILER)
        },
    }


def _check(
    kept: Kept, plan: Plan, backends: Sequence[str], report: Callable[[str], None]
) -> list[Cell]:
    """As ``demopool check``; every cell is stored when it is judged."""
    depends = (plan.quick, code_of(*backends))  # cells of other operations stay good
    known = [Cell(**row) for row in kept.get("cells", *depends) or ()]

    def finished(cell: Cell) -> None:
        known.append(cell)
        kept.put("cells", [one.as_row() for one in known], *depends)

    def judged(done: int, total: int, what: str) -> None:
        report(f"checking {done} of {total}" + f": {what}" * bool(what))

    return conformance.check(
        backends,
        operations=plan.operations,
        quick=plan.quick,
        threads=1,
        known=tuple(known),
        progress=judged,
        finished=finished,
    )


def _limits() -> Found | None:
    """What the first GPU reached in float32: products without TF32, and copies."""
    with Worker(1) as worker:
        answer = worker.ask(run_limits, timeout=_LIMIT_SECONDS, words="the speed of the GPU")
    if answer.state is not State.OK or answer.value is None:
        return {"reason": answer.reason or "neither torch nor CuPy can use a GPU here"}
    reached = Limits(*answer.value)
    names = [str(one["name"]) for one in gpu.gpus()]
    sheet = data_sheet(names[0], reached) if names else None
    return {**reached._asdict(), "data_sheet": sheet, "reason": ""}


def run_limits() -> tuple[float, ...] | None:
    """In the worker: libraries keep a part of the GPU until their process ends."""
    found = gpu_limits.measured("float32", split=False)
    return None if found is None else tuple(found)


def _race(kept: Kept, plan: Plan, case: Case, backends: tuple[str, ...], workers: Workers) -> Found:
    name = f"race-{case.descriptor}-{short_name(case)}"
    depends = (case, plan.budget, backends, code_of(*backends))
    known: Found | None = kept.get(name, *depends)
    if known is not None:
        return known
    clocks = Clocks()
    choice = choose(
        case,
        backends=backends,
        routes=Subject("descriptor", case.descriptor).routes(),
        budget=plan.budget,
        progress=lambda seconds, what: clocks.look(),
        workers=workers,
    )
    if choice.interrupted:
        raise KeyboardInterrupt
    found = {**choice.as_result(), "name": short_name(case), "clocks": clocks.summary()}
    found["case"] = asdict(case)
    kept.put(name, found, *depends)
    return found


def _sanitized(plan: Plan, timed: Sequence[str]) -> list[tuple[str, str]]:
    if not plan.tools or not external.installed(external.SANITIZER):
        return []
    return [(backend, tool) for backend in timed for tool in external.TOOLS]


def _sanitizer(kept: Kept, backend: str, tool: str) -> Found:
    name = f"sanitizer-{tool}-{digest(backend)}"
    found: Found = kept.or_found(
        name, partial(external.sanitize, backend, tool), backend, code_of(backend)
    )
    return found


def _profiles(
    kept: Kept, plan: Plan, races: Sequence[Found], report: Callable[[str], None]
) -> list[Found]:
    """Of the fastest candidate of every backend, and of its fastest without TF32, which has the
    roofline."""
    if not plan.tools or not external.installed(external.PROFILER):
        return []
    found = []
    for race in races:
        case = Case(**race["case"])
        if case.descriptor not in PROFILED:
            continue
        timed = [
            Candidate(row["backend"], row["route"])
            for row in race["candidates"]
            if row["median_s"] is not None
        ]
        best: dict[tuple[str, bool], Candidate] = {}
        for candidate in timed:
            best.setdefault((candidate.backend, False), candidate)
            if not left_out(candidate.route):
                best.setdefault((candidate.backend, True), candidate)
        for candidate in dict.fromkeys(best.values()):
            report(f"{external.PROFILER} of {candidate}, {short_name(case)}")
            name = f"profile-{digest(candidate, case)}"
            code = code_of(candidate.backend)
            profile = partial(external.profile, candidate, case, short_name(case))
            found.append(kept.or_found(name, profile, candidate, case, code))
    return found
