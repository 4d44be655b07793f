"""The images of many files as one lazy sequence, in the order in which the files were given."""

from __future__ import annotations

import glob
import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..problem.feature_files import sizes_of
from ..problem.parameters import validated
from ..problem.vocabulary import NUMPY_DTYPES
from .formats import (
    FAILURES,
    Contents,
    FeatureFile,
    endings,
    is_feature_file,
    open_file,
    stamp,
    unreadable,
)


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array of a file: one image, or a batch of them.

    shape          as stored, the batch axis included
    n, d           features of an image, and their length
    features_last  features are columns, as in conv maps of layout ``nchw``
    """

    file: str
    key: str
    shape: tuple[int, ...]
    dtype: str
    images: int
    n: int
    d: int
    features_last: bool
    is_batch: bool

    @property
    def image_bytes(self) -> int:
        return self.n * self.d * np.dtype(self.dtype).itemsize

    def name_of(self, image: int) -> str:
        """Of one image, for people."""
        parts = [self.file] + [self.key] * bool(self.key)
        return ", ".join([*parts, f"image {image}"] if self.is_batch else parts)


class Images(Sequence[NDArray[Any]]):
    """One array ``(n, d)`` per image, read when it is asked for.

    arrays    the arrays of the files, in order
    stamps    every file with its size and time of change
    skipped   files that could not be read, with the reason
    """

    def __init__(
        self,
        arrays: Sequence[StoredArray],
        stamps: dict[str, tuple[int, int]],
        skipped: dict[str, str],
    ) -> None:
        self.arrays, self.stamps, self.skipped = tuple(arrays), stamps, skipped
        self._ends = list(accumulate(array.images for array in self.arrays))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, row: int) -> NDArray[Any]: ...

    @overload
    def __getitem__(self, row: slice) -> list[NDArray[Any]]: ...

    def __getitem__(self, row: int | slice) -> NDArray[Any] | list[NDArray[Any]]:
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(len(self)))]
        array, image = self.place(row)
        with reading(array.file) as file:
            values = read(file, array, image, image + 1)[0]
        return values.T if array.features_last else values

    def __repr__(self) -> str:
        return f"<{len(self)} images of {len(self.stamps)} files>"

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """``(n, d)`` of every image; nothing is read."""
        return [(array.n, array.d) for array in self.arrays for _ in range(array.images)]

    def place(self, row: int) -> tuple[StoredArray, int]:
        """The array that holds an image, and which of its images that is."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"there are {len(self)} images; got {row}.")
        row %= len(self)
        at = bisect_right(self._ends, row)
        return self.arrays[at], row - (self._ends[at] - self.arrays[at].images)

    def runs(self, start: int, stop: int) -> Iterator[tuple[StoredArray, int, int]]:
        """The rows ``start`` to ``stop`` as parts of arrays, in order."""
        while start < stop:
            array, image = self.place(start)
            count = min(array.images - image, stop - start)
            yield array, image, image + count
            start += count

    def digest(self) -> str:
        """Changes with any file's name, size or time of change, and with what is in it."""
        found = hashlib.sha256(repr(sorted(self.stamps.items())).encode())
        for array in self.arrays:
            found.update(repr((array.file, array.key, array.shape, array.dtype)).encode())
        return found.hexdigest()[:32]


def open_images(
    paths: str | Path | Iterable[str | Path],
    *,
    layout: str | None = None,
    dataset: str | None = None,
    keep_going: bool = False,
    without: Path | None = None,
) -> Images:
    """The images of files, folders and globs as a sequence of arrays ``(n, d)``, read when used.

    paths       files, folders (with everything below, by name) and globs, in this order
    layout      ``"nd"`` for arrays (images, n, d) or (n, d), the default; ``"nchw"`` or ``"nhwc"``
                for conv maps, one image or many in an array
    dataset     the only arrays to take of files with several: a name, or the name that every group
                has for its image
    keep_going  leave out files that cannot be read, and say which in ``skipped``
    without     a file that is not taken, wherever it is found

    ``len`` and ``shapes`` read headers only. ``.npy``, ``.npz``, ``.h5``, ``.safetensors``,
    ``.zarr`` and ``.pt``; nothing is ever unpickled.
    """
    layout = validated(layout=layout)
    arrays: list[StoredArray] = []
    stamps: dict[str, tuple[int, int]] = {}
    skipped: dict[str, str] = {}
    for path in _files(paths):
        name = str(path)
        if without is not None and path.resolve() == without.resolve():
            continue
        if name in stamps:
            raise InvalidInput(f"{name} is given twice.")
        try:
            try:
                stamps[name] = stamp(path)
            except OSError as problem:
                raise unreadable(path, problem) from None
            arrays += _scanned(path, layout, dataset)
        except InvalidInput as problem:
            if not keep_going:
                raise
            stamps.setdefault(name, (0, 0))
            skipped[name] = str(problem)
    return Images(arrays, stamps, skipped)


@contextmanager
def reading(name: str) -> Iterator[FeatureFile]:
    """An open file; whatever goes wrong with it is one sentence that names it."""
    file = open_file(Path(name))
    try:
        yield file
    except FAILURES as problem:
        raise unreadable(name, problem) from None
    finally:
        file.close()


def read(
    file: FeatureFile, array: StoredArray, start: int, stop: int, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Images ``start`` to ``stop`` of an array, (images, n, d) or (images, d, n), into ``out``."""
    rows = (array.d, array.n) if array.features_last else (array.n, array.d)
    if out is None:
        out = np.empty((stop - start, *rows), array.dtype)
    image = array.shape[1:] if array.is_batch else array.shape
    if array.is_batch:
        file.read_into(array.key, start, stop, out.reshape(stop - start, *image))
    else:
        file.read_into(array.key, None, None, out.reshape(image))
    return out


def _files(paths: str | Path | Iterable[str | Path]) -> Iterator[Path]:
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InvalidInput("give at least one file, folder or glob of features.")
    for one in given:
        path = Path(one)
        if path.is_dir() and path.suffix.lower() != ".zarr":
            yield from _of_folder(path)
        elif path.exists() or not glob.has_magic(str(one)):
            if not path.exists():
                raise InvalidInput(f"{path} does not exist.")
            yield path
        else:
            found = [Path(name) for name in sorted(glob.glob(str(one), recursive=True))]
            if not found:
                raise InvalidInput(f"no file matches {one}.")
            for match in found:
                is_folder = match.is_dir() and match.suffix.lower() != ".zarr"
                yield from _of_folder(match) if is_folder else (match,)


def _of_folder(folder: Path) -> Iterator[Path]:
    """Feature files below a folder, by name; a .zarr is one of them, whatever is in it."""
    found = False
    for path in _below(str(folder)):
        found = True
        yield Path(path)
    if not found:
        raise InvalidInput(f"{folder} has no feature files ({endings()}).")


def _below(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        by_name = sorted(entries, key=lambda entry: entry.name)
    for entry in by_name:
        if is_feature_file(entry.name):
            yield entry.path
        elif entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)


def _scanned(path: Path, layout: str | None, dataset: str | None) -> list[StoredArray]:
    with reading(str(path)) as file:
        contents = list(file.contents())
    wanted = [found for found in contents if _is_wanted(found.key, dataset)]
    if not wanted:
        held = ", ".join(found.key for found in contents[:5])
        what = f"has no array {dataset}; it holds {held}" if held else "holds no array"
        raise InvalidInput(f"{path} {what}.")
    return [_stored(path, found, layout, several=len(contents) > 1) for found in wanted]


def _is_wanted(key: str, dataset: str | None) -> bool:
    if dataset is None or not key:
        return True
    name = dataset.strip("/")
    return key == name or key.endswith(f"/{name}") or key.startswith(f"{name}/")


def _stored(path: Path, found: Contents, layout: str | None, *, several: bool) -> StoredArray:
    what = f"{path}, {found.key}," if found.key else str(path)
    advice = " --dataset says which arrays are features." if several else ""
    if found.dtype not in NUMPY_DTYPES:
        raise InvalidInput(
            f"{what} holds {found.dtype}, and features are {', '.join(NUMPY_DTYPES)}.{advice}"
        )
    if len(found.shape) < 2:
        raise InvalidInput(f"{what} has shape {found.shape}, which is no features.{advice}")
    images, n, d = sizes_of(what, found.shape, layout)
    if 0 in (n, d):
        raise InvalidInput(f"{what} is empty: its shape is {found.shape}.")
    is_batch = len(found.shape) == (4 if layout in ("nchw", "nhwc") else 3)
    turned = layout == "nchw"
    return StoredArray(
        str(path), found.key, found.shape, found.dtype, images, n, d, turned, is_batch
    )
