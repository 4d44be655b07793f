"""What failed at the newest commit that was asked for it, or had values and has none there.

It is the machine's doing, and no fault of the commit, where

- the machine or its software is not the one that had the values: a GPU or a library is gone. Then
  ``unavailable`` says nothing about the commit;
- it was skipped because it would not fit into the memory that was free: what a call needs is
  predicted by the suite, the same for every commit, so less was free. A call that was tried and ran
  out of memory is the commit's.

Everything else is the commit's: a backend that no longer imports, a route that is gone, a failure.
So is what failed at every commit it was asked for: green means measured and fine, and what never
worked is neither. What came back is told, like a fixed regression, if a commit was to blame.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...problem.vocabulary import State
from .points import Point, Series


@dataclass(frozen=True)
class Loss:
    """Commits without a value, from ``since`` to ``commit``, after ``last_good``, which had one.

    commit       the newest that was asked, or the last before the value came back
    last_good    None if it failed from the beginning
    fixed_by     the commit with which the value came back; None if it did not
    state        at ``commit``: ``failed`` or ``skipped``
    by_machine   the commit is not to blame
    """

    series: Series = field(repr=False)
    since: str
    commit: str
    last_good: str | None
    fixed_by: str | None
    state: str
    candidate_state: str | None
    reason: str | None
    by_machine: bool

    @property
    def fails(self) -> bool:
        """It is there at the newest commit that was asked, and no fault of the machine."""
        return self.fixed_by is None and not self.by_machine


def losses(lines: Iterable[Series]) -> list[Loss]:
    """Those of the commits first, and what came back last."""
    found = [loss for one in lines for loss in _of_one(one)]
    return sorted(found, key=lambda loss: (loss.fixed_by is not None, loss.by_machine))


def _of_one(one: Series) -> Iterable[Loss]:
    good: Point | None = None
    gap: list[Point] = []
    for point in (*one.asked, None):
        if point is not None and point.value is None:
            gap.append(point)
            continue
        if gap and (good is not None or (point is None and gap[-1].state == "failed")):
            loss = Loss(
                series=one,
                since=gap[0].commit,
                commit=gap[-1].commit,
                last_good=good.commit if good else None,
                fixed_by=point.commit if point else None,
                state=gap[-1].state,
                candidate_state=gap[-1].candidate_state,
                reason=gap[-1].reason,
                by_machine=_by_machine(good, gap[-1]),
            )
            if loss.fixed_by is None or not loss.by_machine:
                yield loss
        good, gap = point, []


def _by_machine(good: Point | None, bad: Point) -> bool:
    if good is None or bad.state != "skipped":
        return False
    if bad.candidate_state == State.UNAVAILABLE:
        return good.fingerprint != bad.fingerprint
    return bad.candidate_state == State.OUT_OF_MEMORY
