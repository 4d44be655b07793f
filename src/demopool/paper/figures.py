"""The figures: lines with the mean over images and a band, each with the table of its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..report import pictures
from ..report.panels import Figure, logarithmic, panel
from ..report.pictures import INK, SOFT, Look
from . import accuracy, bounds, sinkhorn, sketches, spectra
from .accuracy import PLAIN, ROOTED, Accuracies
from .analysis import Findings
from .images import Array
from .tables import Table, table

LEAST = 1e-5
"""Where logarithmic axes end: below are eigenvalues of rounding errors and of dead channels."""

BAND = (0.1, 0.9)
"""Quantiles over images, between which a band is drawn."""

AGGREGATORS = {
    "sum": Look("#3b6fb5", "o", "-"),
    "gamma-democratic": Look("#b8860b", "s", "--"),
    "democratic": Look("#c0452f", "D", "-"),
    "square root": Look("#178a63", "^", ":"),
}
_UPPER, _LOWER, _MIDDLE = "#c0452f", "#3b6fb5", SOFT
_CONTRIBUTIONS = {
    "upper": (Look(_UPPER, "^", "-"), "upper bound"),
    "maximum": (Look(_UPPER, "o", "--"), "maximum"),
    "mean": (Look(_MIDDLE, "s", "-"), "mean"),
    "minimum": (Look(_LOWER, "D", "--"), "minimum"),
    "lower": (Look(_LOWER, "v", "-"), "lower bound"),
}
_VARIANCES = {
    "radius": (Look("#8a4fb0", "v", ":"), "bound from the radius"),
    "popoviciu": (Look("#c0452f", "o", "-"), "Popoviciu's bound"),
    "bhatia_davis": (Look("#b8860b", "s", "--"), "bound with the mean (Bhatia, Davis)"),
    "variance": (Look("#178a63", "^", "-"), "variance"),
}


class Shown(NamedTuple):
    """A figure and its numbers."""

    figure: Figure
    table: Table


def all_of(found: Findings) -> Iterator[Shown]:
    with pictures.drawing():
        yield _spectrum(found)
        yield _contributions(found)
        for over, values, measured in (
            ("p", bounds.POWERS, found.powers),
            ("gamma", bounds.GAMMAS, found.gammas),
        ):
            yield from _bounds(found, over, values, measured)
        yield from _sinkhorn(found)
        yield _sketches(found)


def images(count: int) -> str:
    return "one image" if count == 1 else f"{count} images"


def _over(found: Findings) -> str:
    if found.images == 1:
        return "One image."
    return f"Mean over {images(found.images)}; the band holds the middle 80 % of them."


def _spectrum(found: Findings) -> Shown:
    values = found.spectra["spectrum"]
    ranks = np.arange(1, found.d + 1)
    figure, axes = panel()
    for at, name in enumerate(spectra.AGGREGATORS):
        _line(axes, ranks, values[:, at], AGGREGATORS[name], marks=False, floor=LEAST)
    axes.set(xlabel="eigenvalue, by size", ylabel="eigenvalue, of unit length")
    axes.set_ylim(LEAST, 1.2)
    logarithmic(axes)
    rows = [
        (name, rank, *_summary(values[:, at, rank - 1]))
        for at, name in enumerate(spectra.AGGREGATORS)
        for rank in map(int, ranks)
    ]
    return _shown(
        "figure-1a-spectrum",
        "Figure 1(a): the spectrum",
        f"Eigenvalues divided by their length. {_over(found)} gamma = {spectra.GAMMA:g}, "
        f"p = {spectra.P:g}; values below {LEAST:g} are not drawn.",
        figure,
        [(AGGREGATORS[name], name) for name in spectra.AGGREGATORS],
        ("aggregator", "eigenvalue"),
        rows,
    )


def _contributions(found: Findings) -> Shown:
    values = found.spectra["contributions"]
    figure, axes = panel()
    for at, name in enumerate(spectra.AGGREGATORS):
        _line(axes, spectra.RANKS, values[:, at], AGGREGATORS[name], marks=False)
    axes.set(xlabel="features, by contribution (share)", ylabel="C(x) over its mean", xlim=(0, 1))
    axes.set_ylim(0)
    rows = [
        (name, share, *_summary(values[:, at, i]))
        for at, name in enumerate(spectra.AGGREGATORS)
        for i, share in enumerate(spectra.RANKS)
    ]
    return _shown(
        "figure-1b-contributions",
        "Figure 1(b): contributions C(x)",
        f"Of every feature, the largest first, over the mean of its image: 1 is what it is where "
        f"all contribute alike. {_over(found)}",
        figure,
        [(AGGREGATORS[name], name) for name in spectra.AGGREGATORS],
        ("aggregator", "share of features"),
        rows,
    )


def _bounds(
    found: Findings, over: str, values: Sequence[float], measured: Mapping[str, Array]
) -> Iterator[Shown]:
    scale = (
        "Features of an image are divided by their largest norm."
        if over == "p"
        else "Over the mean contribution of the image. The paper does not show this one."
    )
    for letter, what, lines in (
        ("a", "contributions and their bounds", _CONTRIBUTIONS),
        ("b", "variance and its bounds", _VARIANCES),
    ):
        figure, axes = panel()
        for name, (look, _) in lines.items():
            shown = measured[name]
            _line(axes, values, shown, look, band=name in ("maximum", "minimum", "variance"))
        of = "C(x)" if letter == "a" else "variance of C(x)"
        axes.set(xlabel=over, ylabel=of if over == "p" else f"{of}, relative")
        if letter == "b" and min(measured[name].min() for name in lines) > 0:
            logarithmic(axes, "y")
        rows = [
            (name, value, *_summary(measured[name][:, i]))
            for name in lines
            for i, value in enumerate(values)
        ]
        word = "contributions" if letter == "a" else "variance"
        zero = letter == "a" and not measured["lower"].any()
        yield _shown(
            f"figure-2{letter}-{word}-over-{over}",
            f"Figure 2({letter}): {what}, over {over}",
            f"{_over(found)} {scale}"
            + " The lower bound is 0: A is singular in every image." * zero,
            figure,
            list(lines.values()),
            ("quantity", over),
            rows,
        )


def _sinkhorn(found: Findings) -> Iterator[Shown]:
    looks = [_of_tau(at) for at in range(len(sinkhorn.TAUS))]
    steps = np.arange(sinkhorn.STEPS + 1)
    for name, title, label, says in (
        (
            "spread",
            "Sinkhorn: residual over iterations",
            "largest s over smallest, less 1",
            "s is the contribution of a feature over its target; the residual does not depend on "
            "the scale of the weights, which the final norm takes away.",
        ),
        (
            "distance",
            "Sinkhorn: distance from the converged descriptor",
            "distance, of unit length",
            f"Of descriptors of length 1; the line is at {sinkhorn.ENOUGH:g}.",
        ),
    ):
        values = np.maximum(found.sinkhorn[name], np.finfo(np.float64).eps)
        figure, axes = panel()
        for at, look in enumerate(looks):
            wide = 2.2 if sinkhorn.TAUS[at] == sinkhorn.PAPERS_TAU else 1.2
            axes.plot(steps, _geometric(values[:, at]), color=look.colour, ls=look.stroke, lw=wide)
        axes.axvline(sinkhorn.PAPERS_ITERATIONS, color=SOFT, lw=0.8, ls=":")
        if name == "distance":
            axes.axhline(sinkhorn.ENOUGH, color=INK, lw=0.8)
        axes.set(xlabel="iterations", ylabel=label, xlim=(0, sinkhorn.STEPS))
        axes.set_ylim(LEAST, 2 * values.max())
        logarithmic(axes, "y")
        rows = [
            (tau, step, *_summary(found.sinkhorn[name][:, at, step]))
            for at, tau in enumerate(sinkhorn.TAUS)
            for step in map(int, steps)
        ]
        yield _shown(
            f"sinkhorn-{name}",
            title,
            f"gamma = 0. {says} Geometric mean over {images(found.images)}; dotted: the paper's "
            f"{sinkhorn.PAPERS_ITERATIONS} iterations, thick: its tau.",
            figure,
            [(look, f"tau = {tau:g}") for look, tau in zip(looks, sinkhorn.TAUS, strict=True)],
            ("tau", "iterations"),
            rows,
        )


def _of_tau(at: int) -> Look:
    colours = ("#2c4f9e", "#3b7bc0", "#178a63", "#6a9a2d", "#b8860b", "#d0702a", "#c0452f")
    strokes = ("-", "--")
    colour = (*colours, "#7c2f8f")[at]
    return Look(colour, list(pictures.MARKS)[at], strokes[at % 2])


def _sketches(found: Findings) -> Shown:
    """A mean of squares under a root is in the column of the mean."""
    figure, axes = panel()
    looks = {
        "kernel": (Look("#3b6fb5", "o", "-"), "of the kernel values of two features"),
        "descriptor": (Look("#c0452f", "D", "-"), "of the product of two descriptors"),
    }
    sizes = found.sketches["sizes"]
    legend, rows = [], []
    for name, (look, words) in looks.items():
        errors = found.sketches[name]
        middle = sketches.over_draws(errors)
        low, high = np.quantile(errors, BAND, axis=0)
        axes.plot(sizes, middle, lw=1.4, ms=4, **look.line)
        axes.fill_between(sizes, low, high, color=look.colour, alpha=0.15, lw=0)
        legend.append((look, f"{words}: ~ k^{sketches.slope(errors, sizes):.2f}"))
        rows += [(name, int(k), middle[i], low[i], high[i]) for i, k in enumerate(sizes)]
    axes.plot(sizes, sizes**-0.5, color=SOFT, lw=1, ls="--")
    legend.append((Look(SOFT, "h", "--"), "1 / sqrt(k)"))
    axes.set(xlabel="k", ylabel="relative error")
    if len(sizes):
        logarithmic(axes)
        axes.set_xticks(sizes[::2], [f"{k}" for k in sizes[::2]])
    return _shown(
        "sketch-error",
        "Tensor Sketch: error over k",
        f"Root mean square over {sketches.SEEDS} draws of the hashes; the band holds the middle "
        f"80 % of the draws. Relative to the lengths of the two; gamma = {sketches.GAMMA:g}; "
        f"{images(found.sketched_images)}, each with itself and every other one.",
        figure,
        legend,
        ("error of", "k"),
        rows,
    )


def of_accuracy(found: Accuracies) -> Shown:
    """A point for every row of the table, with its standard error."""
    looks = {
        ROOTED: (Look("#3b6fb5", "o", ""), "signed square root, then length 1 (as in the paper)"),
        PLAIN: (Look("#c0452f", "D", ""), "length 1 only"),
    }
    names = list(dict.fromkeys(row.setting.name for row in found.rows))
    with pictures.drawing():
        figure, axes = panel(0.6 + 0.2 * len(names))
        for shift, (normalize, (look, _)) in zip((-0.14, 0.14), looks.items(), strict=True):
            rows = [row for row in found.rows if row.normalize == normalize]
            y = [names.index(row.setting.name) + shift for row in rows]
            x = [100 * row.accuracy for row in rows]
            error = [100 * row.standard_error for row in rows]
            axes.errorbar(x, y, xerr=error, ms=4, elinewidth=1, **look.line)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.invert_yaxis()
        axes.set(xlabel="accuracy on the test part, %")
    says = f"One standard error. {found.sentence}"
    return Shown(
        Figure("accuracy", "Accuracy of a linear SVM", says, figure, tuple(looks.values())),
        accuracy.as_table(found),
    )


def _shown(
    name: str,
    title: str,
    says: str,
    figure: Any,
    legend: Sequence[tuple[Look, str]],
    keys: tuple[str, str],
    rows: Sequence[Sequence[object]],
) -> Shown:
    columns = (*keys, "mean", "low", "high")
    return Shown(
        Figure(name, title, says, figure, tuple(legend)), table(name, title, columns, rows)
    )


def _summary(values: Array) -> tuple[float, float, float]:
    """Mean, and the band."""
    low, high = np.quantile(values, BAND)
    return float(values.mean()), float(low), float(high)


def _geometric(values: Array) -> Array:
    found: Array = np.exp(np.log(values).mean(axis=0))
    return found


def _line(
    axes: Any,
    x: Any,
    values: Array,
    look: Look,
    *,
    marks: bool = True,
    band: bool = True,
    floor: float = 0.0,
) -> None:
    mean = values.mean(axis=0)
    line = look.line if marks else {**look.line, "marker": ""}
    shown = np.where(mean > floor, mean, np.nan) if floor else mean
    axes.plot(x, shown, lw=1.4, ms=3.5, **line)
    if band and len(values) > 1:
        low, high = np.quantile(values, BAND, axis=0)
        axes.fill_between(
            x, np.maximum(low, floor), np.maximum(high, floor), color=look.colour, alpha=0.15, lw=0
        )
