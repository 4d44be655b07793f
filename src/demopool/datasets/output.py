"""The file of descriptors: written in place, beside its final name, and renamed when it is whole.

Rows are written to the file, not to a map of it: a full disk is then an error and not the end of
the process, and pages that were written are no memory of it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.units import readable
from ..errors import InvalidInput, Unfinished
from .planning import Plan

ENDINGS = (".npy", ".zarr")


def check_name(path: Path) -> None:
    """The name says the format."""
    if path.suffix.lower() not in ENDINGS:
        raise InvalidInput(f"output must end in {' or '.join(ENDINGS)}; got {path}.")
    if not path.resolve().parent.is_dir():
        raise InvalidInput(f"{path} cannot be written: there is no such folder.")
    is_ours = path.suffix.lower() == ".zarr" and (path / "zarr.json").is_file()
    if path.is_dir() and not is_ours and any(path.iterdir()):
        raise InvalidInput(f"{path} is a folder with other things in it; give another output.")


def demand_other(path: Path, inputs: Iterable[str]) -> None:
    """Features are never overwritten."""
    if path.exists() and path.resolve() in (Path(name).resolve() for name in inputs):
        raise InvalidInput(f"{path} is one of the inputs; give another output.")


def beside(path: Path, ending: str) -> Path:
    """``OUT.ending``."""
    return path.with_name(f"{path.name}.{ending}")


def remove(path: Path) -> None:
    """A file, or a folder (zarr), if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Output(NamedTuple):
    """Where rows go; it can be sent to other processes, which write theirs."""

    path: Path
    rows: int
    length: int
    dtype: str
    unit_rows: int

    @classmethod
    def of(cls, path: Path, plan: Plan) -> Output:
        return cls(path, plan.images, plan.length, plan.dtype, plan.rows)

    @property
    def partial(self) -> Path:
        return beside(self.path, "partial")

    @property
    def _is_npy(self) -> bool:
        return self.path.suffix.lower() == ".npy"

    @property
    def _header(self) -> bytes:
        header = BytesIO()
        descr = np.lib.format.dtype_to_descr(np.dtype(self.dtype))
        shape = (self.rows, self.length)
        np.lib.format.write_array_header_1_0(
            header, {"descr": descr, "fortran_order": False, "shape": shape}
        )
        return header.getvalue()

    @property
    def bytes(self) -> int:
        return self.rows * self.length * np.dtype(self.dtype).itemsize

    def create(self) -> None:
        """Nothing but its size and its header; the disk must have room for the rest."""
        remove(self.partial)
        free = shutil.disk_usage(self.path.resolve().parent).free
        if free < self.bytes:
            raise Unfinished(
                f"{self.path} needs {readable(self.bytes, 'memory')}, and the disk has "
                f"{readable(free, 'memory')}."
            )
        with _named(self.partial):
            if self._is_npy:
                with self.partial.open("xb") as file:
                    file.write(self._header)
                    file.truncate(len(self._header) + self.bytes)
                return
            _zarr(self.path).create_array(
                store=str(self.partial),
                shape=(self.rows, self.length),
                chunks=(self.unit_rows, self.length),
                dtype=self.dtype,
                compressors=None,
                fill_value=float("nan"),
            )

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Rows from ``start`` on, on the disk when this returns."""
        with _named(self.partial):
            if self._is_npy:
                self._write_npy(start, values)
            else:
                array = _zarr(self.path).open_array(str(self.partial), mode="r+")
                array[start : start + len(values)] = values
                chunk = self.partial / "c" / str(start // self.unit_rows) / "0"
                if chunk.exists():  # nothing is stored of rows that are all NaN
                    _sync(chunk)

    def _write_npy(self, start: int, values: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(values).reshape(-1)
        data = memoryview(flat.view(np.uint8))  # type: ignore[arg-type]
        at = len(self._header) + start * self.length * values.itemsize
        handle = os.open(self.partial, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while data:
                count = os.pwrite(handle, data, at)
                data, at = data[count:], at + count
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def finish(self) -> None:
        """Give it its name, in place of what had it."""
        with _named(self.path):
            if self.path.is_dir() or (self.path.exists() and not self._is_npy):
                remove(self.path)  # a folder cannot be replaced by renaming
            os.replace(self.partial, self.path)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What the system has against writing, as one sentence."""
    try:
        yield
    except OSError as problem:
        raise Unfinished(
            f"{path} cannot be written: {problem.strerror or problem}. What was finished is kept, "
            "and the same command goes on from there."
        ) from None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError:
        raise InvalidInput(
            f"{path} cannot be written without zarr: pip install 'demopool[files]'."
        ) from None
    return zarr
