"""The referee of a race: no candidate wins by not working.

It asks the judge, a process in which no candidate ever runs, what the images of a race should give,
and compares the evidence of every turn with that: wrong values in any call, work that goes on after
a call, a call that is faster than the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from secrets import randbits
from statistics import median
from typing import Any, NamedTuple

from ..common.units import readable
from ..machine import gpu_limits
from ..machine import limits as machine_limits
from ..measurement.worker import Answer, Worker
from ..problem.candidates import Candidate
from ..problem.cases import Case
from ..problem.vocabulary import State
from ..profiles import floors
from ..trials import answers, judgement, streams
from ..trials.answers import Answers
from ..trials.judgement import Judgement
from ..trials.streams import ImagePool, Source, Turn

TIMEOUT = 120.0
"""Seconds for one request to the judge."""

ANSWER_SECONDS = 1.0
"""For the answers of a case; there is one, however long it takes."""

IMPOSSIBLE = 0.5
"""Of the limit: another library than NumPy may be faster, but not twice as fast."""


REQUEST_SECONDS = 0.02
"""A request itself takes this long at most on a busy machine, but for values that are sent."""

APART, WAITED_SECONDS, UNREAD_SECONDS = 1.5, 0.3, 0.05
"""How far two sums of times may be apart, of two processes and within one."""


@dataclass
class _Times:
    """Seconds of a candidate's turns: as we waited, by its own clock, and of its readings."""

    waited: float = 0.0
    elapsed: float = 0.0
    read: float = 0.0
    unread: float = 0.0


class Objection(NamedTuple):
    """Why a turn does not count. ``by_chance``: a busy machine can look like it, once."""

    reason: str
    by_chance: bool = False


class JudgeFailed(Exception):
    """There is no answer to compare with; says nothing about a candidate."""


class Referee:
    """Of all races that share the workers; the judge starts with the first question."""

    def __init__(self, judge: Worker, images: str = "") -> None:
        self._judge = judge
        self.pool = ImagePool(randbits(62), images)
        self._answers: dict[Case, Answers] = {}
        self._tolerances: dict[tuple[Case, str], list[float]] = {}
        self._floors: dict[tuple[str, Case], float | None] = {}
        self._times: dict[tuple[Candidate, Case], _Times] = {}

    def source(self, case: Case) -> Source:
        """Where the inputs of the timed calls come from."""
        return Source(self.pool, len(self._of(case).signed))

    def judge(self, candidate: Candidate, case: Case, found: Any) -> Judgement:
        """Of the descriptors of a twin's images, before their final norm."""
        return self._ask(judgement.run_judgement, candidate.route, case, self.pool, found)

    def floor(self, candidate: Candidate, case: Case, *, again: bool = False) -> float | None:
        """Seconds that a call must take at least; None if the limits of its device are unknown."""
        of = {"cpu": self._floor_of_host, "cuda": self._floor_of_gpu}.get(candidate.backend.device)
        key = (candidate.backend.device, case)
        if of is not None and (again or key not in self._floors):
            self._floors[key] = of(case, again)
        return self._floors.get(key)

    def _floor_of_host(self, case: Case, again: bool) -> float:
        threads, dtype = self._judge.threads, str(case.dtype.result)
        found = self._ask(machine_limits.limits, threads, dtype, again=again)
        return floors.least_seconds(case, found)

    def _floor_of_gpu(self, case: Case, again: bool) -> float | None:
        try:
            found = self._ask(gpu_limits.limits, str(case.dtype), again=again)
        except JudgeFailed:  # a driver can take its process with it; the judge starts anew
            return None
        if found is None:
            return None
        # What is small may well be done on the host.
        return min(floors.least_seconds(case, found), self._floor_of_host(case, again))

    def known_floor(self, candidate: Candidate, case: Case) -> float | None:
        """The latest answer of :meth:`floor`; None if it was never asked."""
        return self._floors.get((candidate.backend.device, case))

    def objection(
        self, candidate: Candidate, case: Case, turn: Turn, asked: float, answered: float
    ) -> Objection | None:
        """To a turn; ``asked`` and ``answered``: when, by our clock."""
        wrong = turn.reason or self._wrong_sum(candidate, case, turn)
        if not asked <= turn.began <= turn.ended <= answered:
            wrong = wrong or _wrong_clock(turn, answered - asked)
        if wrong:
            return Objection(wrong)
        doubt = self._doubt(candidate, case, turn, answered - asked)
        if doubt:
            # Its next turn is one of a new process, to which these times say nothing.
            self._times.pop((candidate, case), None)
            return Objection(doubt, by_chance=True)
        return None

    def _doubt(self, candidate: Candidate, case: Case, turn: Turn, waited: float) -> str:
        """What is wrong with its times, or ""."""
        if self._is_clock_wrong(candidate, case, turn, waited):
            return _wrong_clock(turn, waited)
        if turn.leaked >= streams.MOST_LEAKED:
            return (
                f"its process was still at work {streams.MOST_LEAKED:g} s after its calls "
                "had returned"
            )
        return self._too_fast(candidate, case, turn)

    def _is_clock_wrong(self, candidate: Candidate, case: Case, turn: Turn, waited: float) -> bool:
        total = self._times.setdefault((candidate, case), _Times())
        total.read += sum(turn.seconds)
        total.unread += turn.unread
        if turn.sample is None:  # sending a whole image takes its time
            total.waited += waited - REQUEST_SECONDS
            total.elapsed += turn.ended - turn.began
        return (
            total.waited > APART * total.elapsed + WAITED_SECONDS
            or total.unread > APART * total.read + UNREAD_SECONDS
        )

    def _wrong_sum(self, candidate: Candidate, case: Case, turn: Turn) -> str:
        known = self._of(case)
        tolerances = self._tolerances_of(case, candidate.route)
        of_norm = answers.of_norm(case)
        calls = zip(turn.which, turn.sums, strict=True)
        for number, (which, found) in enumerate(calls, 1):
            where = f"of call {number} of {len(turn.sums)} in a turn"
            for place, (image, (signed, magnitude)) in enumerate(zip(which, found, strict=True), 1):
                of = f"image {place} of {len(which)} {where}"
                off = abs(signed - known.signed[image])
                if not off <= answers.explained(known, image, tolerances[image]):
                    return f"timed calls were wrong: the values of {of} are not its descriptor"
                if not abs(magnitude - 1) <= of_norm:
                    return f"timed calls were wrong: the norm of {of} is not 1"
        if turn.sample is None:
            return ""
        image, values = turn.sample
        error = self._ask(answers.run_comparison, case, self.pool, image, values)
        if not error <= tolerances[image]:
            return (
                f"timed calls were wrong: the error of one was {error:.2g}, allowed are "
                f"{tolerances[image]:.2g}"
            )
        return ""

    def _too_fast(self, candidate: Candidate, case: Case, turn: Turn) -> str:
        if not turn.seconds:
            return ""
        took = median(turn.seconds)
        for again in (False, True):  # the machine may have been busy when it was measured
            floor = self.floor(candidate, case, again=again)
            if floor is None or took >= IMPOSSIBLE * floor:
                return ""
        return (
            f"faster than the machine can: {readable(took, 'time')} a call, and the least work "
            f"takes {readable(floor, 'time')} at the speed of its memory and matrix products"
        )

    def _tolerances_of(self, case: Case, route: str) -> list[float]:
        key = (case, route)
        if key not in self._tolerances:
            images = len(self._of(case).signed)
            self._tolerances[key] = self._ask(
                answers.run_tolerances, case, self.pool, images, route
            )
        return self._tolerances[key]

    def _of(self, case: Case) -> Answers:
        if case not in self._answers:
            self._answers[case] = self._ask(
                answers.run_answers, case, self.pool, seconds=ANSWER_SECONDS
            )
        return self._answers[case]

    def _ask(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        answer = Answer(State.ERROR)
        for _ in range(2):  # a new process can take over: the judge keeps nothing that matters
            answer = self._judge.ask(function, *arguments, timeout=TIMEOUT, **options)
            if answer.state is State.OK:
                return answer.value
        raise JudgeFailed(f"the judge gave no answer: {answer.reason}")


def _wrong_clock(turn: Turn, waited: float) -> str:
    took, calls = turn.ended - turn.began, sum(turn.seconds)
    times = [readable(max(seconds, 0.0), "time") for seconds in (waited, took, calls)]
    return "its clock is wrong: a turn took {}, by its clock {}, by its calls {}".format(*times)
