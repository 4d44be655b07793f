"""cupy:ptx: the kernels from their real PTX, everything else of cupy:cuda on NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
from array_api_compat import numpy as numpy_namespace

from demopool import ptx
from demopool.contract import Hashes, Kernel
from demopool.implementations.shared import images
from demopool.implementations.shared.host import HostImplementation
from demopool.implementations.shared.prepared import PreparedHashes, prepare

from . import signatures, weights
from .launcher import Array, Launch, Launcher
from .works import WORKS


class CupyEmulator(Launcher):
    """The PTX of an architecture, executed over NumPy arrays.

    Everything is checked in every launch, but for races: these hardly depend on values, and are
    looked for in the first launch of a kernel with arrays of certain shapes.
    """

    xp: Any = numpy_namespace

    def __init__(self, arch: str = "sm_80", processors: int = 108) -> None:
        self.arch = arch
        self._processors = processors
        self._raced: set[tuple[Any, ...]] = set()

    @property
    def max_shared(self) -> int:
        return ptx.LIMITS[self.arch].shared_per_block

    @property
    def processors(self) -> int:
        return self._processors

    @property
    def capability(self) -> int:
        return int(self.arch.removeprefix("sm_"))

    def launch(self, launch: Launch) -> None:
        kernel, shape, args = launch
        given = [self.raw(arg) for arg in args]
        name = signatures.instance(kernel, given)
        launched = (name, shape, tuple(np.shape(value) for value in given))
        first = launched not in self._raced
        self._raced.add(launched)
        compiled(name, self.arch).launch(
            name,
            shape.blocks,
            shape.threads,
            given,
            shape.shared,
            cooperative=shape.cooperative,
            check_races=first,
            counting=False,
            max_shared=self.max_shared,
        )

    def lower_product(self, X: Array, out: Array, *, transposed: bool) -> None:
        """As SYRK: what it does not write must not be read, so it is NaN here."""
        X, out = self.raw(X), self.raw(out)
        out[...] = np.matmul(X.T, X) if transposed else np.matmul(X, X.T)
        out[np.triu_indices(len(out), 1)] = np.nan

    def empty(self, shape: tuple[int, ...], like: Array, dtype: Any = None) -> Array:
        # What nobody has written must not look like a result.
        out = super().empty(shape, like, dtype)
        raw = self.raw(out)
        raw[...] = np.nan if raw.dtype.kind == "f" else -1
        return out

    def contiguous(self, array: Array) -> Array:
        return np.ascontiguousarray(array)

    def asarray(self, array: Any) -> Array:
        return array


@cache
def compiled(instance: str, arch: str) -> ptx.Module:
    """One kernel for one T."""
    variant = signatures.variant(instance)
    return ptx.compile(variant.source if variant else signatures.source(), arch, names=[instance])


EMULATOR = CupyEmulator()


def _place(array: Array) -> tuple[Launcher, Array]:
    dtype = np.float32 if array.dtype == np.float16 else array.dtype
    return EMULATOR, np.ascontiguousarray(array, dtype=dtype)


class CupyPtxImplementation(HostImplementation):
    """NumPy arrays stand for those of a device."""

    pools_normalized = True
    takes_ordinary = True
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(WORKS, _place)

    def packed(self, X: Array) -> Array:
        return _place(X)[1]

    def looks_ordinary(self, X: Array, low: float, high: float, *, zero_rows: bool = False) -> bool:
        return weights.are_ordinary(*_place(X), low, high, zero_rows)

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return prepare(hashes, EMULATOR.asarray)
