"""What to look at first: sentences that follow from the numbers, the gravest first.

``docs/howto/use-a-gpu.md`` explains each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..common.units import readable
from ..conformance import Cell, failed
from ..machine.limits import Limits
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case
from ..problem.routes import left_out
from ..problem.vocabulary import State
from ..profiles import costs, floors
from ..report import reasons

Found = dict[str, Any]

FAR = 2.0
"""Times the roofline: further away, a time wants an explanation."""
LAUNCH_S = 5e-6
"""What starting a kernel costs at most; several are needed for any descriptor."""
_SHORT_S = 20 * LAUNCH_S
_CACHE_BYTES = 2**27
"""More than the cache of a GPU."""
_BUSY = 60.0
"""Percent of what the GPU can do: a kernel there is at its limit, as Nsight Compute sees it."""
_SHARE = 0.5


class Distance(NamedTuple):
    """Of a candidate from the roofline: its own work at the speed that the GPU reached."""

    candidate: Candidate
    case: Case
    name: str
    seconds: float
    least_s: float
    bound: str

    @property
    def times(self) -> float:
        return self.seconds / self.least_s


def distances(race: Found, limits: Found | None) -> list[Distance]:
    """Of everything that was timed and has a roofline, the fastest first.

    Decompositions have none, because their operations cannot be counted, and neither has TF32: the
    speed of its products is not measured, and they may be faster than those of float32.
    """
    if not limits or limits["reason"]:
        return []
    reached = Limits(limits["flops"], limits["cached_bytes"], limits["memory_bytes"])
    case = Case(**race["case"])
    found = []
    for row in race["candidates"]:
        candidate = Candidate(row["backend"], row["route"])
        if row["median_s"] is None or case.dtype != "float32" or left_out(row["route"]):
            continue
        work = reasons.work(candidate, case)
        if not work.is_counted:
            continue
        moved = _least_bytes(candidate, case)
        arithmetic, memory = work.flops / reached.flops, moved / reached.bytes(moved)
        bound = "arithmetic" if arithmetic > memory else "memory"
        least = max(arithmetic, memory)
        found.append(Distance(candidate, case, race["name"], row["median_s"], least, bound))
    return found


def _least_bytes(candidate: Candidate, case: Case) -> float:
    """Features are read once and descriptors written once. What else the cost model counts can stay
    on the chip, but for a K that no cache holds."""
    steps = Subject("descriptor", case.descriptor).steps(candidate.route).items()
    return floors.moved_bytes(case) + sum(
        costs.bytes_moved(operation, route, case)
        for operation, route in steps
        if costs.work(operation, route, case).held * case.dtype.result.bytes > _CACHE_BYTES
    )


def findings(found: Found) -> list[str]:
    """In the order in which they should be looked at; empty if nothing is conspicuous."""
    return [
        *_wrong(found),
        *_sanitized(found["sanitizer"]),
        *_clocks(found["races"]),
        *_data_sheet(found["limits"]),
        *_far(found),
    ]


def _wrong(found: Found) -> Iterator[str]:
    bad = failed([Cell(**row) for row in found["cells"]])
    for cell in bad:
        yield (
            f"{cell.backend}, {cell.operation} by {cell.route}, order {cell.order}, {cell.dtype} "
            f"is {cell.state}: {cell.reason}."
        )
    for race in found["races"]:
        for row in race["candidates"]:
            if (
                row["state"] not in (State.OK, State.UNSUPPORTED, State.UNAVAILABLE)
                and row["route"]
            ):
                yield (
                    f"{row['backend']}/{row['route']}, {race['case']['descriptor']} of "
                    f"{race['name']}: {row['state']}: {row['reason']}."
                )


def _sanitized(rows: Sequence[Found]) -> Iterator[str]:
    for row in rows:
        if row["state"] == "wrong":
            number = row["errors"]
            errors = f"{number} error{'s' * (number > 1)}"
            yield f"{row['backend']}: {row['tool']} found {errors}; the log is below."
        elif row["state"] != "ok":
            yield f"{row['backend']}: {row['tool']} did not finish: {row['reason']}."


def _clocks(races: Sequence[Found]) -> Iterator[str]:
    """Each disturbance once, with the first race that it disturbed."""
    said = set()
    for race in races:
        warning = (race["clocks"] or {}).get("warning")
        if warning and warning not in said:
            said.add(warning)
            yield f"{race['case']['descriptor']} of {race['name']}: {warning}."


def _data_sheet(limits: Found | None) -> Iterator[str]:
    sheet = (limits or {}).get("data_sheet")
    if not sheet:
        return
    for share, what in (("flops_share", "products of float32"), ("bytes_share", "copies")):
        if sheet[share] * FAR < 1:
            yield (
                f"In {what} this GPU reached {sheet[share]:.0%} of the data sheet of "
                f"{sheet['device']}: see who else uses it, its power limit and its clock."
            )


def _far(found: Found) -> Iterator[str]:
    for race in found["races"]:
        near = distances(race, found["limits"])
        if near and near[0].times > FAR:
            first = near[0]
            yield (
                f"{first.candidate}, {first.case.descriptor} of {first.name}: "
                f"{readable(first.seconds, 'time')} is {first.times:.1f} times the roofline "
                f"({readable(first.least_s, 'time')}, by {first.bound}). "
                f"{explained(first, found['profiles'])}"
            )


def explained(far: Distance, profiles: Sequence[Found]) -> str:
    """Where to look first."""
    if far.least_s < _SHORT_S:
        return (
            "That is shorter than a few launches take: the host decides. Compare with a larger "
            "batch, and see how many kernels a call starts."
        )
    profile = next(
        (
            one
            for one in profiles
            if one["candidate"] == str(far.candidate)
            and one["case"] == far.name
            and one["descriptor"] == far.case.descriptor
            and one["kernels"]
        ),
        None,
    )
    if profile is None:
        return "Which kernel takes the time, Nsight Compute can say (ncu; see its section below)."
    rows = profile["kernels"]
    busy = sum(row["seconds"] for row in rows)
    if busy < _SHARE * far.seconds:
        count = sum(row["launches"] for row in rows)
        return (
            f"Its {count} launches take {readable(busy, 'time')} together: for most of the call "
            "the GPU waits for the host."
        )
    most = rows[0]
    share = most["seconds"] / busy
    used = {
        "compute units": most["compute_percent"] or 0.0,
        "memory": most["memory_percent"] or 0.0,
    }
    by = max(used, key=lambda name: used[name])
    text = f"{most['kernel']} takes {share:.0%} of it, with {used[by]:.0f} % of the {by} in use"
    if used[by] >= _BUSY:
        return f"{text}: it is near its own limit, so it does more work than the model counts."
    return f"{text}: it waits. Look at its blocks first, then at its occupancy."
