"""``--choose``: which backend is the fastest, measured on the images themselves before the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..choosing.chooser import choose
from ..errors import InvalidInput
from ..problem.cases import Case
from ..problem.feature_files import IMAGES
from .images import Images
from .planning import Size, sizes_with_counts
from .settings import Settings

SECONDS, SIZES = 20.0, 3
"""So many seconds are shared among the most frequent sizes."""

MOST_BYTES = 256_000_000
"""Of the images that are raced on."""


def measure(images: Images, settings: Settings, report: Callable[[str], None]) -> None:
    """Race on the first images of the most frequent sizes; ``auto`` then knows the answer."""
    counts = sizes_with_counts(images)
    sizes = sorted(counts, key=lambda size: -counts[size])[:SIZES]
    for size in sizes:
        _race(images, settings, size, SECONDS / len(sizes), report)


def _race(
    images: Images, settings: Settings, size: Size, budget: float, report: Callable[[str], None]
) -> None:
    what = f"measuring n={size.n} d={size.d}"
    report(what)
    case = settings.case(IMAGES, *size)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "images.npy"
        found = choose(
            case,
            backends=() if settings.backend == "auto" else (settings.backend,),
            budget=budget,
            images=file if write_first(images, size, case, file) else None,
            progress=lambda seconds, doing: report(f"{what}, {doing}"),
        )
    if found.interrupted:
        raise KeyboardInterrupt


def write_first(images: Images, size: Size, case: Case, file: Path) -> int:
    """The first images of a size that have a descriptor, in one array; returns how many."""
    most = min(IMAGES, max(1, MOST_BYTES // (case.n * case.d * np.dtype(case.dtype).itemsize)))
    kept: list[NDArray[Any]] = []
    for row in range(len(images)):
        array, _ = images.place(row)
        if Size(array.n, array.d, array.dtype) != size:
            continue
        try:
            image = images[row].astype(case.dtype)
        except InvalidInput:  # the run itself says which image it is
            continue
        # Finite and not all zero, also when a race doubles it.
        if 0 < float(np.abs(image).max()) <= float(np.finfo(image.dtype).max) / 2:
            kept.append(image)
        if len(kept) == most:
            break
    if kept:
        np.save(file, np.stack(kept))
    return len(kept)
