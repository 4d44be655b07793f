"""Which images are looked at, and what all figures need of one, computed once in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..conformance import features
from ..datasets.images import Images
from ..errors import InvalidInput
from ..reference.powers import right_singular_vectors

Array = NDArray[Any]

MAX_ROWS = 4096
"""Features of an image that are looked at: their kernel matrix has this many squared entries."""

PAPERS_SAMPLE = 50
"""Images that the paper draws for its figures 1 and 2."""

SHIPPED = ("X448", "X224")


@dataclass(frozen=True)
class Sample:
    """``rows`` of ``images``, drawn with ``seed``; ``source`` says of what."""

    images: Sequence[Array]
    rows: tuple[int, ...]
    source: str
    seed: int

    @property
    def sentence(self) -> str:
        count, drawn = len(self.images), len(self.rows)
        of = (
            f"all {count}" if drawn == count else f"{drawn} of {count}, drawn with seed {self.seed}"
        )
        return f"{self.source}; images in the figures: {of}."


def shipped() -> tuple[list[Array], str]:
    """The features that come with the package: three arrays of two images."""
    found = [image for name in SHIPPED for image in features.real(name)]
    return found, "VGG-16 conv5_3 features that ship with demopool, one at 448 px and two at 224 px"


def drawn(images: Sequence[Array], source: str, *, most: int, seed: int) -> Sample:
    """At most so many images, in their order."""
    if not len(images):
        raise InvalidInput("there is no image in the files.")
    if isinstance(images, Images):
        lengths = sorted({d for _, d in images.shapes})
        if len(lengths) > 1:
            raise InvalidInput(
                f"features must have one length d; these files have {', '.join(map(str, lengths))}."
            )
    rows = np.arange(len(images))
    if len(images) > most:
        rows = np.sort(np.random.default_rng(seed).choice(len(images), most, replace=False))
    return Sample(images, tuple(map(int, rows)), source, seed)


@dataclass(frozen=True)
class Analysed:
    """One image. ``X`` is divided by its largest norm, which changes no inequality of the paper and
    lets images be averaged; rows of zeros, to which its statements do not apply, are left out.

    K             second-order kernel matrix, n x n
    eigenvalues   of A = X^T X, d of them, the largest first
    energies      (n, rank): <x_i, v_j>^2, so that x_i^T A^p x_i = sum_j energies_ij lambda_j^p
    """

    X: Array
    K: Array
    eigenvalues: Array
    energies: Array

    @property
    def live(self) -> Array:
        """The eigenvalues of the columns of ``energies``."""
        return self.eigenvalues[: self.energies.shape[1]]

    def power_contributions(self, p: float) -> Array:
        """x^T A^p x / |A^p|, of every feature."""
        return self.energies @ self.live**p / self.norm(p)

    def norm(self, p: float) -> float:
        """Of A^p: the paper's rho."""
        return float(np.sqrt((self.eigenvalues ** (2 * p)).sum()))


def analysed(X: Array, rng: np.random.Generator) -> Analysed | None:
    """None of an image without any feature but zeros."""
    X = np.asarray(X, dtype=np.float64)
    X = X[(X != 0).any(axis=1)]
    if len(X) > MAX_ROWS:
        X = X[np.sort(rng.choice(len(X), MAX_ROWS, replace=False))]
    if not len(X):
        return None
    X = X / np.abs(X).max()
    X = X / np.sqrt((X**2).sum(axis=1).max())
    singular, vectors = right_singular_vectors(X)
    rank = int((singular > 0).sum())
    eigenvalues = np.zeros(X.shape[1])
    eigenvalues[:rank] = singular[:rank] ** 2
    return Analysed(X, (X @ X.T) ** 2, eigenvalues, (X @ vectors[:rank].T) ** 2)


def walk(sample: Sample) -> Iterator[Analysed | None]:
    """The images of a sample, one at a time."""
    for row in sample.rows:
        X = sample.images[row]
        if not np.isfinite(X).all():
            name = f"image {row}"
            if isinstance(sample.images, Images):
                array, image = sample.images.place(row)
                name = array.name_of(image)
            raise InvalidInput(f"{name} has NaN or infinity; features must be finite.")
        yield analysed(X, np.random.default_rng((sample.seed, row)))
