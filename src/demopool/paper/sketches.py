"""How far a Tensor Sketch of k numbers is from what it stands for, over k."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..problem.hashing import Hashes, hashes
from .images import Analysed, Array
from .sinkhorn import weights

LARGEST, MOST_SIZES, FEWEST_SIZES = 16384, 8, 3
SEEDS = 24
"""Draws of the hashes: the error is one over draws, and its standard error comes from them."""

RESAMPLED = 2000
"""Times that the draws are drawn again for an interval."""

IMAGES = 10
"""Images whose descriptors are compared, each with itself and with every other one."""

FEATURES = 48
"""Of an image, whose kernel values are compared."""

GAMMA = 0.5


def sizes(d: int) -> tuple[int, ...]:
    """Powers of two up to half of d^2, where a sketch is no shorter than what it stands for."""
    every = [2**power for power in range(2, 15)]
    return tuple(k for k in every if k <= min(LARGEST, d * d // 2))[-MOST_SIZES:]


def of_features(X: Array, drawn: Hashes) -> Array:
    """(n, k): the circular convolution of two count sketches of every row."""
    rows = np.arange(len(X))[:, np.newaxis]
    halves = []
    for h, s in ((drawn.h1, drawn.s1), (drawn.h2, drawn.s2)):
        bins = np.bincount((rows * drawn.k + h).ravel(), (X * s).ravel(), len(X) * drawn.k)
        halves.append(np.fft.rfft(bins.reshape(len(X), drawn.k)))
    return np.fft.irfft(halves[0] * halves[1], drawn.k)


def of_moment(M: Array, drawn: Hashes) -> Array:
    """(k,): the sketch is linear in x x^T, so that of their weighted sum is one pass over it."""
    bins = (np.asarray(drawn.h1)[:, np.newaxis] + np.asarray(drawn.h2)) % drawn.k
    signed = M * np.asarray(drawn.s1)[:, np.newaxis] * np.asarray(drawn.s2)
    return np.bincount(bins.ravel(), signed.ravel(), drawn.k)


def measure(
    images: Sequence[Analysed], seed: int, step: Callable[[], None] = lambda: None
) -> dict[str, Array]:
    """Root mean square errors, (draws, sizes), and the ``sizes``.

    kernel       of (x . y)^2, over |x|^2 |y|^2, for pairs of features of an image
    descriptor   of <A, B> of gamma-democratic descriptors, over |A| |B|, for pairs of images
    """
    rng, d = np.random.default_rng(seed), images[0].X.shape[1]
    every = sizes(d)
    chosen = [_some_features(image, rng) for image in images]
    exact = [(x @ x.T) ** 2 for x in chosen]
    weighted = [weights(image.K, GAMMA) for image in images]
    moments = [
        (image.X.T * a) @ image.X / np.sqrt(a @ image.K @ a)
        for image, a in zip(images, weighted, strict=True)
    ]
    products = np.array([[(a * b).sum() for b in moments] for a in moments])
    pairs = np.triu_indices(len(images))
    kernel, descriptor = np.zeros((SEEDS, len(every))), np.zeros((SEEDS, len(every)))
    for draw in range(SEEDS):
        for at, k in enumerate(every):
            one = hashes(d, k, seed=seed + draw)
            errors = []
            for x, right in zip(chosen, exact, strict=True):
                sketched = of_features(x, one)
                upper = np.triu_indices(len(x))
                errors.append((sketched @ sketched.T - right)[upper])
            kernel[draw, at] = np.sqrt((np.concatenate(errors) ** 2).mean())
            whole = np.array([of_moment(M, one) for M in moments])
            descriptor[draw, at] = np.sqrt(((whole @ whole.T - products)[pairs] ** 2).mean())
        step()
    return {"kernel": kernel, "descriptor": descriptor, "sizes": np.array(every)}


def _some_features(image: Analysed, rng: np.random.Generator) -> Array:
    """Of length 1: the error of a sketch is relative to the lengths."""
    count = min(FEATURES, len(image.X))
    x = image.X[np.sort(rng.choice(len(image.X), count, replace=False))]
    return x / np.sqrt((x**2).sum(axis=1, keepdims=True))


def slope(errors: Array, over: Array) -> float:
    """The exponent s of error ~ k^s, by least squares of logarithms; errors are (draws, sizes).

    NaN where there are too few sizes, or a sketch without any error.
    """
    middle = over_draws(errors)
    if len(over) < FEWEST_SIZES or not middle.all():
        return float("nan")
    logs = np.log(over) - np.mean(np.log(over))
    return float(np.log(middle) @ logs / (logs @ logs))


def slope_interval(errors: Array, over: Array, seed: int) -> tuple[float, float]:
    """95 %, by drawing the draws again (bootstrap)."""
    rng = np.random.default_rng(seed)
    drawn = (errors[rng.integers(len(errors), size=len(errors))] for _ in range(RESAMPLED))
    low, high = np.quantile([slope(one, over) for one in drawn], (0.025, 0.975))
    return float(low), float(high)


def over_draws(errors: Array) -> Array:
    """Root mean square, (sizes,)."""
    found: Array = np.sqrt((errors**2).mean(axis=0))
    return found
