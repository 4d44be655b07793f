"""The sizes of somebody's own features, from the header of their file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from .cases import Case
from .vocabulary import DTYPES, LAYOUTS, Dtype

IMAGES = 8
"""At most so many images of a file are timed at once, unless a batch is asked for."""

_NPY = b"\x93NUMPY"
# By the first bytes of a file: what it is, and how to make a .npy of it.
_FORMATS = {
    b"PK\x03\x04": "a zip archive, such as .npz or a PyTorch file",
    b"\x89HDF": "an HDF5 file (.h5)",
    b"\x80": "a pickle",
}


class Features(NamedTuple):
    """What a file holds: how many images, the case of them that is timed, and a sentence on it."""

    images: int
    case: Case
    sentence: str


def read(
    path: Path, layout: str | None = None, batch: int | None = None, dtype: str | None = None
) -> Features:
    """Shape and dtype of the array in a .npy file; its values are not read.

    layout   ``nd`` for (images, n, d) or (n, d), the default; ``nchw`` or ``nhwc`` for conv maps
    batch    images that are timed at once
    dtype    another than the file's
    """
    shape, of_file = _header(path)
    if 0 in shape:
        raise InvalidInput(f"{path} is empty: its shape is {shape}.")
    images, n, d = sizes_of(path, shape, layout)
    if dtype is None and of_file not in DTYPES:
        raise InvalidInput(
            f"{path} holds {of_file}, and features are {', '.join(DTYPES)}: give --dtype, the "
            "dtype you turn them into."
        )
    timed = batch or min(images, IMAGES)
    case = Case(batch=timed, n=n, d=d, dtype=Dtype(dtype or of_file))
    sample = f"{images} images"
    if timed != images:
        sample += f", of which {timed} at a time are timed"
        sample += "" if batch else " (--batch for another number)"
    taken = "sizes and dtype" if case.dtype == of_file else "sizes"
    noise = "noise" if case.dtype == of_file else f"noise in {case.dtype}, as --dtype says"
    sentence = (
        f"{path.name}: shape {shape}, {of_file}: {sample}, n={n}, d={d}. Only {taken} are "
        f"taken from it; what is timed is {noise}."
    )
    return Features(images, case, sentence)


def _header(path: Path) -> tuple[tuple[int, ...], str]:
    with path.open("rb") as file:
        start = file.read(8)
    for magic, what in _FORMATS.items():
        if start.startswith(magic):
            raise InvalidInput(
                f"{path} is {what}; --like takes one array in a .npy file.{_hint(path)}"
            )
    if not start.startswith(_NPY):
        raise InvalidInput(f"{path} cannot be read: it is not a .npy file.")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise InvalidInput(f"{path} cannot be read as a .npy file: {problem}.") from None
    return tuple(array.shape), str(array.dtype.name)


def _hint(path: Path) -> str:
    """How to get at the arrays of an .npz."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
    except (OSError, zipfile.BadZipFile):
        return ""
    if not names:
        return ""
    one = f'np.save("{path.stem}.npy", np.load("{path.name}")["{names[0]}"])'
    return f" It holds {', '.join(names[:5])}; {one} makes one."


def sizes_of(path: Path | str, shape: tuple[int, ...], layout: str | None) -> tuple[int, int, int]:
    """Images, n and d of an array in a file; four axes are never guessed at."""
    axes = len(shape)
    if layout in ("nchw", "nhwc"):
        if axes not in (3, 4):
            raise InvalidInput(f"{path} must have 3 or 4 axes for --layout {layout}; got {shape}.")
        images = shape[0] if axes == 4 else 1
        c, h, w = shape[-3:] if layout == "nchw" else (shape[-1], *shape[-3:-1])
        return images, h * w, c
    if axes == 4 and layout is None:
        raise InvalidInput(
            f"{path} has the shape {shape}: give --layout nchw or nhwc for conv maps."
        )
    if axes not in (2, 3):
        raise InvalidInput(
            f"{path} must hold one array (images, n, d) or (n, d), or conv maps with --layout "
            f"{' or '.join(name for name in LAYOUTS if name != 'nd')}; got shape {shape}."
        )
    return (shape[0] if axes == 3 else 1), shape[-2], shape[-1]
