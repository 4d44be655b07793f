"""The paper's claims about speed and memory, and what this machine says to them.

A claim compares two sides, each the best of several candidates, mostly of two descriptors. It is
judged from one race of exactly these candidates (:mod:`.claim_races`), all taking turns: times of
separate races are never compared. Yes and no need the whole 95 % interval on one side of the limit;
where a race is missing, the command that runs it is named. Implementations and hardware are not the
paper's: a claim that does not hold here was not necessarily wrong there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..choosing import earlier_samples, rule
from ..choosing.rule import FEWEST, Round
from ..common.units import readable
from ..problem.candidates import Candidate, Subject
from ..problem.cases import Case, named
from ..trials.samples import Sample

COMMAND = "demopool report --claims"
SESSION = "claim:"
"""How the name of a session of ours begins; the claim's key follows."""

READINGS = 3
"""Of the memory of a call."""

EXACT = ("eigh", "gram", "svd")


@dataclass(frozen=True)
class Side:
    """What is compared: any backend, by these routes or by any."""

    case: Case
    routes: tuple[str, ...] = ()

    def candidates(self, backends: Sequence[str]) -> tuple[Candidate, ...]:
        subject = Subject("descriptor", self.case.descriptor)
        wanted = self.routes or [route for route in subject.routes() if subject.is_raced(route)]
        return tuple(c for c in subject.candidates(tuple(backends)) if c.route in wanted)


@dataclass(frozen=True)
class Claim:
    """``theirs`` is said to take at least ``limit`` times what ``ours`` takes.

    reading   what we take the words to mean, where they do not say it
    """

    key: str
    text: str
    ours: Side
    theirs: Side | None
    measure: str = "lowest_s"
    limit: float = 1.0
    reading: str = ""

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.ours,) if self.theirs is None else (self.ours, self.theirs)


def _side(descriptor: str, case: str, routes: tuple[str, ...] = ()) -> Side:
    return Side(named(case, descriptor=descriptor), routes)


_VGG, _RESNET = "vgg-b1", "resnet-b1"


def _less_memory(key: str, text: str, *, than: str, limit: float, reading: str) -> Claim:
    """Of the sketch of ResNet features, than of another descriptor."""
    sides = (_side("sketched-democratic", _RESNET), _side(than, _RESNET))
    return Claim(key, text, *sides, "peak_host_bytes", limit, reading)


CLAIMS = (
    Claim(
        "newton",
        "Democratic pooling by Sinkhorn is an order of magnitude faster than the matrix square "
        "root by Newton's iterations (VGG-16)",
        _side("democratic", _VGG),
        _side("power", _VGG, ("newton",)),
        limit=10.0,
        reading="10 times",
    ),
    Claim(
        "exact",
        "It is faster than an exact matrix square root by eigenvectors or SVD too (VGG-16)",
        _side("democratic", _VGG),
        _side("power", _VGG, EXACT),
        limit=1 + rule.MARGIN,
        reading=f"by {rule.MARGIN:.0%} or more",
    ),
    _less_memory(
        "sketch-memory",
        "A sketch needs far less memory than the full descriptor (ResNet, k = 8192)",
        than="democratic",
        limit=2.0,
        reading="less than half, to make it",
    ),
    _less_memory(
        "power-memory",
        "Sketching needs two orders of magnitude less memory than the matrix power (ResNet)",
        than="power",
        limit=100.0,
        reading="100 times less, to make it",
    ),
    Claim(
        "impractical",
        "Matrix power normalisation is impractical for ResNet features (d = 2048)",
        _side("democratic", _RESNET),
        _side("power", _RESNET),
        limit=10.0,
        reading="10 times the time of democratic pooling",
    ),
    Claim(
        "sketched-power",
        "The matrix power cannot be computed by sketching",
        _side("sketched-power", _RESNET),
        None,
        reading="no backend is right at it",
    ),
)


class Judged(NamedTuple):
    """``holds`` is None where it cannot be said; ``here`` says why, or what was found."""

    claim: str
    reading: str
    here: str
    holds: bool | None
    measured: bool = False


def name_of(sample: Sample) -> str:
    """Of an entrant: two descriptors may have the same routes."""
    return f"{sample.case.descriptor} {Candidate(sample.backend, sample.route)}"


def races(found: Iterable[Sample]) -> dict[str, dict[tuple[str, int], list[Sample]]]:
    """Claim -> (machine, threads) -> the samples of its newest session."""
    newest: dict[tuple[str, str, int], tuple[str, str]] = {}
    groups: dict[tuple[str, str, int, str], list[Sample]] = {}
    for s in found:
        if not s.session.startswith(SESSION):
            continue
        key = s.session.removeprefix(SESSION).partition(":")[0]
        where = (key, s.fingerprint, s.threads)
        groups.setdefault((*where, s.session), []).append(s)
        newest[where] = max(newest.get(where, ("", "")), (s.measured_at, s.session))
    chosen: dict[str, dict[tuple[str, int], list[Sample]]] = {}
    for (key, fingerprint, threads), (_, session) in newest.items():
        own = groups[key, fingerprint, threads, session]
        chosen.setdefault(key, {})[fingerprint, threads] = own
    return chosen


def judged(found: Iterable[Sample], here: str = "") -> list[Judged]:
    """Every claim by the newest race of it: of ``here``, a machine's key, or else of another one,
    which is named."""
    measured = races(found)
    answers = []
    for claim in CLAIMS:
        of = measured.get(claim.key, {})
        if not of:
            missing = f"cannot be said: it was not raced here. {COMMAND} does it"
            answers.append(Judged(claim.text, claim.reading, missing, None))
            continue
        own = [where for where in of if where[0] == here]
        where = own[-1] if own else list(of)[-1]
        answer = verify(claim, of[where])
        foreign = "" if own else f" [on {where[0][:8]}]"
        threads = f"{where[1]} thread{'s' * (where[1] != 1)}"
        answers.append(answer._replace(here=f"{answer.here}; {threads}{foreign}"))
    return answers


def verify(claim: Claim, of_session: Sequence[Sample]) -> Judged:
    """By the samples of one session of it."""
    if claim.theirs is None:
        return _alone(claim, of_session)
    if claim.measure == "lowest_s":
        return _by_time(claim, of_session)
    return _by_memory(claim, of_session)


def _names(side: Side, of_session: Sequence[Sample]) -> set[str]:
    """Of the side's entrants that were right; what was not checked has no say."""
    return {
        name_of(s)
        for s in of_session
        if s.case == side.case
        and (not side.routes or s.route in side.routes)
        and s.measure == "error"
        and s.value is not None
    }


def best_of(rounds: Sequence[Round], names: set[str]) -> str | None:
    """The candidate with the lowest median of those in every round."""
    whole = [name for name in names if rounds and all(name in r.lowest for r in rounds)]
    return min(
        whole, key=lambda name: float(np.median([r.lowest[name] for r in rounds])), default=None
    )


def _by_time(claim: Claim, of_session: Sequence[Sample]) -> Judged:
    assert claim.theirs is not None
    timed = earlier_samples.rounds_of(of_session, name=name_of)
    names = [_names(side, of_session) for side in claim.sides]
    rounds = [r for r in timed if all(own & r.lowest.keys() for own in names)]
    ours, theirs = (best_of(rounds, own) for own in names)
    if len(rounds) < FEWEST or ours is None or theirs is None:
        short = f"{_counted(len(rounds))} of both sides, {FEWEST} are needed"
        missing = [
            _side_text(side)
            for side, own in zip(claim.sides, names, strict=True)
            if not any(own & r.lowest.keys() for r in timed)
        ]
        if missing:
            short += f" ({' and '.join(missing)} in none)"
        return _unknown(claim, f"{short}; {COMMAND} --fresh --budget 120 tries longer")
    ratios = [r.lowest[theirs] / r.lowest[ours] for r in rounds]
    low, middle, high = rule.interval(ratios)
    where = f"{ours} against {theirs}, {_counted(len(rounds))}"
    if middle >= 1:
        text = f"{_times(middle)} faster ({_times(low)} to {_times(high)}): {where}"
    else:
        text = f"{_times(1 / middle)} slower ({_times(1 / high)} to {_times(1 / low)}): {where}"
    if rule.is_busy(rounds):
        text += f"; others used {rule.cores_of_others(rounds):.1f} cores"
        low, high = low / (1 + rule.BUSY_MARGIN), high * (1 + rule.BUSY_MARGIN)
    return _by_limit(claim, text, low, high)


def _by_memory(claim: Claim, of_session: Sequence[Sample]) -> Judged:
    assert claim.theirs is not None
    leanest = []
    for side in claim.sides:
        names = _names(side, of_session)
        by_name: dict[str, list[float]] = {}
        for s in of_session:
            if s.measure == claim.measure and s.value and s.value > 0 and name_of(s) in names:
                by_name.setdefault(name_of(s), []).append(s.value)
        if not by_name:
            return _unknown(claim, f"no memory of {side.case.descriptor} was measured")
        by_name = {name: values for name, values in by_name.items() if len(values) >= READINGS}
        if not by_name:
            return _unknown(claim, f"memory was read less than {READINGS} times")
        name = min(by_name, key=lambda name: float(np.median(by_name[name])))
        leanest.append((name, by_name[name]))
    (ours, small), (theirs, large) = leanest
    ratio = float(np.median(large)) / float(np.median(small))
    low, high = min(large) / max(small), max(large) / min(small)
    sizes = (
        f"{readable(float(np.median(small)), 'memory')} against "
        f"{readable(float(np.median(large)), 'memory')} to make"
    )
    smaller = claim.theirs.case.d**claim.theirs.case.order / claim.ours.case.k
    text = (
        f"{_times(ratio)} less ({_times(low)} to {_times(high)}): {sizes}; {smaller:.0f}x less to "
        f"store: {ours} against {theirs}, {min(len(small), len(large))} measurements"
    )
    return _by_limit(claim, text, low, high)


def _side_text(side: Side) -> str:
    return f"{side.case.descriptor} by {' or '.join(side.routes) or 'any route'}"


def _alone(claim: Claim, of_session: Sequence[Sample]) -> Judged:
    names = _names(claim.ours, of_session)
    rounds = earlier_samples.rounds_of(of_session, name=name_of)
    name = best_of(rounds, names) if rounds else None
    if name is None:
        return _unknown(claim, "no candidate was checked and timed")
    errors = [
        s.value for s in of_session if s.measure == "error" and name_of(s) == name and s.value
    ]
    low, middle, high = rule.interval([r.lowest[name] for r in rounds])
    time = readable(middle, "time")
    if len(rounds) >= FEWEST:
        time += f" ({readable(low, 'time')} to {readable(high, 'time')})"
    error = f", error {errors[-1]:.0e}" if errors else ""
    text = (
        "not from the sketches of the features, which is what is proved; but from its eigenvectors "
        f"it can: {time}{error}, {name}, {_counted(len(rounds))}"
    )
    return Judged(claim.text, claim.reading, text, False, measured=True)


def _by_limit(claim: Claim, text: str, low: float, high: float) -> Judged:
    holds = True if low >= claim.limit else False if high < claim.limit else None
    if holds is None:
        text = f"cannot be said, the interval holds the limit: {text}"
    return Judged(claim.text, claim.reading, text, holds, measured=True)


def _unknown(claim: Claim, why: str) -> Judged:
    return Judged(claim.text, claim.reading, f"cannot be said: {why}", None)


def _counted(rounds: int) -> str:
    return f"{rounds} round{'s' * (rounds != 1)}"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 2 else f"{ratio:.1f}x" if ratio < 100 else f"{ratio:.0f}x"
