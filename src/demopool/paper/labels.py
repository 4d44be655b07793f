"""Which image is of which class, and in which part: from a table, or from the names of folders."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..common.files import read_text
from ..datasets.images import Images
from ..errors import InvalidInput
from .images import Array

FOLDERS = "folders"
TRAIN, TEST = "train", "test"
FEWEST = 2
"""Images of a class in the training part: one to learn from and one to choose C by."""


@dataclass(frozen=True)
class Labelled:
    """``rows`` of the images in the order of their files; ``test`` says which are not learnt from.

    sentence   how many there are, and where the parts come from
    """

    rows: tuple[int, ...]
    labels: tuple[str, ...]
    test: Array
    sentence: str


def read(given: str, images: Images, seed: int) -> Labelled:
    """``given`` is a CSV file with the columns file, label and perhaps split, or ``folders``."""
    labels, parts = _of_folders(images) if given == FOLDERS else _of_table(Path(given), images)
    rows = [row for row, label in enumerate(labels) if label is not None]
    if any(parts[row] for row in rows):
        known = [row for row in rows if parts[row] in (TRAIN, TEST)]
        origin = "the parts are those of the split column"
        if len(known) < len(rows):
            origin += f"; {len(rows) - len(known)} images are in neither train nor test"
        rows, test = known, np.array([parts[row] == TEST for row in known])
    else:
        test = _drawn([labels[row] or "" for row in rows], seed)
        origin = f"half of every class was drawn for training, with seed {seed}"
    chosen = tuple(labels[row] or "" for row in rows)
    _demand_enough(chosen, test)
    left = len(images) - len(labels) + sum(label is None for label in labels)
    sentence = (
        f"{len(set(chosen))} classes, {int((~test).sum())} images to learn from and "
        f"{int(test.sum())} to be judged on; {origin}." + f" {left} have no label." * bool(left)
    )
    return Labelled(tuple(rows), chosen, test, sentence)


def _of_folders(images: Images) -> tuple[list[str | None], list[str]]:
    labels: list[str | None] = [
        Path(array.file).resolve().parent.name
        for array in images.arrays
        for _ in range(array.images)
    ]
    return labels, [""] * len(labels)


def _of_table(path: Path, images: Images) -> tuple[list[str | None], list[str]]:
    table = csv.DictReader(io.StringIO(read_text(path)))
    columns = table.fieldnames or ()
    if "file" not in columns or "label" not in columns:
        raise InvalidInput(
            f"{path} must be a CSV file with the columns file and label, and perhaps split and "
            f"image; it has {', '.join(columns) or 'none'}."
        )
    said: dict[tuple[str, int | None], tuple[str, str]] = {}
    for row in table:
        number = row.get("image") or None
        if number is not None and not number.isdecimal():
            raise InvalidInput(f"{path}: the image of a file is a number; got {number!r}.")
        key = (_ending(row["file"] or ""), None if number is None else int(number))
        value = (row["label"] or "", (row.get("split") or "").strip().lower())
        if said.setdefault(key, value) != value:
            raise InvalidInput(f"{path} says two things of {row['file']}.")
    labels: list[str | None] = []
    parts: list[str] = []
    for array in images.arrays:
        ending = _ending(array.file)
        for image in range(array.images):
            names = [ending[i:] for i, c in enumerate(ending) if i == 0 or ending[i - 1] == "/"]
            keys = [(name, which) for name in names for which in (image, None)]
            label, part = next((said[key] for key in keys if key in said), (None, ""))
            labels.append(label)
            parts.append(part)
    if not any(label is not None for label in labels):
        raise InvalidInput(
            f"{path} names none of the files: its column file must have their names, or how their "
            f"paths end; the first is {images.arrays[0].file}."
        )
    return labels, parts


def _ending(name: str) -> str:
    return Path(name).as_posix().removeprefix("./")


def _drawn(labels: Sequence[str], seed: int) -> Array:
    rng, test = np.random.default_rng(seed), np.zeros(len(labels), dtype=bool)
    for label in sorted(set(labels)):
        own = np.flatnonzero(np.array(labels) == label)
        test[rng.permutation(own)[: len(own) // 2]] = True
    return test


def _demand_enough(labels: Sequence[str], test: Array) -> None:
    every = sorted(set(labels))
    if len(every) < 2:
        raise InvalidInput(f"there must be two classes at least; got {len(every)}.")
    for label in every:
        own = int((~test[np.array(labels) == label]).sum())
        if own < FEWEST:
            raise InvalidInput(
                f"class {label!r} has {own} images to learn from, and needs {FEWEST} at least."
            )
    if not test.any():
        raise InvalidInput("no image is in the test part.")
