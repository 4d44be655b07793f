"""The values of one array in a stream of bytes, as .npy, .npz and .safetensors have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput

Array = NDArray[Any]

SLAB_BYTES = 2**23
"""Read at a time of an array in Fortran order."""

LARGEST_NPY_HEADER = 2**16
"""NumPy refuses much shorter ones."""

_NPY_HEADERS: dict[tuple[int, int], tuple[int, Callable[..., Any]]] = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
"""By version: the bytes of their length, and what reads them."""


class RawArray(NamedTuple):
    """Where the values of an array are in a stream of bytes."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False


def npy_header(file: IO[bytes], name: Any) -> RawArray:
    version = np.lib.format.read_magic(file)
    if version not in _NPY_HEADERS:
        raise ValueError(f"it is of version {version} of the format")
    length = file.read(_NPY_HEADERS[version][0])
    text = file.read(min(int.from_bytes(length, "little"), LARGEST_NPY_HEADER))
    shape, fortran, dtype = _parsed(version, length + text)
    if dtype.hasobject:
        raise InvalidInput(
            f"{name} holds Python objects, and nothing is ever unpickled; save arrays of numbers."
        )
    return RawArray(file.tell(), shape, dtype, fortran)


@lru_cache(maxsize=64)
def _parsed(version: tuple[int, int], header: bytes) -> tuple[tuple[int, ...], bool, Any]:
    """NumPy reads a header as Python; those of a folder are mostly the same, and kept."""
    found: tuple[tuple[int, ...], bool, Any] = _NPY_HEADERS[version][1](BytesIO(header))
    return found


def raw_bytes(raw: RawArray) -> int:
    count = 1
    for axis in raw.shape:
        count *= axis
    return count * raw.dtype.itemsize


def read_raw(
    file: IO[bytes], raw: RawArray, start: int | None, stop: int | None, out: Array
) -> None:
    if raw.fortran and len(raw.shape) > 1:
        _read_fortran(file, raw, start, stop, out)
        return
    item = raw_bytes(raw._replace(shape=raw.shape[1:]))
    file.seek(raw.offset + item * (start or 0))
    _fill(file, out)
    if not raw.dtype.isnative:
        out.byteswap(inplace=True)


def _read_fortran(
    file: IO[bytes], raw: RawArray, start: int | None, stop: int | None, out: Array
) -> None:
    """The first axis varies fastest, so a part is spread over the file: all of it is read, in
    slabs along the last axis."""
    *others, last = raw.shape
    slab = max(1, SLAB_BYTES // max(1, raw_bytes(raw._replace(shape=tuple(others)))))
    file.seek(raw.offset)
    for begin in range(0, last, slab):
        end = min(begin + slab, last)
        read = np.empty((end - begin, *others[::-1]), raw.dtype)
        _fill(file, read)
        out[..., begin:end] = read.T if start is None else read.T[start:stop]


def _fill(file: IO[bytes], out: Array) -> None:
    """Compressed members give as much at a time as they like."""
    view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError("it is cut off")
        done += count
