"""Hashes are data, not behaviour: one generator, the same numbers everywhere and for ever.

A stored sketch is only useful while its hashes can be made again, and NumPy promises no stable
streams. So the numbers come from SplitMix64 (Steele, Lea, Flood 2014), used as a counter-based
generator: value j of stream i is ``mix(mix(seed) + i * 2**32 + j)``. The first d values do not
depend on d. A pinned vector in the tests guards every bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from .parameters import validated

VERSION = 1
"""Raised whenever the same (d, k, seed) would give other numbers."""


@dataclass(frozen=True, eq=False)
class Hashes:
    """Two hash functions ``h: d -> k`` and two sign functions, checked once and read-only.

    ``seed`` and ``version`` say how they were made; both are None for hashes of your own.
    """

    h1: NDArray[np.int64]
    s1: NDArray[np.int8]
    h2: NDArray[np.int64]
    s2: NDArray[np.int8]
    k: int
    seed: int | None = None
    version: int | None = None

    def __post_init__(self) -> None:
        validated(k=self.k)
        for name in ("h1", "h2"):
            object.__setattr__(self, name, self._bins(name, getattr(self, name)))
        for name in ("s1", "s2"):
            object.__setattr__(self, name, self._signs(name, getattr(self, name)))
        lengths = {len(a) for a in (self.h1, self.s1, self.h2, self.s2)}
        if len(lengths) != 1 or 0 in lengths:
            raise InvalidInput(
                "hashes must have h1, s1, h2 and s2 of one length d >= 1; got lengths "
                f"{[len(a) for a in (self.h1, self.s1, self.h2, self.s2)]}."
            )

    @property
    def d(self) -> int:
        """Length of the vectors these hashes sketch."""
        return len(self.h1)

    def _bins(self, name: str, values: Any) -> NDArray[np.int64]:
        array = _integer_vector(name, values)
        if array.size and (array.min() < 0 or array.max() >= self.k):
            raise InvalidInput(
                f"hashes.{name} must lie in 0..{self.k - 1} (k={self.k}); "
                f"got values from {array.min()} to {array.max()}."
            )
        return _frozen(array.astype(np.int64))

    def _signs(self, name: str, values: Any) -> NDArray[np.int8]:
        array = _integer_vector(name, values)
        if not np.isin(array, (-1, 1)).all():
            raise InvalidInput(f"hashes.{name} must hold only -1 and +1.")
        return _frozen(array.astype(np.int8))


def hashes(d: int, k: int = 8192, seed: int = 0) -> Hashes:
    """The hashes of a seed: for features of dimension ``d``, sketches of length ``k``."""
    d, k, seed = validated(d=d, k=k, seed=seed)
    return Hashes(
        h1=_bins(_stream(seed, 0, d), k),
        s1=_signs(_stream(seed, 1, d)),
        h2=_bins(_stream(seed, 2, d), k),
        s2=_signs(_stream(seed, 3, d)),
        k=k,
        seed=seed,
        version=VERSION,
    )


def _stream(seed: int, stream: int, count: int) -> NDArray[np.uint64]:
    start = int(_mix(np.array([seed], dtype=np.uint64))[0]) + (stream << 32)
    offsets = np.arange(count, dtype=np.uint64)
    return _mix(np.uint64(start % 2**64) + offsets)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: a bijection of 64-bit integers, arithmetic modulo 2**64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _bins(x: NDArray[np.uint64], k: int) -> NDArray[np.int64]:
    """Upper 32 bits, scaled to 0..k-1: the bias is below k / 2**32."""
    return ((x >> np.uint64(32)) * np.uint64(k) >> np.uint64(32)).astype(np.int64)


def _signs(x: NDArray[np.uint64]) -> NDArray[np.int8]:
    """The highest bit decides."""
    return np.where(x >> np.uint64(63), 1, -1).astype(np.int8)


def _integer_vector(name: str, values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInput(
            f"hashes.{name} must be a vector of integers; "
            f"got shape {array.shape} of {array.dtype.name}."
        )
    return array


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
