"""Accuracy of a linear SVM for every aggregator, by a protocol that is fixed before the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from ..datasets.images import Images
from ..datasets.pooling import pool_files
from . import svm
from .analysis import Progress
from .comparing import Paired, holm, paired
from .finished import Finished, identity
from .images import Array
from .labels import Labelled
from .tables import Table, table

GAMMAS = (0.0, 0.3, 0.5, 0.8)
POWERS = (0.3, 0.5, 0.7)
SKETCHES = (512, 2048, 8192)
FIRST_ORDER_GAMMAS = (0.0, 0.5)
NORMALISATIONS = ROOTED, PLAIN = "signed-sqrt-l2", "l2"

PROTOCOL = (
    "Protocol, fixed before the run: one-against-rest linear SVMs (scikit-learn's SVC on dot "
    "products) on descriptors of length 1, with and without element-wise signed square roots "
    f"before that; C of {', '.join(f'{C:g}' for C in svm.CS)} by {svm.FOLDS}-fold stratified "
    "cross-validation within the training part, the smallest of equals; 10 Sinkhorn iterations "
    "with tau = 0.5. The test part is looked at once for every row. No flipped copies, no "
    "fine-tuning; the paper has both, and C = 1. Standard errors are binomial, over test images. "
    "p is of McNemar's exact test against second-order sum pooling with the same normalisation; "
    "Holm's adjustment is over all comparisons of this page. Where a statement speaks of the best "
    "gamma or p, it is the one that cross-validation prefers."
)


class Setting(NamedTuple):
    """An aggregator: what ``pool_files`` is asked for, and its name."""

    name: str
    descriptor: str
    parameters: tuple[tuple[str, Any], ...]

    @property
    def is_triangle(self) -> bool:
        return dict(self.parameters).get("vectorize") == "upper"


class Row(NamedTuple):
    """``against_sum`` is None of sum pooling itself."""

    setting: Setting
    normalize: str
    fitted: svm.Fitted
    against_sum: Paired | None

    @property
    def accuracy(self) -> float:
        return float(self.fitted.right.mean())

    @property
    def standard_error(self) -> float:
        return float(np.sqrt(self.accuracy * (1 - self.accuracy) / len(self.fitted.right)))


@dataclass(frozen=True)
class Accuracies:
    """``adjusted`` has a p-value for every comparison in ``compared``, by the names of its rows."""

    rows: tuple[Row, ...]
    compared: dict[tuple[str, str, str], Paired]
    adjusted: dict[tuple[str, str, str], float]
    sentence: str

    def row(self, name: str, normalize: str) -> Row:
        return next(r for r in self.rows if (r.setting.name, r.normalize) == (name, normalize))

    def preferred(self, names: tuple[str, ...], normalize: str) -> Row:
        """By cross-validation; the first of equals."""
        return max(
            (self.row(name, normalize) for name in names), key=lambda row: row.fitted.validated
        )


def democratic(gamma: float) -> str:
    return "sum" if gamma == 1.0 else f"democratic, gamma = {gamma:g}"


def power(p: float) -> str:
    return f"power, p = {p:g}"


def sketched(name: str, k: int) -> str:
    return f"{name}, k = {k}"


INNER = tuple(democratic(gamma) for gamma in GAMMAS if 0 < gamma < 1)
FIRST = "first order, sum"
GAMMA_OF_SKETCHES = 0.5


def settings(d: int) -> Iterator[Setting]:
    """Sketches are shorter than the triangle that they stand for."""
    whole = (("vectorize", "upper"),)
    yield Setting("sum", "sum", whole)
    for gamma in GAMMAS:
        yield Setting(democratic(gamma), "democratic", (("gamma", gamma), *whole))
    for p in POWERS:
        yield Setting(power(p), "power", (("p", p), *whole))
    for k in sketch_sizes(d):
        yield Setting(sketched("sum", k), "sketched-sum", (("k", k),))
        one = sketched(democratic(GAMMA_OF_SKETCHES), k)
        yield Setting(one, "sketched-democratic", (("k", k), ("gamma", GAMMA_OF_SKETCHES)))
    yield Setting(FIRST, "sum", (("order", 1),))
    for gamma in FIRST_ORDER_GAMMAS:
        one = f"first order, {democratic(gamma)}"
        yield Setting(one, "democratic", (("order", 1), ("gamma", gamma)))


def sketch_sizes(d: int) -> tuple[int, ...]:
    return tuple(k for k in SKETCHES if k < d * (d + 1) // 2)


def pairs(d: int) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """What the statements compare beyond sum pooling: a key, and on both sides names of which
    cross-validation chooses one."""
    yield "inner-democratic", INNER, (democratic(0.0),)
    yield "inner-sum", INNER, ("sum",)
    yield "power-inner", tuple(map(power, POWERS)), INNER
    for k in sketch_sizes(d)[-1:]:
        own = sketched(democratic(GAMMA_OF_SKETCHES), k)
        yield "sketch-full", (own,), (democratic(GAMMA_OF_SKETCHES),)
        yield "sketch-sum", (own,), (sketched("sum", k),)


def measure(
    images: Images,
    inputs: Any,
    given: Labelled,
    seed: int,
    progress: Progress,
    partial: Path,
    **reading: Any,
) -> Accuracies:
    """Pool, fit and judge, setting by setting; ``reading`` is how ``inputs`` are read.

    Rows go to the file ``partial`` as they are finished, and those that are there are not measured
    again: for thousands of images this takes hours.
    """
    d = images.arrays[0].d
    every, rows = list(settings(d)), []
    finished = Finished(partial, identity(images, given, PROTOCOL, seed))
    for at, setting in enumerate(every):
        progress(at, len(every), f"accuracy of {setting.name}")
        if any(finished.get(setting.name, normalize) is None for normalize in NORMALISATIONS):
            for normalize, fitted in _fitted(setting, inputs, given, d, seed, reading):
                finished.add(fitted, setting.name, normalize)
        for normalize in NORMALISATIONS:
            found = finished.get(setting.name, normalize)
            assert found is not None
            rows.append(Row(setting, normalize, found, None))
    progress(len(every), len(every), "accuracy")
    return _compared(rows, d, given.sentence)


def _fitted(
    setting: Setting, inputs: Any, given: Labelled, d: int, seed: int, reading: dict[str, Any]
) -> Iterator[tuple[str, svm.Fitted]]:
    """With each normalisation, from the same descriptors."""
    labels = np.array(given.labels)
    with TemporaryDirectory(prefix="demopool-paper-") as folder:
        path = Path(folder) / "descriptors.npy"
        parameters = {**dict(setting.parameters), **reading, "normalize": "none"}
        pool_files(inputs, path, setting.descriptor, dtype="float32", **parameters)
        scale = _triangle_scale(d) if setting.is_triangle else None
        for normalize in NORMALISATIONS:
            K = svm.gram(path, given.rows, scale, rooted=normalize == ROOTED)
            yield normalize, svm.fit(K, labels, given.test, seed)


def _triangle_scale(d: int) -> Array:
    rows, columns = np.triu_indices(d)
    found: Array = np.where(rows == columns, 1.0, 2.0**0.25).astype(np.float32)
    return found


def _compared(rows: list[Row], d: int, sentence: str) -> Accuracies:
    found = Accuracies(tuple(rows), {}, {}, sentence)
    base = {n: found.row("sum", n).fitted.right for n in NORMALISATIONS}
    judged = []
    for row in rows:
        against = None
        if row.setting.name != "sum":
            against = paired(row.fitted.right, base[row.normalize])
            found.compared[row.setting.name, "sum", row.normalize] = against
        judged.append(row._replace(against_sum=against))
    for key, ours, theirs in pairs(d):
        for normalize in NORMALISATIONS:
            one, other = found.preferred(ours, normalize), found.preferred(theirs, normalize)
            names = (one.setting.name, other.setting.name, normalize)
            if key != "inner-sum":  # which is among those against sum
                found.compared[names] = paired(one.fitted.right, other.fitted.right)
    adjusted = holm([one.p_value for one in found.compared.values()])
    by_name = dict(zip(found.compared, adjusted, strict=True))
    return Accuracies(tuple(judged), found.compared, by_name, sentence)


def as_table(found: Accuracies) -> Table:
    columns = (
        *("aggregator", "normalisation", "C", "cross-validation %", "accuracy %", "s.e. %"),
        *("against sum, points", "only this right", "only sum right", "p", "p, adjusted"),
    )
    rows = []
    for row in found.rows:
        beside = row.against_sum
        rest: tuple[object, ...] = (None,) * 5
        if beside is not None:
            adjusted = found.adjusted[row.setting.name, "sum", row.normalize]
            points = round(100 * beside.difference, 2)
            rest = (points, beside.only_one, beside.only_other, beside.p_value, adjusted)
        rows.append(
            (
                row.setting.name,
                row.normalize,
                row.fitted.C,
                round(100 * row.fitted.validated, 2),
                round(100 * row.accuracy, 2),
                round(100 * row.standard_error, 2),
                *rest,
            )
        )
    title = f"Accuracy; {len(found.compared)} comparisons"
    return table("accuracy", title, columns, rows)
