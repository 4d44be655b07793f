"""How long a part of the suite will take: the cost model's seconds of a call, and asv's own."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchmarks.suite import BASELINE, CALL_SECONDS
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.profiles import eligibility

from .cells import Cell

# Fitted on 2 cores to three runs of an earlier suite, of 6 min, 1.9 h and 4.5 h.
PROCESS = 0.3
"""Seconds of asv for every cell: a forked process, and its files."""
PART = 6.0
"""Of every run of asv: the suite is read, the commit installed, the libraries loaded."""
PREPARATION = 3
"""Calls that the inputs and the first call are worth."""
TRACKED_CALLS = 2
"""Of a value that is tracked, after that."""
BACKWARD = 3
"""Calls that forward and backward are worth."""
COUNTED = 15.0
"""Seconds of a cell under valgrind: mostly imports."""
BASELINE_TIMES = 3
"""How much longer a straightforward version takes."""


def seconds(cells: Iterable[tuple[str, str, str]], runs: int = 1) -> float:
    """So many runs of these cells, each with an installed commit."""
    return runs * (PART + sum(_of_cell(Cell(*cell)) for cell in cells))


def sentence(total: float) -> str:
    """``about 6 min``: an estimate deserves two digits at most."""
    for least, size, unit in ((5400.0, 3600.0, "h"), (90.0, 60.0, "min")):
        if total >= least:
            return f"about {total / size:.2g} {unit}"
    return f"about {max(total, 1.0):.0f} s"


def _of_cell(cell: Cell) -> float:
    suite = cell.suite
    if cell.benchmark.startswith("counts."):
        return COUNTED
    call = _call(Subject(*suite.subject), Candidate.parse(cell.candidate), cell.size)
    if call is None:
        return PROCESS
    if cell.method == "time_forward_backward":
        call *= BACKWARD
    least, most, enough = suite.repeat
    repeated = max(least * call, min(most * call, enough))
    if cell.method == "track_with_transfer_s":
        return PROCESS + PREPARATION * call + repeated
    if not cell.method.startswith("time_"):
        return PROCESS + (PREPARATION + TRACKED_CALLS) * call
    return PROCESS + PREPARATION * call + max(call, suite.warmup_time) + repeated


def _call(subject: Subject, candidate: Candidate, case: Case) -> float | None:
    """Seconds of one call; None for one that the suite will skip."""
    if candidate == BASELINE:
        like = [c for c in subject.candidates() if c.backend == "numpy:cpu"]
        each = [eligibility.predicted_seconds(subject, c, case) for c in like]
        return min(BASELINE_TIMES * median(each), CALL_SECONDS)
    if eligibility.ineligible(subject, candidate, case):
        return None
    predicted = eligibility.predicted_seconds(subject, candidate, case)
    return predicted if predicted <= CALL_SECONDS else None
