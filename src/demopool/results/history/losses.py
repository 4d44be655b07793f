"""What failed at the newest commit that was asked for it, or had values and has none there.

It is the machine's doing, and no fault of the commit, where

- the machine or its software is not the one that had the values: a GPU or a library is gone. Then
  ``unavailable`` says nothing about the commit;
- it was skipped because it would not fit into the memory that was free: what a call needs is
  predicted by the suite, the same for every commit, so less was free. A call that was tried and ran
  out of memory is the commit's.

Everything else is the commit's: a backend that no longer imports, a route that is gone, a failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...problem.vocabulary import State
from .points import Point, Series


@dataclass(frozen=True)
class Loss:
    """A series without a value at ``commit``, the newest that was asked.

    last_good    the newest commit with a value; None if it failed from the beginning
    state        ``failed`` or ``skipped``
    by_machine   the commit is not to blame
    """

    series: Series = field(repr=False)
    commit: str
    last_good: str | None
    state: str
    candidate_state: str | None
    reason: str | None
    by_machine: bool


def losses(lines: Iterable[Series]) -> list[Loss]:
    """Those of the commits first."""
    found = []
    for one in lines:
        with_value = [point for point in one.points if point.value is not None]
        good = with_value[-1] if with_value else None
        bad = one.asked[-1] if one.asked else None
        if bad is None or bad.value is not None or (good is None and bad.state != "failed"):
            continue
        found.append(
            Loss(
                series=one,
                commit=bad.commit,
                last_good=good.commit if good else None,
                state=bad.state,
                candidate_state=bad.candidate_state,
                reason=bad.reason,
                by_machine=_by_machine(good, bad),
            )
        )
    return sorted(found, key=lambda loss: loss.by_machine)


def _by_machine(good: Point | None, bad: Point) -> bool:
    if good is None or bad.state != "skipped":
        return False
    if bad.candidate_state == State.UNAVAILABLE:
        return good.fingerprint != bad.fingerprint
    return bad.candidate_state == State.OUT_OF_MEMORY
