"""The paper's statements on spectra, contributions, Sinkhorn and sketches, judged by numbers.

A statement about images in general is judged by a sign test: in how many of the images it is so,
against a coin, two-sided, 5 %. Fewer than six images decide nothing. An inequality that is said of
every image fails by one image; it may be off by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from . import bounds, sinkhorn, sketches, spectra
from .analysis import Findings
from .images import Array

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be said"
LEVEL = 0.05

TIGHT = 0.9
"""A bound is called tight if what it bounds is at least this share of it."""

SLOPE, SLOPE_MARGIN = -0.5, 0.1


class Statement(NamedTuple):
    """``number`` is the one that decided; ``found`` says it in words."""

    where: str
    text: str
    reading: str
    verdict: str
    number: float | None
    found: str


def all_of(found: Findings) -> list[Statement]:
    return [
        *_figure_1(found),
        *_propositions(found),
        *_figure_2(found),
        *_sinkhorn(found),
        *_sketch(found),
    ]


def by_images(where: str, text: str, reading: str, so: Array, detail: str) -> Statement:
    """By a sign test over the images in which it is ``so``; ``detail`` ends the sentence."""
    count, total = int(np.sum(so)), len(so)
    found = f"{count} of {total} images; {detail}"
    verdict = verdict_of(count, total)
    if verdict == OPEN and sign_test(total, total) > LEVEL:
        found += "; too few images to say"
    return Statement(where, text, reading, verdict, count / total, found)


def verdict_of(count: int, total: int) -> str:
    if sign_test(count, total) > LEVEL:
        return OPEN
    return HOLDS if 2 * count > total else FAILS


def sign_test(count: int, total: int) -> float:
    """The two-sided p-value of so many heads of a fair coin."""
    from scipy.stats import binomtest

    return float(binomtest(count, total).pvalue) if total else 1.0


def _figure_1(found: Findings) -> Iterator[Statement]:
    where = "Section 4.2, Figure 1"
    rank, top, spread = (
        {name: found.spectra[key][:, at] for at, name in enumerate(spectra.AGGREGATORS)}
        for key in ("rank", "top", "variation")
    )
    of_ranks = "effective rank, (sum l)^2 / sum l^2, on average: " + _averages(rank)
    yield by_images(
        where,
        "The square root yields a flatter spectrum than sum aggregation",
        "a higher effective rank",
        rank["square root"] > rank["sum"],
        of_ranks,
    )
    yield by_images(
        where,
        "Democratic aggregation distributes the energy away from the top eigenvalues",
        "its largest eigenvalue, of unit length, is lower than that of sum",
        top["democratic"] < top["sum"],
        f"on average {top['democratic'].mean():.3f} instead of {top['sum'].mean():.3f}",
    )
    yield by_images(
        where,
        "Democratic aggregation has a considerably sharper spectrum than the square root",
        "at most half its effective rank",
        rank["democratic"] <= rank["square root"] / 2,
        of_ranks,
    )
    yield by_images(
        where,
        "Gamma-democratic pooling interpolates between sum and democratic pooling",
        "its effective rank lies between theirs",
        (rank["gamma-democratic"] - rank["sum"]) * (rank["democratic"] - rank["gamma-democratic"])
        >= 0,
        of_ranks,
    )
    of_spread = "standard deviation of C(x) over its mean, on average: " + _averages(spread)
    yield by_images(
        where,
        "Contributions are more evenly distributed for the square root than for sum pooling",
        "a smaller standard deviation over mean",
        spread["square root"] < spread["sum"],
        of_spread,
    )
    others = [spread[name] for name in spectra.AGGREGATORS if name != "democratic"]
    yield by_images(
        where,
        "Democratic pooling flattens the contributions the most",
        "the smallest standard deviation over mean of the four",
        spread["democratic"] < np.min(others, axis=0),
        of_spread,
    )


def _propositions(found: Findings) -> Iterator[Statement]:
    kernels, solved = found.kernels, float(found.sinkhorn["solved"].max())
    limit = rounding(found)
    yield Statement(
        "Proposition 1",
        "For outer products a gamma-democratic solution exists if no feature is zero",
        "the iteration arrives there: largest over smallest contribution per target, less 1, is "
        "rounding, for gamma = 0 and 0.5",
        HOLDS if solved <= limit else OPEN,
        solved,
        f"at most {solved:.2g} in {found.images} images, after at most {sinkhorn.CONVERGED} steps",
    )
    singular = int((kernels["definite"] > 0).sum())
    yield _always(
        "Proposition 1, proof",
        "The kernel matrix is strictly positive definite if no feature is zero",
        "no eigenvalue that rounding cannot tell from 0",
        singular,
        0.0,
        f"singular in {singular} of {found.images} images; at most "
        f"{kernels['definite'].max():.1%} of the eigenvalues of an image are 0",
    )
    total = float(found.powers["total_error"].max())
    yield _always(
        "Proposition 4",
        "Contributions to A^p sum to (sum l^(1+p)) / rho",
        f"for p = {bounds.POWERS[0]:g} to 1, up to rounding",
        total,
        limit,
        f"off by at most {total:.2g}, relative",
    )
    for over, measured in (("p", found.powers), ("gamma", found.gammas)):
        beyond = " (not in the paper: of weighted features)" if over == "gamma" else ""
        for number, text, chain in (
            (4, "Bounds on the maximum and the minimum contribution hold", ()),
            (5, "The variance is at most each of its three bounds, in their order", bounds.CHAIN),
        ):
            pairs = list(pairwise(chain))
            pairs = pairs or [("maximum", "upper"), ("lower", "minimum")]
            excess = max(
                float(
                    ((measured[a] - measured[b]) / measured["upper"] ** (1 + (number == 5))).max()
                )
                for a, b in pairs
            )
            yield _always(
                f"Proposition {number}",
                f"{text}, for every {over}{beyond}",
                "in every image, up to rounding",
                excess,
                limit,
                f"{found.images} images; the nearest to a violation is at {excess:.2g}, relative",
            )
    rising = float(np.diff(found.powers["radius"], axis=1).min())
    yield _always(
        "Section 3.2",
        "The upper bound on the variance is a monotonic function of p",
        "it rises from each p to the next, in every image",
        -rising,
        limit,
        f"least rise {rising:.2g} between two of p = {_list(bounds.POWERS)}",
    )
    outside = kernels["outside"]
    out = int((outside > kernels["rounding"]).sum())
    yield Statement(
        "Proposition 6",
        "A^p may not lie in the linear span of the features' outer products",
        "p = 1/2 has a part outside it that is more than rounding, in one image at least",
        HOLDS if out else FAILS,
        float(outside.max()),
        f"{out} of {found.images} images; the part outside has {outside.min():.2f} to "
        f"{outside.max():.2f} of the length",
    )


def _figure_2(found: Findings) -> Iterator[Statement]:
    where, half = "Section 4.2, Figure 2", bounds.POWERS.index(0.5)
    powers = found.powers
    ratios = powers["maximum"] / powers["upper"]
    yield by_images(
        where,
        "The upper bound on the maximum contribution is tight",
        f"the maximum is at least {TIGHT:g} of its bound at p = 1/2",
        ratios[:, half] >= TIGHT,
        f"the share is {np.median(ratios[:, half]):.2f} in the median image, and "
        f"{np.median(ratios[:, -1]):.2f} at p = 1",
    )
    low = powers["lower"][:, half] / powers["minimum"][:, half]
    yield by_images(
        where,
        "The lower bound on the minimum contribution is significantly less tight",
        "its share of the minimum is less than half the maximum's share of its bound, p = 1/2",
        low < ratios[:, half] / 2,
        f"the share is {np.median(low):.2g} in the median image",
    )
    variance = powers["variance"]
    yield by_images(
        where,
        "The matrix power reduces the variance of contributions",
        "it is lower at p = 1/2 than at p = 1",
        variance[:, half] < variance[:, -1],
        f"the median ratio is {np.median(variance[:, half] / variance[:, -1]):.2f}",
    )
    relative = variance / powers["mean"] ** 2
    yield by_images(
        where,
        "The matrix power equalises contributions",
        "the variance over the squared mean, which no scale changes, is lower at p = 1/2 too",
        relative[:, half] < relative[:, -1],
        f"the median ratio is {np.median(relative[:, half] / relative[:, -1]):.2f}",
    )


def _sinkhorn(found: Findings) -> Iterator[Statement]:
    where, taus = "Section 3.1", sinkhorn.TAUS
    paper, undamped = taus.index(sinkhorn.PAPERS_TAU), taus.index(1.0)
    distances = found.sinkhorn["distance"]
    at_ten = distances[:, paper, sinkhorn.PAPERS_ITERATIONS]
    yield by_images(
        where,
        "10 iterations are sufficient to find a good solution (tau = 0.5)",
        f"the descriptor is within {sinkhorn.ENOUGH:.0%} of the converged one, gamma = 0",
        at_ten <= sinkhorn.ENOUGH,
        f"the distance is {np.median(at_ten):.2g} in the median image, at most {at_ten.max():.2g}",
    )
    needed = sinkhorn.needed(distances)
    slow, fast = needed[:, paper], needed[:, undamped]
    yield by_images(
        where,
        "Damping with tau = 0.5 slows the convergence rate",
        f"tau = 0.5 needs more iterations to {sinkhorn.ENOUGH:.0%} than tau = 1",
        slow > np.where(np.isnan(fast), np.inf, fast),
        f"iterations in the median image, by tau: {_iterations(needed)}",
    )
    level = np.abs(np.log(found.sinkhorn["level"][:, :, -2:])).min(axis=2)
    yield by_images(
        where,
        "Without damping (tau = 1) the iteration oscillates, with tau = 0.5 it does not",
        f"after {sinkhorn.STEPS} iterations contributions over targets still swing by 1 % around "
        "1 for tau = 1, and less for tau = 0.5",
        (level[:, undamped] > 0.01) & (level[:, paper] <= 0.01),
        f"a factor of {np.exp(np.median(level[:, undamped])):.2f} in the median image for tau = 1, "
        f"{np.exp(np.median(level[:, paper])):.2f} for tau = 0.5; the final norm removes it",
    )


def _sketch(found: Findings) -> Iterator[Statement]:
    sizes = found.sketches["sizes"]
    for name, words in (("kernel", "kernel values"), ("descriptor", "whole descriptors")):
        errors = found.sketches[name]
        middle = sketches.slope(errors, sizes)
        verdict, said = OPEN, f"features of length {found.d} are too short for sketches"
        if not np.isnan(middle):
            low, high = sketches.slope_interval(errors, sizes, found.sample.seed)
            near, far = SLOPE - SLOPE_MARGIN, SLOPE + SLOPE_MARGIN
            if near <= low and high <= far:
                verdict = HOLDS
            elif high < near or low > far:
                verdict = FAILS
            last = f"{sketches.over_draws(errors)[-1]:.2g} at k = {sizes[-1]}"
            said = f"k^{middle:.2f} ({low:.2f} to {high:.2f}); {last}"
        yield Statement(
            "Proposition 3 (Pham and Pagh, 2013)",
            f"The error of a Tensor Sketch falls as 1 / sqrt(k): {words}",
            f"the 95 % interval of the exponent lies within {SLOPE_MARGIN:g} of {SLOPE:g}",
            verdict,
            None if np.isnan(middle) else middle,
            said,
        )


def rounding(found: Findings) -> float:
    """The relative error that a sum over all values of an image can have in float64."""
    return float(max(found.n) * found.d * np.finfo(np.float64).eps)


def _always(
    where: str, text: str, reading: str, worst: float, limit: float, found: str
) -> Statement:
    """Said of every image: it holds unless the worst is above the limit."""
    verdict = FAILS if worst > limit else HOLDS
    return Statement(where, text, reading, verdict, float(worst), found)


def _averages(values: dict[str, Array]) -> str:
    return ", ".join(f"{name} {_short(float(v.mean()))}" for name, v in values.items())


def _short(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _list(values: tuple[float, ...]) -> str:
    return f"{values[0]:g}, {values[1]:g}, ..., {values[-1]:g}"


def _iterations(needed: Array) -> str:
    """The median of every tau; more than all where most images never get there."""
    counted = np.median(np.where(np.isnan(needed), np.inf, needed), axis=0)
    return ", ".join(
        f"{tau:g}: {int(count) if np.isfinite(count) else f'over {sinkhorn.STEPS}'}"
        for tau, count in zip(sinkhorn.TAUS, counted, strict=True)
    )
