"""What a backend gives to demopool: a light specification and, once loaded, an implementation.

A backend author writes two things. A :class:`Specification` can be read without importing the
library: it says which devices there are, whether they are usable here, and which routes exist.
An :class:`Implementation` holds the library's arrays and one kernel per (operation, route).

Kernels never validate and never read values back to the host: :mod:`demopool.pooling.operations`
has checked shapes, dtypes, devices and parameters before it calls one. (A power by eigenvectors
asks once whether its spectrum is good enough, after a solver that takes far longer.) Their
signatures are the protocols of :mod:`demopool.problem.operations`, for people and type checkers.

What every kernel must respect, and ``demopool check`` looks at: any leading axes, also empty ones;
a result in the dtype of the features (float32 for half precision), on their device, in memory of
its own; input left as it was, read-only and strided input too; weight 0 for a row of zeros; finite
results for features scaled by 1e-12 and 1e12 (``implementations.shared.scaling`` has the law) and
for rank-deficient ones. ``describe`` ends with ``normalize``, so a backend needs that one as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..problem.hashing import Hashes
from ..problem.vocabulary import State
from .device import FLUSH_BYTES

CONTRACT_VERSION = 1
"""Raised when a backend written for an older contract would no longer work."""

Kernel = Callable[..., Any]
"""Of some operation, with its signature: a mapping cannot say which.
``implementations.shared.table`` checks each where the mapping is made."""


CompilesPer = Literal["shape", "dtype"] | None


class ArrayFacts(NamedTuple):
    """What can be known of an array without reading its values."""

    shape: tuple[int, ...]
    dtype: str
    device: str


@dataclass(frozen=True)
class Probe:
    """Whether a backend is usable here. Every state but ``ok`` has a reason."""

    state: State
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    install: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", State(self.state))
        for name in ("device", "reason", "install"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a text; got {getattr(self, name)!r}")
        given: Any = self.versions
        if not isinstance(given, Mapping) or not all(
            isinstance(text, str) for text in (*given, *given.values())
        ):
            raise TypeError(f"versions must be texts by name; got {self.versions!r}")


@dataclass(frozen=True)
class Capability:
    """One route a backend has; ``reason`` non-empty makes it a hole and says why.

    ``not_executed`` says which part no test without the device can run.
    """

    operation: str
    route: str
    orders: tuple[int, ...] = (2,)
    dtypes: tuple[str, ...] = ("float32", "float64")
    reason: str = ""
    not_executed: str = ""


class Implementation(ABC):
    """One library on one device."""

    kernels: ClassVar[Mapping[tuple[str, str], Kernel]]
    """(operation, route) -> kernel, for every capability without a reason."""

    pools_normalized: ClassVar[bool] = False
    """Whether ``pool`` takes ``norm``, a kind of ``normalize`` and "none" unless given.
    ``pool(X, a, order=2, norm="l2")`` returns the matrices after their final normalisation, exactly
    symmetric. How is the backend's own affair: it may work on one triangle, in place, or sum while
    it multiplies, and so pass over a large result less often. ``norm`` is given with order 2 only.
    A subclass that replaces the kernel by one without ``norm`` sets this to False."""

    takes_ordinary: ClassVar[bool] = False
    """Whether kernels of ``weights`` take ``ordinary``, False unless given. ``ordinary=True`` is a
    promise about the features: the largest magnitude of every row is in the range of
    ``pooling.values.ordinary_range``, or 0. No product or weight then leaves the range of float32,
    and a kernel need not scale features first. A subclass that replaces a kernel of ``weights``
    sets this anew."""

    @abstractmethod
    def inspect(self, array: Any) -> ArrayFacts | None:
        """Shape, dtype and device; None if it is not an array of this library and device."""

    @abstractmethod
    def asarray(self, array: NDArray[Any]) -> Any:
        """A NumPy array as this library's, on this device; a view where the library can."""

    def adopt(self, array: Any) -> Any | None:
        """An array of another library on this device as this library's, without a copy (DLPack);
        None where there is no such way. ``describe`` then goes through the host's memory."""
        return None

    def keeps(self, array: Any) -> bool:
        """Whether no other backend can work on this array, even one for arrays of this library: it
        has a derivative, say, or a compiler is looking at it."""
        return False

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Around what ``describe`` itself computes on this library's arrays: padding, centre,
        triangle, two streams. A library whose float64 is behind a switch turns it on here."""
        return nullcontext()

    @abstractmethod
    def to_numpy(self, array: Any) -> NDArray[Any]:
        """The way back; a view where the library can. bfloat16, which NumPy lacks, as float32."""

    @abstractmethod
    def cast(self, array: Any, dtype: str) -> Any:
        """The array in another dtype; the array itself if it has that dtype."""

    def reshaped(self, array: Any, shape: tuple[int, ...]) -> Any:
        """The same numbers in another shape."""
        return array.reshape(shape)

    def transposed(self, X: Any) -> Any:
        """With the last two axes exchanged, a view where the library can."""
        return X.swapaxes(-1, -2)

    def packed(self, X: Any) -> Any:
        """Features as kernels work on them, contiguous or in the dtype of the work, for a backend
        whose kernels would each make such a copy; ``describe`` asks once, before it checks them.
        Themselves where no copy is needed."""
        return X

    @abstractmethod
    def row_magnitudes(self, X: Any) -> NDArray[Any]:
        """max |x_ij| over j as NumPy: reads values, for ``check=True``."""

    def looks_ordinary(self, X: Any, low: float, high: float, *, zero_rows: bool = False) -> bool:
        """A quick look before ``row_magnitudes``, which is not asked if this is True: every row's
        largest magnitude is between ``low`` and ``high``, or with ``zero_rows`` exactly 0. False
        says nothing."""
        return False

    def scaled(self, X: Any, factors: NDArray[Any]) -> Any:
        """Every image times its factor, a power of two; ``factors`` is ``(..., 1, 1)``."""
        return X * self.asarray(factors)

    def prepare(self, hashes: Hashes) -> Any:
        """Hashes in the form the kernels want; ``Operations.prepare`` lets users do it once."""
        return hashes

    def synchronize(self) -> None:  # noqa: B027 - nothing to wait for unless a backend says so
        """Wait until the device has finished everything that was started."""

    def wait(self, result: Any) -> None:
        """Wait until this result is there: the clock calls it before it stops.

        For libraries that return before the work is done and can wait for an array, not for all
        work (JAX). ``result`` is what a kernel returned, or a NumPy array, which is there.
        """
        self.synchronize()

    # What the clock and the memory meter ask. A backend on the host has nothing to add; one on a
    # device of its own overrides the first four (contract/device.py says what each must do).

    gpu_index: int | None = None

    def event(self) -> Any:
        """A mark in the device's queue of work; None where there is no queue."""
        return None

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two marks."""
        raise NotImplementedError("this device has no queue of work")

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        """Most device memory held during the call above what was held before; None on the host."""
        return None

    def flush_caches(self) -> None:
        """Push what earlier calls left in the caches out, by writing more than they hold."""
        if self._flood is None:
            self._flood = self.asarray(np.ones(FLUSH_BYTES // 4, np.float32))
        normalize = self.kernels["normalize", "direct"]
        normalize(self._flood, axes=1, kind="l2", overwrite=True)

    _flood: Any = None


@dataclass(frozen=True)
class Specification:
    """A library with its devices, readable without importing the library.

    probe          of a device: must import nothing heavy and create no device context
    recognise      the device of an array of this library, or None if it is not one
    load           of a device and a number of threads: the implementation; only called when the
                   probe said ``ok``. Calls are to use so many threads. OMP_NUM_THREADS and the like
                   are set already where it was asked for; a library with a switch of its own is
                   set here
    contract       the CONTRACT_VERSION it was written for, as a number: 1
    compiles_per   what a first call compiles for: ``"shape"``, every new shape of arrays (JAX);
                   ``"dtype"``, once for all shapes (Numba); None, nothing
    """

    library: str
    devices: tuple[str, ...]
    probe: Callable[[str], Probe]
    capabilities: tuple[Capability, ...]
    load: Callable[[str, int], Implementation]
    recognise: Callable[[Any], str | None]
    contract: int
    compiles_per: CompilesPer = None
