"""The crossover map: which candidate wins at which n and d."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import InvalidInput
from ..problem.candidates import Candidate
from ..problem.vocabulary import Verdict
from .answer_types import Choice

MARKS = {Verdict.FASTEST: "", Verdict.TIE: "=", Verdict.UNKNOWN: "?"}
"""Before a winner's name: it is tied with others, or only probably the best."""


@dataclass(frozen=True)
class MapCell:
    """The answer at one n and d; ``lead`` is the speed-up over the runner-up."""

    n: int
    d: int
    state: Verdict
    backend: str | None
    route: str | None
    lead: float | None

    @property
    def name(self) -> str:
        if self.backend is None or self.route is None:
            return "nothing"
        return str(Candidate(self.backend, self.route))

    @property
    def label(self) -> str:
        if self.state is Verdict.FASTEST and self.lead is not None:
            return f"{self.name} {self.lead:.1f}x"
        return f"{MARKS[self.state]} {self.name}".strip()


def parse(text: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``n=49,196 d=64,512`` in either order."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text:
        name, _, values = part.partition("=")
        try:
            sizes = tuple(sorted({int(value) for value in values.split(",")}))
        except ValueError:
            sizes = ()
        if name not in ("n", "d") or not sizes or sizes[0] < 1:
            raise InvalidInput(f"--sweep must be like n=49,196 d=64,512; got {' '.join(text)!r}.")
        found[name] = sizes
    if set(found) != {"n", "d"}:
        raise InvalidInput(f"--sweep must be like n=49,196 d=64,512; got {' '.join(text)!r}.")
    return found["n"], found["d"]


def cell(choice: Choice) -> MapCell:
    ratios = [
        row.ratio
        for row in choice.rows
        if row.ratio is not None and row.candidate != choice.candidate
    ]
    case = choice.case
    lead = min(ratios) if ratios else None
    return MapCell(case.n, case.d, choice.state, choice.backend, choice.route, lead)


def text(cells: Sequence[MapCell], width: int) -> Iterator[str]:
    """A table of n by d where it fits the width, else a line for every cell; then the legend."""
    ns, ds = sorted({c.n for c in cells}), sorted({c.d for c in cells})
    labels = {(c.n, c.d): c.label for c in cells}
    rows = [["n", *(f"d={d}" for d in ds)]]
    rows += [[str(n), *(labels.get((n, d), "-") for d in ds)] for n in ns]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 2 * len(ds) <= width:
        for row in rows:
            yield "  ".join(v.ljust(w) for v, w in zip(row, widths, strict=True)).rstrip()
    else:
        for (n, d), label in labels.items():
            yield f"n={n} d={d}: {label}"
    yield "1.3x: speed-up over the runner-up; =: a tie, recommended; ?: probably."
