"""Which candidate is fastest: a pure function of what was measured, and when to stop measuring.

The words. *Fastest*: at least 3 % faster than every other. *Tie*: all within 5 % of the best.
Between the two limits either answer is right; that room is what lets more measuring end in an
answer. Everything else is *unknown*. The aim is that a winner is named wrongly in under 1 % of
cases, ties included; in doubt the answer is unknown.

The data. A *block* is a few calls in a row of one candidate, the same number for all. A *turn* is a
block of every candidate still in the race, in an order drawn anew; a *round* is as many turns as
fill 0.4 s, longer than a process tends to stay on a disturbed core. Of a round only two numbers of
each candidate count: the lowest call, and the mean of all. Only ratios within a round are compared,
because whatever slows the machine slows all of them.

The rule, at rounds 1, 2, 3, 4, 6, 8, 10, 12, then 15, 21, 30, ... (times 1.4) and nowhere else:

- The *lead* has the lowest median of its log ratios to the middle of the field.
- d is the log ratio of a rival to the lead, round by round. The rival is *slower* if a signed-rank
  test (from 15 rounds on; Student's t from 8 rounds on if blocks are longer than 0.25 s) puts d
  above log 1.03 at the level below, or if it was slower in every round by more than 1 + 4 / rounds
  (from 8 rounds on, however long a block is). It is then dropped, unless the lead's mean call
  is more than 1.25 times the rival's: a low minimum must not hide calls that are slow.
- A rival is *tied* if the test puts d below log 1.05.
- The level is 1 % divided by the number of looks that can test and the number of rivals, so that
  neither looking often nor having many candidates makes a false winner likely.
- Only the lead is left: fastest. But processes differ for their whole life, by up to 2 %; so if any
  was dropped at less than 1.10, lead and those are started again as new processes, and after 8
  rounds the lead must still be ahead by 1.5 %, else the answer is unknown.
- All others are tied: tie. Budget spent: unknown, with the present lead.

Where others used more than a quarter of a core meanwhile, a process can be slowed for seconds while
its rivals are not. So more is asked for: nobody is dropped before round 21, nor tested before 30; d
must be above log 1.05, or in every round above 1 + 8 / rounds; the best tenth of the rival's rounds
must be slower than the lead's best tenth by 5 % too (for a tie: within 5 %); and new processes must
repeat it, by 5 % in 16 rounds, for all that were dropped at less than 10 times, not 1.10.

A candidate can be so slow that rounds of it do not fit the budget. What is known is then a *bound*:
a call of it took so long, or was given up after so long. One call tells little, so it counts as
slower only if the bound is more than 5 times the lead's mean call in the worst of 8 rounds or more,
and the cost model predicts it at twice the lead's time or more. Else it is open, and so is the
answer.

How often it errs is in docs/explanation/decision-rule.md, and tests/test_rule.py simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem.vocabulary import Verdict

ROUND_SECONDS = 0.4
LONG_BLOCK = 0.25
MARGIN, TIE_LIMIT, LEVEL = 0.03, 0.05, 0.01
CLOSE, STILL_AHEAD, CONFIRMING_ROUNDS = 1.10, 1.015, 8
STEADY = 1.25
LEAST_ROUNDS = 8
FEWEST = 6
"""Rounds of a 95 % interval: the lowest and the highest of fewer do not enclose the median so."""
FAR, FAR_BY_MODEL = 5.0, 2.0

BUSY_CORES = 0.25
BUSY_MARGIN, BUSY_CLOSE, BUSY_CONFIRMING_ROUNDS = 0.05, 10.0, 16
_BUSY_LEAST_ROUNDS, _BUSY_FIRST_TEST, _UNDISTURBED = 21, 30, 0.1

_BEFORE_TESTS = (1, 2, 3, 4, 6, 8, 10, 12)
_FIRST_TEST, _FIRST_T_TEST = 15, LEAST_ROUNDS
_GROWTH = 1.4
# Looks before the first rank test at which Student's t may be asked.
_T_LOOKS = sum(look >= _FIRST_T_TEST for look in _BEFORE_TESTS)

Name = str


@dataclass(frozen=True)
class Round:
    """Of every candidate that took part: its lowest and its mean call, in seconds.

    ``others`` is how many cores everybody else used meanwhile.
    """

    lowest: Mapping[Name, float]
    mean: Mapping[Name, float]
    others: float = 0.0

    def only(self, names: Collection[Name]) -> Round:
        """Of these candidates."""
        lowest, mean = (
            {n: t for n, t in of.items() if n in names} for of in (self.lowest, self.mean)
        )
        return Round(lowest, mean, self.others)


@dataclass(frozen=True)
class Dropped:
    """At which round, and how many times slower than the lead it then was."""

    round: int
    ratio: float
    than: Name


@dataclass(frozen=True)
class Standing:
    """What the rounds say so far.

    verdict   ``fastest`` or ``tie``, or None while it is open
    lead      the present best; alive: still in the race, the lead included
    close     dropped so near to the lead that new processes must confirm it
    next_look the round at which to ask again
    """

    verdict: Verdict | None
    lead: Name | None
    alive: tuple[Name, ...]
    dropped: dict[Name, Dropped] = field(default_factory=dict)
    close: tuple[Name, ...] = ()
    next_look: int = 1


def calls_per_block(seconds: float) -> int:
    """Of a candidate whose call takes so long: the fastest one's number serves all."""
    return int(np.clip(round(0.005 / max(seconds, 1e-9)), 1, 16))


def schedule(rounds: int) -> tuple[int, ...]:
    """The rounds at which to look, fixed beforehand by how many the budget could pay for."""
    late = [_FIRST_TEST]
    while late[-1] < max(rounds, 170):
        late.append(math.ceil(late[-1] * _GROWTH))
    return (*_BEFORE_TESTS, *late)


def standing_of(
    rounds: Sequence[Round],
    *,
    calls: int,
    at_most: int = 170,
    margin: float = MARGIN,
    tie_limit: float = TIE_LIMIT,
    level: float = LEVEL,
    bounded: bool = False,
) -> Standing:
    """The standing after some rounds; ``calls`` is per block, ``at_most`` what rounds there may be.

    ``bounded``: there are rivals of which only a bound is known, so one that is alone in the rounds
    needs as many as any other lead. Looks are replayed from the first on, so that the answer
    depends on the rounds alone.
    """
    if not rounds:
        return Standing(None, None, ())
    looks = schedule(at_most)
    names = tuple(rounds[0].lowest)
    if len(names) == 1:
        enough = not bounded or len(rounds) >= LEAST_ROUNDS
        return Standing(Verdict.FASTEST if enough else None, names[0], names)
    each = level / ((len(looks) - len(_BEFORE_TESTS) + _T_LOOKS) * (len(names) - 1))
    alive, close = names, list[Name]()
    dropped: dict[Name, Dropped] = {}
    standing = Standing(None, None, names)
    for look in looks:
        if look > len(rounds):
            return Standing(None, standing.lead, alive, dropped, tuple(close), look)
        so_far = rounds[:look]
        lead = _lead(so_far, alive)
        busy = is_busy(so_far)
        least = math.log1p(max(margin, BUSY_MARGIN) if busy else margin)
        tied = 0
        for rival in alive:
            if rival == lead:
                continue
            d = _log_ratios(so_far, rival, lead)
            long = calls * min(r.lowest[rival] for r in so_far) > LONG_BLOCK
            slower = _is_slower(d, long, busy, least, each) and _is_steady(so_far, lead, rival)
            tie = _shown(math.log1p(tie_limit) - d, long, busy, each)
            if busy:
                undisturbed = math.log(_ratio_at_best(so_far, rival, lead))
                slower = slower and undisturbed > least
                tie = tie and undisturbed < math.log1p(tie_limit)
            if slower:
                ratio = float(np.exp(np.median(d)))
                dropped = {**dropped, rival: Dropped(look, ratio, lead)}
                if ratio < (BUSY_CLOSE if busy else CLOSE):
                    close.append(rival)
            elif tie:
                tied += 1
        alive = tuple(name for name in alive if name not in dropped)
        verdict = None
        if len(alive) == 1:
            verdict = Verdict.FASTEST
        elif tied == len(alive) - 1:
            verdict = Verdict.TIE
        standing = Standing(verdict, lead, alive, dropped, tuple(close), look)
        if verdict is not None:
            return standing
    return standing


def is_busy(rounds: Sequence[Round]) -> bool:
    """Whether others used so much of the machine that more evidence is asked for."""
    return cores_of_others(rounds) > BUSY_CORES


def least_rounds(rounds: Sequence[Round]) -> int:
    """Minimum number of rounds for a decision; it changes with the load."""
    alone = bool(rounds) and len(rounds[0].lowest) == 1
    return _BUSY_LEAST_ROUNDS if is_busy(rounds) and not alone else LEAST_ROUNDS


def cores_of_others(rounds: Sequence[Round]) -> float:
    return float(np.mean([r.others for r in rounds])) if rounds else 0.0


def is_far(bound: float, rounds: Sequence[Round], lead: Name, by_model: float) -> bool:
    """Whether a candidate that took ``bound`` seconds for a call, or more, is slower than the lead.

    ``by_model`` is how many times the lead's time the cost model predicts for it.
    """
    worst = [r.mean[lead] for r in rounds if lead in r.mean]
    if len(worst) < LEAST_ROUNDS or bound <= FAR * max(worst):
        return False
    return by_model >= FAR_BY_MODEL


def confirming_rounds(rounds: Sequence[Round]) -> int:
    """How many rounds of new processes must repeat what these rounds say."""
    return BUSY_CONFIRMING_ROUNDS if is_busy(rounds) else CONFIRMING_ROUNDS


def consistent(
    rounds: Iterable[Round], field: Collection[Name], calls: int, *, bounded: bool = False
) -> list[Round]:
    """The leading rounds that include every candidate still in the race at that point.

    A race can be killed in the middle of a round. When a candidate fails, one that it had beaten
    may return to the race, but it is missing from the rounds in between.
    """
    found: list[Round] = []
    for candidate in rounds:
        standing = standing_of(found, calls=calls, bounded=bounded)
        alive = set(standing.alive) if found else set(field)
        if standing.verdict is not None or not alive <= candidate.lowest.keys():
            break
        found.append(candidate)
    return found


def confirms(rounds: Sequence[Round], lead: Name, close: Sequence[Name]) -> str:
    """Whether new processes repeat that the lead is ahead of all that were close.

    Empty, or a sentence about the one that is not behind any more.
    """
    busy = is_busy(rounds)
    for rival in close:
        ratio = float(np.exp(np.median(_log_ratios(rounds, rival, lead))))
        if busy:
            ratio = min(ratio, _ratio_at_best(rounds, rival, lead))
        if ratio <= (1 + BUSY_MARGIN if busy else STILL_AHEAD):
            return (
                f"new processes did not repeat it: {rival} takes {ratio:.3f} times the time of "
                f"{lead}"
            )
    return ""


def interval(values: Sequence[float] | NDArray[Any]) -> tuple[float, float, float]:
    """Median with the 95 % interval that order statistics give it, whatever the distribution."""
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    # So many on each side can be left out: fewer heads among n coins have at most 2.5 %.
    coins = int(np.searchsorted(np.cumsum(_coins(n)), 0.025)) if n < 1000 else int(n / 2 - n**0.5)
    below = max(coins - 1, 0)
    return float(ordered[below]), float(np.median(ordered)), float(ordered[n - 1 - below])


def _lead(rounds: Sequence[Round], alive: Sequence[Name]) -> Name:
    logs = np.log([[r.lowest[name] for name in alive] for r in rounds])
    relative = logs - np.median(logs, axis=1, keepdims=True)
    return alive[int(np.argmin(np.median(relative, axis=0)))]


def _log_ratios(rounds: Sequence[Round], one: Name, other: Name) -> NDArray[np.float64]:
    return np.log([r.lowest[one] / r.lowest[other] for r in rounds])


def _is_slower(d: NDArray[np.float64], long: bool, busy: bool, margin: float, level: float) -> bool:
    if _shown(d - margin, long, busy, level):
        return True
    least, above = (_BUSY_LEAST_ROUNDS, 8) if busy else (LEAST_ROUNDS, 4)
    return len(d) >= least and float(d.min()) > math.log1p(above / len(d))


def _ratio_at_best(rounds: Sequence[Round], rival: Name, lead: Name) -> float:
    """Of the times at which each was hardly disturbed, which need not be the same rounds."""
    best = {n: np.quantile([r.lowest[n] for r in rounds], _UNDISTURBED) for n in (rival, lead)}
    return float(best[rival] / best[lead])


def _is_steady(rounds: Sequence[Round], lead: Name, rival: Name) -> bool:
    mean = {name: float(np.mean([r.mean[name] for r in rounds])) for name in (lead, rival)}
    return mean[lead] <= STEADY * mean[rival]


def _shown(x: NDArray[np.float64], long: bool, busy: bool, level: float) -> bool:
    """Evidence at a level that x is typically above 0."""
    n = len(x)
    if n >= (_BUSY_FIRST_TEST if busy else _FIRST_TEST):
        return signed_rank_p(x) < level
    if busy or not long or n < _FIRST_T_TEST:
        return False
    from scipy.special import stdtrit

    spread = max(float(x.std(ddof=1)), 0.01)
    return float(x.mean()) > float(stdtrit(n - 1, 1 - level)) * spread / math.sqrt(n)


def signed_rank_p(x: NDArray[np.float64]) -> float:
    """One-sided p of Wilcoxon's signed-rank test that x is symmetric about 0: exact up to 60."""
    x = x[x != 0]
    n = len(x)
    if n == 0:
        return 1.0
    # Equal sizes share their ranks; the exact distribution is then a little too wide.
    sizes = np.abs(x)
    ordered = np.sort(sizes)
    ranks = (np.searchsorted(ordered, sizes) + np.searchsorted(ordered, sizes, "right") + 1) / 2
    total = float(ranks[x > 0].sum())
    if n <= 60:
        return float(_rank_sums(n)[math.ceil(total - 1e-9) :].sum())
    mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
    return 0.5 * math.erfc((total - 0.5 - mean) / math.sqrt(2 * variance))


@cache
def _rank_sums(n: int) -> NDArray[np.float64]:
    """Probability of every sum of the ranks 1..n that coins choose."""
    found = np.ones(1)
    for rank in range(1, n + 1):
        longer = np.zeros(len(found) + rank)
        longer[: len(found)] += found / 2
        longer[rank:] += found / 2
        found = longer
    return found


@cache
def _coins(n: int) -> NDArray[np.float64]:
    """Probability of every number of heads among n fair coins."""
    found = np.ones(1)
    for _ in range(n):
        found = (np.append(found, 0) + np.append(0, found)) / 2
    return found
