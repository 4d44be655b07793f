"""The paper's claims about speed and memory, and what this machine says to them.

Each is judged from measurements that exist; where one is missing, the command that makes it is
named. Implementations and hardware are not the paper's: a claim that does not hold here was not
necessarily wrong there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from demopool.cases import Case, named
from demopool.units import readable

from .data import Fact, best

VGG, RESNET = "vgg-b1", "resnet-b1"
EXACT = ("eigh", "gram", "svd")


class Judged(NamedTuple):
    """``holds`` is None where it was not measured."""

    claim: str
    here: str
    holds: bool | None


def judged(facts: Iterable[Fact], here: str = "") -> list[Judged]:
    """Times of one machine, by one way of measuring, are compared with its own: with those of
    ``here``, its key, if it has what a claim needs, else with those of another, which is named."""
    by_origin: dict[tuple[str, str], list[Fact]] = {(here, "choose"): []}
    for fact in facts:
        by_origin.setdefault((fact.machine, fact.source), []).append(fact)
    found = []
    for judge in _CLAIMS:
        answers = {origin: judge(own) for origin, own in by_origin.items()}
        mine = next(iter(answers))
        origin = next((o for o, a in answers.items() if a.holds is not None), mine)
        answer = answers[origin]
        if origin != mine:
            where = f"on {origin[0]}, {origin[1]}"
            answer = answer._replace(here=f"{answer.here} [{where}]")
        found.append(answer)
    return found


def _faster(ratio: float) -> str:
    return f"{ratio:.1f}x faster" if ratio >= 1 else f"{1 / ratio:.1f}x slower"


def _time(facts: list[Fact], case: Case, routes: tuple[str, ...] = ()) -> Fact | None:
    return best(facts, "call_s", case, routes)


def _missing(claim: str, *needed: tuple[str, str]) -> Judged:
    commands = "; ".join(f"demopool choose --descriptor {d} --case {c}" for d, c in needed)
    return Judged(claim, f"not measured: {commands}", None)


def _against_newton(facts: list[Fact]) -> Judged:
    claim = (
        "Democratic pooling by Sinkhorn is an order of magnitude faster than the matrix square "
        "root by Newton's iterations (VGG-16)"
    )
    ours = _time(facts, named(VGG))
    newton = _time(facts, named(VGG, descriptor="power"), ("newton",))
    if ours is None or newton is None:
        return _missing(claim, ("democratic", VGG), ("power", VGG))
    ratio = newton.value / ours.value
    return Judged(claim, f"{_faster(ratio)} ({_pair(ours, newton)})", ratio >= 10)


def _against_exact(facts: list[Fact]) -> Judged:
    claim = "It is faster than an exact matrix square root by eigenvectors or SVD too (VGG-16)"
    ours = _time(facts, named(VGG))
    exact = _time(facts, named(VGG, descriptor="power"), EXACT)
    if ours is None or exact is None:
        return _missing(claim, ("democratic", VGG), ("power", VGG))
    ratio = exact.value / ours.value
    return Judged(claim, f"{_faster(ratio)} ({_pair(ours, exact)})", ratio > 1)


def _sketch_against_full(facts: list[Fact]) -> Judged:
    claim = "A sketch needs far less memory than the full descriptor (ResNet, k = 8192)"
    sketched, full = named(RESNET, descriptor="sketched-democratic"), named(RESNET)
    size = 4 * sketched.k, 4 * full.d**2
    small, large = best(facts, "peak_host_bytes", sketched), best(facts, "peak_host_bytes", full)
    stored = f"{size[1] / size[0]:.0f}x smaller to store"
    if small is None or large is None:
        return _missing(claim, ("sketched-democratic", RESNET), ("democratic", RESNET))
    ratio = large.value / small.value
    made = f"{readable(small.value, 'memory')} against {readable(large.value, 'memory')} to make"
    return Judged(claim, f"{stored}; {made}", ratio > 2)


def _sketch_against_power(facts: list[Fact]) -> Judged:
    claim = "Sketching needs two orders of magnitude less memory than the matrix power (ResNet)"
    sketched = best(facts, "peak_host_bytes", named(RESNET, descriptor="sketched-democratic"))
    power = best(facts, "peak_host_bytes", named(RESNET, descriptor="power"))
    if sketched is None or power is None:
        return _missing(claim, ("sketched-democratic", RESNET), ("power", RESNET))
    ratio = power.value / sketched.value
    return Judged(claim, f"{ratio:.1f}x less to make, 512x less to store", ratio >= 100)


def _impractical(facts: list[Fact]) -> Judged:
    claim = "Matrix power normalisation is impractical for ResNet features (d = 2048)"
    power = _time(facts, named(RESNET, descriptor="power"))
    ours = _time(facts, named(RESNET))
    if power is None or ours is None:
        return _missing(claim, ("power", RESNET), ("democratic", RESNET))
    ratio = power.value / ours.value
    said = f"{ratio:.1f}x the time of democratic pooling, through the n x n Gram matrix"
    return Judged(claim, f"{said} ({_pair(power, ours)})", ratio > 10)


def _cannot_be_sketched(facts: list[Fact]) -> Judged:
    claim = "The matrix power cannot be computed by sketching"
    sketched = _time(facts, named(RESNET, descriptor="sketched-power"))
    error = best(facts, "error", named(RESNET, descriptor="sketched-power"))
    if sketched is None or error is None:
        return _missing(claim, ("sketched-power", RESNET))
    figures = f"{readable(sketched.value, 'time')}, error {error.value:.0e}, {sketched.candidate}"
    said = (
        "not from the sketches of the features, which is what is proved; but from its eigenvectors "
        f"it can ({figures})"
    )
    return Judged(claim, said, False)


def _pair(one: Fact, other: Fact) -> str:
    return f"{one.candidate} against {other.candidate}"


_CLAIMS: tuple[Callable[[list[Fact]], Judged], ...] = (
    _against_newton,
    _against_exact,
    _sketch_against_full,
    _sketch_against_power,
    _impractical,
    _cannot_be_sketched,
)
