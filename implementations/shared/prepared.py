"""Hashes as kernels on a GPU want them, made once for many calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from demopool.contract import Hashes

Array = Any


class CountSketch(NamedTuple):
    """One hash: the bin and the sign of each value, and the values sorted by their bins.

    Those of bin b are ``order[starts[b]]`` to ``order[starts[b + 1] - 1]``, and value j is number
    ``places[j]``. ``filled`` are the bins that are not empty, ``runs`` where their values start.
    """

    bins: Array
    signs: Array
    order: Array
    starts: Array
    places: Array
    filled: Array
    runs: Array


class PreparedHashes(NamedTuple):
    """Both hashes on a device, and as they were given. ``there`` is an event after which they have
    arrived, for a library whose arrays do not know their stream."""

    first: CountSketch
    second: CountSketch
    hashes: Hashes
    there: Any = None

    def to(self, on: Any) -> PreparedHashes:
        """Where the features are; themselves, if they are there."""
        if not on.holds(self.first.bins):
            return prepare(self.hashes, on.asarray)
        if self.there is not None:
            on.wait_for(self.there)
        return self


def prepare(hashes: Hashes, asarray: Callable[[Any], Array]) -> PreparedHashes:
    """``asarray`` brings a NumPy array to the device."""

    def one(h: Any, s: Any) -> CountSketch:
        order = np.argsort(h, kind="stable")
        starts = np.searchsorted(h[order], np.arange(hashes.k + 1))
        filled, first = np.unique(h[order], return_index=True)
        integers = (order, starts, np.argsort(order), filled, np.append(first, len(h)))
        parts = (h.astype(np.int32), s.astype(np.int8), *(i.astype(np.int32) for i in integers))
        return CountSketch(*(asarray(np.ascontiguousarray(part)) for part in parts))

    return PreparedHashes(one(hashes.h1, hashes.s1), one(hashes.h2, hashes.s2), hashes)
