"""Everything that is measured of a sample of images, one image at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidInput
from . import bounds, kernels, sinkhorn, sketches, spectra
from .images import MAX_ROWS, Analysed, Array, Sample, walk

Progress = Callable[[int, int, str], None]
Measured = dict[str, Array]
"""What was measured, by name; the first axis is that of the images."""


@dataclass(frozen=True)
class Findings:
    """Of the images of ``sample`` that have features; ``n`` of each."""

    sample: Sample
    n: tuple[int, ...]
    d: int
    spectra: Measured
    powers: Measured
    gammas: Measured
    sinkhorn: Measured
    kernels: Measured
    sketches: Measured
    sketched_images: int
    notes: tuple[str, ...]

    @property
    def images(self) -> int:
        return len(self.n)


_PARTS: dict[str, Callable[[Analysed], Measured]] = {
    "spectra": spectra.measure,
    "powers": bounds.over_p,
    "gammas": bounds.over_gamma,
    "sinkhorn": sinkhorn.measure,
    "kernels": kernels.measure,
}


def analyse(sample: Sample, progress: Progress) -> Findings:
    """One image is in memory at a time, and those of the sketches."""
    found: dict[str, list[Measured]] = {name: [] for name in _PARTS}
    total = len(sample.rows) + sketches.SEEDS
    kept: list[Analysed] = []
    n: list[int] = []
    notes = []
    done = 0
    for image in walk(sample):
        done += 1
        progress(done, total, "spectra and contributions")
        if image is None:
            continue
        n.append(len(image.X))
        for name, part in _PARTS.items():
            found[name].append(part(image))
        if len(kept) < sketches.IMAGES:
            kept.append(image)
    if not kept:
        raise InvalidInput("all features of these images are zero; there is nothing to show.")
    if len(n) < len(sample.rows):
        notes.append(f"{len(sample.rows) - len(n)} images have no feature but zeros: left out.")
    if max(n) == MAX_ROWS:
        notes.append(f"Of larger images {MAX_ROWS} features were drawn, with the same seed.")

    def step() -> None:
        nonlocal done
        done += 1
        progress(done, total, "sketches")

    stacked: dict[str, Any] = {name: _stacked(parts) for name, parts in found.items()}
    return Findings(
        sample,
        tuple(n),
        kept[0].X.shape[1],
        **stacked,
        sketches=sketches.measure(kept, sample.seed, step),
        sketched_images=len(kept),
        notes=tuple(notes),
    )


def _stacked(parts: list[Measured]) -> Measured:
    return {name: np.array([part[name] for part in parts]) for name in parts[0]}
