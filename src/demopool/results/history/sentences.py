"""The history in sentences: regressions, what is no longer measured, and what HEAD lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...common.units import readable
from .changes import RATIO
from .judging import AGREE, Regression
from .losses import Loss
from .points import Series
from .text import HASH, count_of, place_of, subject_of

TITLES = {
    "open": "Open regression",
    "confirmed": "Confirmed regression",
    "suspect": "Suspected regression",
    "fixed": "Fixed regression",
    "machine": "No regression, the machine",
    "refuted": "No regression, refuted",
}


def regressed(found: Sequence[Regression]) -> list[str]:
    """One for what the same commit did to the same measure, of however many candidates."""
    groups: dict[tuple[Any, ...], list[Regression]] = {}
    for regression in found:
        one = regression.series
        key = (place_of(one), subject_of(one), one.measure, regression.commit, regression.last_good)
        groups.setdefault((*key, regression.state, regression.fixed_by), []).append(regression)
    found_sentences = []
    for (place, subject, measure, commit, good, state, fixed), group in groups.items():
        which = [
            f"{r.series.name} on {r.series.case or '-'} "
            f"({readable(r.before, r.series.quantity)} to {readable(r.after, r.series.quantity)})"
            for r in group[:6]
        ]
        more = f", and {len(group) - 6} more" if len(group) > 6 else ""
        remains = f"{_factors([r.remains for r in group])} remains"
        outcome = f"fixed by {fixed[:HASH]}" if fixed else remains
        found_sentences.append(
            f"{TITLES[state]}: {subject} {measure} went up {_factors([r.ratio for r in group])} "
            f"at {commit[:HASH]}, {outcome}; last good {good[:HASH]}; "
            f"{place}: {', '.join(which)}{more}." + "".join(f" {why}" for why in _warnings(group))
        )
    return found_sentences


def _factors(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    ends = [f"x{end(known):.3g}" for end in (min, max)] if known else ["from 0"]
    return " to ".join(dict.fromkeys(ends))


def _warnings(group: Sequence[Regression]) -> list[str]:
    """What measuring again has shown, or else what speaks against blaming the commit."""
    again = [r.confirmation for r in group if r.confirmation is not None]
    if again:
        limits = (
            f"{_factors([c.low for c in again][:1])} to {_factors([c.high for c in again][:1])}"
        )
        shown = _factors([c.ratio for c in again])
        said = f"Measured again in turns: {shown}" + (f" ({limits})" if len(again) == 1 else "")
        undecided = any(c.verdict == "undecided" for c in again)
        return [
            f"{said} in {max(c.rounds for c in again)} rounds"
            + (", which decides nothing: measure when the machine is quieter." * undecided or ".")
        ]
    warnings = []
    timed = [r for r in group if r.series.quantity == "time"]
    if any(regression.software_changed for regression in group):
        warnings.append("The machine or its software is not the same before and after.")
    if timed:
        warnings += _baseline(timed)
    if any(r.busy for r in timed):
        of = f"{max(r.busy for r in timed)} of {max(r.measured for r in timed)}"
        warnings.append(f"The machine was busy when {of} of these results were measured.")
    state = group[0].state
    if state == "suspect" or (state == "open" and any(r.measured == 1 for r in timed)):
        once = max(r.measured for r in group) == 1
        begin = "Only one commit shows it: measure" if once else "Measure"
        warnings.append(f"{begin} again before blaming it (--confirm).")
    return warnings


def _baseline(group: Sequence[Regression]) -> list[str]:
    """What the baseline did meanwhile, where it speaks for or against the machine."""
    moved = [r.baseline_ratio for r in group if r.baseline_ratio is not None]
    ratios = [r.ratio_to_baseline for r in group if r.ratio_to_baseline is not None]
    if not moved or not ratios:
        return ["The baseline was not measured with it, so it may have been the machine."]
    state = group[0].state
    if state == "suspect" and min(moved) * RATIO <= 1:
        return [f"The baseline became faster ({_factors([min(moved)])}), the candidate did not."]
    if max(moved) < RATIO:
        return []
    what = "The baseline, whose code is the same for all commits, went up"
    if state == "machine":
        by = "as much"
    elif min(ratios) * AGREE <= 1:
        by = "quite another factor: that is chance and excuses nothing"
    elif max(ratios) >= RATIO:
        by = f"which leaves {_factors([max(ratios)])}"
    else:
        by = "as much, but most other baselines did not"
    return [f"{what} {_factors([max(moved)])}, {by}."]


def lost(found: Sequence[Loss]) -> list[str]:
    """What failed, or has no value any more: one sentence for the same commits and reason."""
    groups: dict[tuple[Any, ...], list[Loss]] = {}
    for loss in found:
        reason = (loss.reason or "no reason is stored").rstrip(".")
        if loss.state == "skipped" and loss.candidate_state:
            reason = f"{loss.candidate_state}: {reason}"
        key = (loss.since, loss.commit, loss.last_good, loss.fixed_by, loss.state, loss.by_machine)
        groups.setdefault((*key, reason), []).append(loss)
    told = []
    for (since, commit, good, fixed, state, by_machine, reason), group in groups.items():
        names = list(dict.fromkeys(loss.series.name for loss in group))
        few = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        what = "failed" if state == "failed" else "had values and were skipped"
        when = f"at the newest commit {commit[:HASH]}"
        if fixed or since != commit:
            when = f"from {since[:HASH]} on"
        outcome = f", fixed by {fixed[:HASH]}" if fixed else ""
        last = f"last good {good[:HASH]}" if good else "it never had a value"
        one = group[0].series
        about = f"{few}; {subject_of(one)} {one.measure}{', ...' * (len(group) > 1)}"
        told.append(
            f"{count_of(len(group), 'series', 'series')} {what} {when}{outcome}; {last} "
            f"({about}): {reason}." + " That is the machine's doing and fails nothing." * by_machine
        )
    return told


def unmeasured(newest: str | None, behind: int | None) -> str:
    """HEAD was not measured; the newest commit that was, and how far back it is."""
    if newest is None or behind is None:
        return "HEAD has no results, nor has any commit before it."
    return f"HEAD has no results; newest measured is {newest[:HASH]}, {_ago(behind)} ago."


def not_at_head(lines: Sequence[Series], head: str) -> list[str]:
    """How many series end before HEAD, though it has results."""
    timely = [one for one in lines if one.values]
    late = [one for one in timely if one.asked[-1].commit != head]
    if not late:
        return []
    return [
        f"{len(late)} of {count_of(len(timely), 'series', 'series')} were not measured at HEAD."
    ]


def _ago(count: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    number = words[count] if count < len(words) else str(count)
    return f"{number} commit{'s' * (count != 1)}"
