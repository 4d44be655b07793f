"""From features to a folder: one page, and every figure as PNG, SVG and CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..common import files
from ..errors import InvalidInput
from . import accuracy_statements, figures, page, statements
from .accuracy import Accuracies
from .analysis import Progress, analyse
from .images import Array, drawn
from .statements import Statement
from .tables import Table

NAME = "paper.html"


@dataclass(frozen=True)
class Built:
    """The files, the page first; the sample in words; what was said, and the numbers."""

    files: tuple[Path, ...]
    sample: str
    images: int
    statements: tuple[Statement, ...]
    tables: tuple[Table, ...]


def build(
    folder: Path,
    images: Sequence[Array],
    source: str,
    *,
    most: int,
    seed: int,
    progress: Progress,
    accuracies: Callable[[], Accuracies] | None = None,
) -> Built:
    """Write the page of these images into a folder, made if there is none.

    ``accuracies`` measures them, if there are labels.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"{folder} cannot be written: {problem.strerror}.") from None
    found = analyse(drawn(images, source, most=most, seed=seed), progress)
    said = statements.all_of(found)
    shown = list(figures.all_of(found))
    extra: list[str] = []
    if accuracies is None:
        said += accuracy_statements.without_labels()
    else:
        measured = accuracies()
        said += accuracy_statements.all_of(measured, found.d)
        judged = figures.of_accuracy(measured)
        extra = list(page.accuracy(judged.table, measured.sentence))
        shown.insert(0, judged)
    # First the page: a PNG and an SVG file get their legend drawn in, which the page has as text.
    text = page.render(found, said, shown, extra)
    written = [folder / NAME]
    for one in shown:
        for ending, content in (
            ("png", one.figure.png()),
            ("svg", one.figure.svg_document().encode()),
            ("csv", one.table.csv().encode()),
        ):
            path = folder / f"{one.figure.name}.{ending}"
            files.write_bytes(path, content)
            written.append(path)
    files.write_text(folder / NAME, text)
    return Built(
        tuple(written),
        found.sample.sentence,
        found.images,
        tuple(said),
        tuple(one.table for one in shown),
    )
