"""Figure 1: the spectrum of a descriptor, and how much every feature contributes to it."""

from __future__ import annotations

import numpy as np

from .images import Analysed, Array
from .sinkhorn import weights

AGGREGATORS = ("sum", "gamma-democratic", "democratic", "square root")
GAMMA, P = 0.5, 0.5
"""Of the gamma-democratic aggregator and of the matrix power; the paper's."""

RANKS = np.linspace(0.0, 1.0, 101)
"""Where the sorted contributions are read, as a share of the features: images differ in n."""

_GAMMAS = {"sum": 1.0, "gamma-democratic": GAMMA, "democratic": 0.0}


def spectrum(image: Analysed, aggregator: str) -> Array:
    """Eigenvalues, the largest first, divided by their length."""
    if aggregator == "square root":
        values = image.eigenvalues**P
    elif aggregator == "sum":
        values = image.eigenvalues
    else:
        values = weighted_eigenvalues(image, weights(image.K, _GAMMAS[aggregator]))
    return values / np.sqrt((values**2).sum())


def weighted_eigenvalues(image: Analysed, a: Array) -> Array:
    """Of sum_i a_i x_i x_i^T, d of them, the largest first; rounded zeros are zeros."""
    Y = np.sqrt(a)[:, np.newaxis] * image.X
    n, d = Y.shape
    values = np.linalg.eigvalsh(Y.T @ Y if d <= n else Y @ Y.T)[::-1]
    cut = max(n, d) * np.finfo(np.float64).eps * values[0]
    found = np.zeros(d)
    found[: len(values)] = np.where(values > cut, values, 0.0)
    return found


def weighted_contributions(image: Analysed, a: Array) -> Array:
    """a_i x_i^T A x_i / |A|: both are sums of K."""
    Ka = image.K @ a
    return a * Ka / np.sqrt(a @ Ka)


def contributions(image: Analysed, aggregator: str) -> Array:
    if aggregator == "square root":
        return image.power_contributions(P)
    return weighted_contributions(image, weights(image.K, _GAMMAS[aggregator]))


def effective_rank(values: Array) -> float:
    """(sum l)^2 / sum l^2: the number of equal eigenvalues that would be as flat."""
    return float(values.sum() ** 2 / (values**2).sum())


def variation(C: Array) -> float:
    """Standard deviation over mean, which no scale of the features or weights changes."""
    return float(C.std() / C.mean())


def measure(image: Analysed) -> dict[str, Array]:
    """Of one image; the first axis is that of ``AGGREGATORS``."""
    spectra = [spectrum(image, name) for name in AGGREGATORS]
    shares = [contributions(image, name) for name in AGGREGATORS]
    return {
        "spectrum": np.array(spectra),
        "contributions": np.array([_sorted(C) for C in shares]),
        "rank": np.array([effective_rank(values) for values in spectra]),
        "top": np.array([values[0] for values in spectra]),
        "variation": np.array([variation(C) for C in shares]),
    }


def _sorted(C: Array) -> Array:
    """The largest first, over their mean: 1 everywhere where all contribute alike."""
    own = np.linspace(0.0, 1.0, len(C)) if len(C) > 1 else np.zeros(1)
    return np.interp(RANKS, own, np.sort(C)[::-1] / C.mean())
