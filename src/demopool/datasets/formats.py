"""Feature files by their format: what arrays they hold, and how a part of one is read.

Only numbers are read. Nothing is ever unpickled: an array of Python objects is refused, and a
PyTorch file is loaded with ``weights_only=True``. Parts are read into the caller's memory, not
mapped: what is mapped counts as memory of the process, and kills it if the file is cut meanwhile.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..common.files import UNREADABLE
from ..errors import InvalidInput
from .raw_arrays import RawArray, npy_header, raw_bytes, read_raw

Array = NDArray[Any]
LARGEST_HEADER = 100_000_000
"""Bytes of a safetensors header; the format's own limit."""


class Contents(NamedTuple):
    """An array inside a file: its name (empty for the only one), shape and dtype."""

    key: str
    shape: tuple[int, ...]
    dtype: str


class FeatureFile(Protocol):
    """An open file. ``read_into`` fills ``out`` with the items ``start`` to ``stop`` of the first
    axis, or with the whole array if both are None; ``out`` is C-contiguous."""

    def contents(self) -> Iterator[Contents]: ...

    def read_into(self, key: str, start: int | None, stop: int | None, out: Array) -> None: ...

    def close(self) -> None: ...


def is_feature_file(name: str) -> bool:
    """Whether the name ends as those of a format that can be read."""
    return os.path.splitext(name)[1].lower() in _FORMATS


def endings() -> str:
    """For a sentence."""
    return ", ".join(_FORMATS)


def open_file(path: Path) -> FeatureFile:
    """By the ending of its name; what cannot be read is one sentence that names it."""
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InvalidInput(f"{path} is of no format that can be read ({endings()}).")
    try:
        return kind(path)
    except FAILURES as problem:
        raise unreadable(path, problem) from None


FAILURES = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, *UNREADABLE)
"""What libraries raise for files that are cut off, of another format, or damaged."""


def unreadable(path: Path | str, problem: BaseException) -> InvalidInput:
    """The error to raise for a file that could not be read."""
    if isinstance(problem, InvalidInput):
        return problem
    unsaid = "it is cut off" if isinstance(problem, EOFError) else type(problem).__name__
    why = getattr(problem, "strerror", None) or str(problem) or unsaid
    return InvalidInput(f"{path} cannot be read: {why.strip().splitlines()[0].rstrip('.')}.")


def stamp(path: Path) -> tuple[int, int]:
    """Size and time of change; of a folder (zarr) the sum and the latest of its files."""
    if not path.is_dir():
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    size, latest = 0, 0
    for folder, _, names in os.walk(path):
        for name in names:
            found = os.stat(os.path.join(folder, name))
            size, latest = size + found.st_size, max(latest, found.st_mtime_ns)
    return size, latest


class _NpyFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self._raw = npy_header(self._file, path)
        except BaseException:
            self._file.close()
            raise
        needed = self._raw.offset + raw_bytes(self._raw)
        if path.stat().st_size < needed:
            self._file.close()
            raise InvalidInput(
                f"{path} is cut off: it has {path.stat().st_size} bytes of {needed}."
            )

    def contents(self) -> Iterator[Contents]:
        yield Contents("", self._raw.shape, self._raw.dtype.name)

    def read_into(self, key: str, start: int | None, stop: int | None, out: Array) -> None:
        read_raw(self._file, self._raw, start, stop, out)

    def close(self) -> None:
        self._file.close()


class _NpzFile:
    """One member is open at a time: consecutive parts of it are decompressed once."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        self._path = path
        self._open: tuple[str, IO[bytes], RawArray] | None = None

    def contents(self) -> Iterator[Contents]:
        for name in self._archive.namelist():
            if name.endswith(".npy"):
                with self._archive.open(name) as member:
                    raw = npy_header(member, f"{self._path}, {name.removesuffix('.npy')},")
                yield Contents(name.removesuffix(".npy"), raw.shape, raw.dtype.name)

    def read_into(self, key: str, start: int | None, stop: int | None, out: Array) -> None:
        if self._open is None or self._open[0] != key:
            self._leave()
            member = self._archive.open(f"{key}.npy")
            self._open = (key, member, npy_header(member, self._path))
        read_raw(self._open[1], self._open[2], start, stop, out)

    def close(self) -> None:
        self._leave()
        self._archive.close()

    def _leave(self) -> None:
        if self._open:
            self._open[1].close()
        self._open = None


_SAFETENSORS_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"}


class _SafetensorsFile:
    """Eight bytes, the length of a JSON header; the header; the values."""

    def __init__(self, path: Path) -> None:
        size = path.stat().st_size
        self._path, self._file = path, path.open("rb")
        try:
            length = int.from_bytes(self._file.read(8), "little")
            if not 2 <= length <= min(LARGEST_HEADER, size - 8):
                raise ValueError("its header is damaged, or it is cut off")
            header = json.loads(self._file.read(length))
            self._arrays = {
                name: self._described(entry, 8 + length, size)
                for name, entry in header.items()
                if name != "__metadata__"
            }
        except BaseException:
            self._file.close()
            raise

    def _described(self, entry: Any, start: int, size: int) -> tuple[str, RawArray]:
        dtype, shape = str(entry["dtype"]), tuple(int(axis) for axis in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
        raw = RawArray(start + begin, shape, np.dtype(_SAFETENSORS_DTYPES.get(dtype, "V1")))
        if min(shape, default=0) < 0 or begin < 0 or start + end > size:
            raise ValueError("its header is damaged, or it is cut off")
        if dtype in _SAFETENSORS_DTYPES and end - begin != raw_bytes(raw):
            raise ValueError("its header is damaged")
        return dtype, raw

    def contents(self) -> Iterator[Contents]:
        for name, (dtype, raw) in self._arrays.items():
            # Half precision that NumPy lacks comes as float32 of equal values.
            known = "float32" if dtype == "BF16" else raw.dtype.name
            yield Contents(name, raw.shape, known if dtype in _SAFETENSORS_DTYPES else dtype)

    def read_into(self, key: str, start: int | None, stop: int | None, out: Array) -> None:
        dtype, raw = self._arrays[key]
        if dtype != "BF16":
            read_raw(self._file, raw, start, stop, out)
            return
        halves = np.empty(out.shape, np.uint16)
        read_raw(self._file, raw, start, stop, halves)
        np.left_shift(halves, np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)

    def close(self) -> None:
        self._file.close()


class _Hdf5File:
    def __init__(self, path: Path) -> None:
        h5py = _library("h5py", path)
        self._kind, self._file = h5py.Dataset, h5py.File(path, "r")

    def contents(self) -> Iterator[Contents]:
        found: list[Contents] = []

        def visit(name: str, item: Any) -> None:
            if isinstance(item, self._kind) and item.shape is not None:
                found.append(Contents(name, tuple(item.shape), item.dtype.name))

        self._file.visititems(visit)
        yield from found

    def read_into(self, key: str, start: int | None, stop: int | None, out: Array) -> None:
        part = np.s_[...] if start is None else np.s_[start:stop]
        self._file[key].read_direct(out, part)

    def close(self) -> None:
        self._file.close()


class _ZarrFile:
    def __init__(self, path: Path) -> None:
        zarr = _library("zarr", path)
        if not (path / "zarr.json").is_file():
            raise InvalidInput(f"{path} is no zarr v3 array or group: it has no zarr.json.")
        self._root: Any = zarr.open(str(path), mode="r")
        self._group = isinstance(self._root, zarr.Group)

    def contents(self) -> Iterator[Contents]:
        if not self._group:
            yield Contents("", tuple(self._root.shape), str(self._root.dtype))
            return
        found = [(name, item) for name, item in self._root.members(max_depth=None)]
        for name, item in sorted(found, key=lambda pair: pair[0]):
            if hasattr(item, "shape"):
                yield Contents(name, tuple(item.shape), str(item.dtype))

    def read_into(self, key: str, start: int | None, stop: int | None, out: Array) -> None:
        array = self._root[key] if self._group else self._root
        out[...] = array[...] if start is None else array[start:stop]

    def close(self) -> None:
        pass


class _TorchFile:
    """Loaded anew for every part: a mapped file would stay in memory as far as it was read."""

    def __init__(self, path: Path) -> None:
        self._path, self._torch = path, _library("torch", path)
        self._shapes = {
            key: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for key, tensor in self._tensors().items()
        }

    def _tensors(self) -> dict[str, Any]:
        import pickle

        options = {"map_location": "cpu", "weights_only": True}
        try:
            try:
                held = self._torch.load(self._path, mmap=True, **options)
            except (RuntimeError, ValueError):  # a file of the format before zip archives
                held = self._torch.load(self._path, **options)
        except pickle.UnpicklingError:
            raise InvalidInput(
                f"{self._path} cannot be read: it is damaged, or holds more than tensors, and "
                "code of a file is never run; save a tensor, or a list or dictionary of tensors."
            ) from None
        if isinstance(held, self._torch.Tensor):
            held = {"": held}
        pairs = held.items() if isinstance(held, dict) else enumerate(held)
        tensors = {str(key): value for key, value in pairs}
        for value in tensors.values():
            if not isinstance(value, self._torch.Tensor) or value.layout != self._torch.strided:
                raise InvalidInput(
                    f"{self._path} must hold a dense tensor, or a list or dictionary of them."
                )
        return tensors

    def contents(self) -> Iterator[Contents]:
        for key, (shape, dtype) in self._shapes.items():
            yield Contents(key, shape, "float32" if dtype == "bfloat16" else dtype)

    def read_into(self, key: str, start: int | None, stop: int | None, out: Array) -> None:
        tensor = self._tensors()[key].detach()
        part = tensor if start is None else tensor[start:stop]
        self._torch.from_numpy(out).copy_(part)

    def close(self) -> None:
        pass


_FORMATS: dict[str, Any] = {
    ".npy": _NpyFile,
    ".npz": _NpzFile,
    ".h5": _Hdf5File,
    ".hdf5": _Hdf5File,
    ".safetensors": _SafetensorsFile,
    ".zarr": _ZarrFile,
    ".pt": _TorchFile,
    ".pth": _TorchFile,
}


def _library(name: str, path: Path) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        extra = "torch" if name == "torch" else "files"
        raise InvalidInput(
            f"{path} cannot be read without {name}: pip install 'demopool[{extra}]'."
        ) from None
