"""A job of N calls in one process: the first call, which compiles, and N - 1 calls like the others.

The rule decides as ever, on totals: in every round the first call of a candidate and N - 1 times
its call of that round take the place of its call. The first call is the one reading that there is
of it, on a library that is imported. So a verdict must also hold if first calls were off by a
factor of 1.5, against the lead or for it; else it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from statistics import median

from .rule import MARGIN, TIE_LIMIT, Name, Round, Standing

FIRST_CALL_OFF = 1.5
DOUBT = "first calls are measured once"


@dataclass(frozen=True)
class Totals:
    """Of so many ``calls``; ``first`` has the first call of every candidate, in seconds."""

    calls: int
    first: Mapping[Name, float]

    def seconds(self, name: Name, call: float) -> float:
        return self.first[name] + (self.calls - 1) * call

    def rounds(self, rounds: Iterable[Round]) -> list[Round]:
        """With the mean over the whole job in place of a call: the ratios are those of totals."""

        def of_job(times: Mapping[Name, float]) -> dict[Name, float]:
            return {name: self.seconds(name, t) / self.calls for name, t in times.items()}

        return [Round(of_job(r.lowest), of_job(r.mean), r.others) for r in rounds]

    def doubt(self, rounds: Sequence[Round], standing: Standing) -> str:
        """Why first calls leave the verdict open; empty if they do not."""
        lead = standing.lead
        for rival in (*standing.dropped, *standing.alive):
            both = [r for r in rounds if lead in r.lowest and rival in r.lowest]
            if lead is None or rival == lead or not both:
                continue
            low, high = (
                median(r.lowest[rival] / r.lowest[lead] for r in self._off(both, lead, by))
                for by in (FIRST_CALL_OFF, 1 / FIRST_CALL_OFF)
            )
            tied = low > 1 / (1 + TIE_LIMIT) and high < 1 + TIE_LIMIT
            if not (low > 1 + MARGIN if rival in standing.dropped else tied):
                return (
                    f"{DOUBT}: if they were off by a factor of {FIRST_CALL_OFF:g}, {rival} would "
                    f"take {low:.2f} to {high:.2f} times the time of {lead}"
                )
        return ""

    def _off(self, rounds: Sequence[Round], lead: Name, by: float) -> list[Round]:
        first = {name: t * by if name == lead else t / by for name, t in self.first.items()}
        return Totals(self.calls, first).rounds(rounds)


def pays_after(first: float, call: float, other_first: float, other_call: float) -> int:
    """Up to how many calls another, whose calls are longer, takes no more time in total."""
    return max(0, floor(1 + (first - other_first) / (other_call - call)))
