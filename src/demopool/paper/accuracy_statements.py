"""The paper's statements on accuracy, judged by paired tests on the test part."""

from __future__ import annotations

from collections.abc import Iterator

from .accuracy import (
    FIRST,
    GAMMA_OF_SKETCHES,
    INNER,
    NORMALISATIONS,
    POWERS,
    ROOTED,
    Accuracies,
    Row,
    democratic,
    power,
    sketch_sizes,
    sketched,
)
from .statements import FAILS, HOLDS, LEVEL, OPEN, Statement

MARGINAL = 0.01
"""The loss of accuracy by sketching that is called marginal."""

_TEXTS = (
    ("Section 4.3, Table 1", "Fully democratic pooling improves over sum pooling"),
    ("Section 4.3, Table 1", "Gamma between 0 and 1 outperforms sum pooling"),
    ("Section 4.3, Table 1", "Gamma between 0 and 1 outperforms fully democratic pooling"),
    ("Section 4.3, Table 1", "Matrix power normalisation outperforms gamma-democratic pooling"),
    ("Section 1", "Second-order pooling is more accurate than first-order pooling"),
    ("Section 3.1", "Sketching costs a marginal loss of accuracy in democratic aggregation"),
    ("Section 4.4, Tables 2 to 4", "Sketched, gamma-democratic pooling outperforms sum pooling"),
)


def without_labels() -> list[Statement]:
    """What to do, for every one of them."""
    return [
        Statement(where, text, "accuracy", OPEN, None, "no labels were given: --labels")
        for where, text in _TEXTS
    ]


def all_of(found: Accuracies, d: int) -> list[Statement]:
    """First with signed square roots, as in the paper, then without."""
    return [one for normalize in NORMALISATIONS for one in _of(found, d, normalize)]


def _of(found: Accuracies, d: int, normalize: str) -> Iterator[Statement]:
    inner = found.preferred(INNER, normalize)
    powers = found.preferred(tuple(map(power, POWERS)), normalize)
    fully, total = (found.row(name, normalize) for name in (democratic(0.0), "sum"))
    first = found.row(FIRST, normalize)
    sides = [(fully, total), (inner, total), (inner, fully), (powers, inner), (first, total)]
    for (where, text), (one, other) in zip(_TEXTS, sides, strict=False):
        yield _better(found, where, text, one, other, turned=one is first)
    if not sketch_sizes(d):
        why = f"features of length {d} are too short for sketches"
        for where, text in _TEXTS[5:]:
            yield Statement(where, f"{text}{_with(total)}", "accuracy", OPEN, None, why)
    for k in sketch_sizes(d)[-1:]:
        own = found.row(sketched(democratic(GAMMA_OF_SKETCHES), k), normalize)
        full = found.row(democratic(GAMMA_OF_SKETCHES), normalize)
        yield _marginal(found, *_TEXTS[5], own, full)
        yield _better(found, *_TEXTS[6], own, found.row(sketched("sum", k), normalize))


def _better(
    found: Accuracies, where: str, text: str, one: Row, other: Row, *, turned: bool = False
) -> Statement:
    """``turned``: the statement says it of ``other``."""
    names = (one.setting.name, other.setting.name, one.normalize)
    beside, adjusted = found.compared[names], found.adjusted[names]
    sign = -1 if turned else 1
    verdict = OPEN
    if adjusted <= LEVEL:
        verdict = HOLDS if sign * beside.difference > 0 else FAILS
    better, worse = (other, one) if turned else (one, other)
    return Statement(
        where,
        f"{text}{_with(one)}",
        f"{better.setting.name} against {worse.setting.name}, McNemar's test, adjusted, "
        f"{LEVEL:.0%}",
        verdict,
        sign * beside.difference,
        f"{_percent(better)} against {_percent(worse)}; {100 * sign * beside.difference:+.2f} "
        f"points, adjusted p = {adjusted:.2g}",
    )


def _marginal(found: Accuracies, where: str, text: str, one: Row, other: Row) -> Statement:
    beside = found.compared[one.setting.name, other.setting.name, one.normalize]
    verdict = OPEN
    if beside.low > -MARGINAL:
        verdict = HOLDS
    elif beside.high < -MARGINAL:
        verdict = FAILS
    return Statement(
        where,
        f"{text}{_with(one)}",
        f"{one.setting.name} against the whole descriptor: the 95 % interval of the difference is "
        f"above {-100 * MARGINAL:g} point",
        verdict,
        beside.difference,
        f"{100 * beside.difference:+.2f} points ({100 * beside.low:+.2f} to "
        f"{100 * beside.high:+.2f})",
    )


def _with(row: Row) -> str:
    return "" if row.normalize == ROOTED else " (without the paper's signed square root)"


def _percent(row: Row) -> str:
    return f"{100 * row.accuracy:.1f} % (s.e. {100 * row.standard_error:.1f})"
