"""The answer to "which is fastest?" as values: rows, a verdict, and one sentence to act on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.vocabulary import State, Verdict
from . import printing


@dataclass(frozen=True)
class Ranked:
    """One candidate in the answer. Times are of the calls that decided: see ``Case.data``.

    median_s, low_s, high_s   of the lowest call of each of its rounds, with a 95 % interval from 6
                              rounds on; of the one call that was timed, without an interval, if
                              rounds of it did not fit the budget
    ratio                     to the best, round by round: the middle of those that both took part
                              in, and its interval. It decides the verdict; it is not the ratio of
                              the medians, which may be of different rounds. With ``calls`` it
                              compares totals
    at_least_s                a call was given up after this time
    untried                   it never ran: left out by plan or prediction, or no process started
    limit_s                   the least work of the case at this machine's measured speed: no call
                              can be much faster
    total_s                   of as many ``calls`` as were asked for, the first included
    compile_s                 how much longer a first call takes: to compile, and to start threads
    compiles_per              what it says it compiles for: ``shape``, ``dtype`` or nothing
    cores                     how many threads really ran during calls on average, or waited for a
                              core: processor time over time
    """

    backend: str
    route: str
    state: State
    verdict: Verdict | None = None
    reason: str = ""
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    rounds: int = 0
    first_call_s: float | None = None
    with_transfer_s: float | None = None
    peak_host_bytes: float | None = None
    peak_device_bytes: float | None = None
    error: float | None = None
    at_least_s: float | None = None
    untried: bool = False
    limit_s: float | None = None
    total_s: float | None = None
    compile_s: float | None = None
    compiles_per: str | None = None
    cores: float | None = None

    @property
    def candidate(self) -> Candidate:
        """Backend and route."""
        return Candidate(self.backend, self.route)


@dataclass(frozen=True)
class Choice:
    """The answer for one case; as a text, what ``demopool choose`` prints.

    state            the verdict: ``fastest``, ``tie`` or ``unknown``
    backend, route   of the recommended candidate; None if there is none
    rows             every candidate, the best first
    seconds          of wall time, and ``setup_s`` of them for libraries to start, load and compile
    reused           nothing was measured: stored samples gave the answer
    whole            all candidates could compete: nothing was left out, nothing interrupted
    codes            what identifies the code of each backend
    others_cores     how many cores others used during the rounds
    calls            the job's, if totals decided; None if single calls did
    max_error        the largest error with which a candidate could compete, if one was given
    """

    case: Case
    state: Verdict
    backend: str | None
    route: str | None
    sentence: str
    rows: tuple[Ranked, ...]
    threads: int
    seconds: float
    rounds: int
    reused: bool = False
    interrupted: bool = False
    whole: bool = True
    warnings: tuple[str, ...] = ()
    fingerprint: str = ""
    codes: dict[str, str] = field(default_factory=dict)
    setup_s: float = 0.0
    others_cores: float = 0.0
    calls: int | None = None
    max_error: float | None = None

    @property
    def candidate(self) -> Candidate | None:
        """The recommended one."""
        if self.backend is None or self.route is None:
            return None
        return Candidate(self.backend, self.route)

    def __str__(self) -> str:
        return "\n".join(printing.lines(self))

    def as_result(self) -> dict[str, Any]:
        """As ``demopool choose --json`` prints it."""
        return {
            "case": asdict(self.case),
            "verdict": {
                "state": self.state,
                "backend": self.backend,
                "route": self.route,
                "sentence": self.sentence,
            },
            "candidates": [
                {name: value for name, value in asdict(row).items() if name != "untried"}
                for row in self.rows
            ],
            "calls": self.calls,
            "max_error": self.max_error,
            "threads": self.threads,
            "seconds": self.seconds,
            "setup_s": self.setup_s,
            "others_cores": self.others_cores,
            "rounds": self.rounds,
            "reused": self.reused,
            "interrupted": self.interrupted,
            "warnings": list(self.warnings),
        }
