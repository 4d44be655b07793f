"""Memory of a launch: where bytes are, which threads accessed them, and which accesses are faults.

Addresses have 64 bits. Every global array has its own slot of 2^40 bytes and starts in the middle
of it. An index that overflows, or a wrong stride, therefore leaves its array on either side instead
of hitting another array.
Shared and local memory have slots too (their *windows*, for generic addresses); instructions that
name their space use addresses relative to the window.

A shadow records, for every cell of a memory, the last writer and the readers since, each with its
time stamp. Two accesses by different threads, at least one of them a write, are a race unless a
barrier (or within one warp a ``__syncwarp``) separates them. Only a fence after the first access
(``__threadfence``) orders accesses by threads of different blocks (ordering.py says for whom).
"""

from __future__ import annotations

import mmap
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .faults import FaultKind, LaunchError
from .ordering import Order

Array = Any

SLOT_BITS = 40
SHARED_SLOT, LOCAL_SLOT, PARAM_SLOT = 0x7E0000, 0x7D0000, 0x7C0000
ARRAY_START = 1 << (SLOT_BITS - 1)
SHARED_START = 1 << 24
"""Offset of shared memory in its window, so that a null pointer lies outside."""

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

# A thread stamp: scope << 60 | _SET | thread. Scope 0 means that thread; 1, 2, 3 mean several
# threads of its warp, of its block, of the grid. A thread is block << 10 | its index in the block.
_SET = 1 << 59
_ATOMIC = 1 << 62
_THREAD = _SET - 1
# A time stamp: barriers passed << 40 | fences << 20 | warp barriers.
BARRIER, FENCE, WARP_BARRIER = 1 << 40, 1 << 20, 1


class Wrong(NamedTuple):
    """A faulty access: the kind of fault, its description, the lane and the address."""

    kind: FaultKind
    what: str
    lane: int
    address: int


def reserve(shape: int | tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Zeros that take memory only where they are touched; K at n = 65,536 would take 17 GB."""
    count = int(np.prod(shape, dtype=object))
    size = max(count * np.dtype(dtype).itemsize, 1)
    return _pages(size)[: count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)


def empty(shape: int | tuple[int, ...], dtype: Any = np.float32) -> Array:
    """A launch argument whose content counts as uninitialised: reading it is a fault.

    This holds in every launch that receives it; pass ``np.asarray`` of it once it is written.
    """
    return reserve(shape, dtype).view(Uninitialised)


class Uninitialised(np.ndarray):
    """Marks an argument as uninitialised; NumPy keeps the mark, ``np.asarray`` removes it."""


def _pages(size: int) -> Array:
    if size < 1 << 20:
        return np.zeros(size, np.uint8)
    if sys.platform != "linux":
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    # NORESERVE (0x4000, named in Python only since 3.13) allows more than the physical memory.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)


@dataclass
class Memory:
    """Bytes of one slot; shared and local memory hold one copy per block or thread, in a row."""

    name: str
    data: Array
    size: int
    copies: int = 1
    read_only: bool = False
    initialised: bool = True
    granule: int = 4
    shadow: Shadow | None = None
    touched: Traffic = field(default_factory=lambda: Traffic())
    lead: int = 0
    _views: dict[int, Array] = field(default_factory=dict)

    def view(self, width: int) -> Array:
        """The bytes as words of ``width`` bytes."""
        if width not in self._views:
            whole = self.data.nbytes // width * width
            self._views[width] = self.data[:whole].view(UNSIGNED[width])
        return self._views[width]

    def wrong(self, offset: Array, lanes: Array, width: int) -> Wrong | None:
        """The first access out of bounds, or None."""
        outside = (offset < self.lead) | (offset > self.lead + self.size - width)
        if not outside.any():
            return None
        first = int(np.argmax(outside))
        at = int(offset[first]) - self.lead
        return Wrong(
            FaultKind.OUT_OF_BOUNDS,
            f"byte {at} of {self.name}, which has {self.size}",
            int(lanes[first]),
            at,
        )


@dataclass
class Traffic:
    """What a kernel read and wrote in one global array."""

    requests: int = 0
    sectors: int = 0
    useful_bytes: int = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0


class Shadow:
    """Stamps for the cells of one memory; ``order`` is that of the blocks.

    In the global memory of a cooperative launch it also has the readers of a cell block by block.
    """

    def __init__(self, cells: int, order: Order, *, is_global: bool = False) -> None:
        self._written, self._written_when = reserve(cells, np.int64), reserve(cells, np.int64)
        self._read, self._read_when = reserve(cells, np.int64), reserve(cells, np.int64)
        self._order = order
        self._readers = None
        if is_global and order.cooperative:
            self._readers = reserve((len(order.fences), cells), np.uint32)

    def read(self, cells: Array, who: Array, when: Array) -> tuple[str, int]:
        """Record a read; return its problem ("" if there is none) and the position."""
        clash = self._clash(self._written[cells], self._written_when[cells], who, when)
        if clash.any():
            return "another thread writes what it reads, no barrier between", int(np.argmax(clash))
        stamp = who | _SET
        before = self._read[cells]
        # Reads ordered before this one can be dropped: what comes after it also comes after them.
        alive = self._clash(before, self._read_when[cells], who, when)
        stamp = np.where(alive, _merged(before, stamp), stamp)
        self._read[cells], self._read_when[cells] = stamp, when
        if self._readers is not None:
            self._readers[who >> 10, cells] = _fences(when) + 1
        # Several lanes may read one cell at once: widen the stored stamp until it covers them all.
        missing = self._read[cells] != stamp
        while missing.any():
            cells, stamp = cells[missing], stamp[missing]
            self._read[cells] = _merged(self._read[cells], stamp)
            stored = self._read[cells]
            missing = _merged(stored, stamp) != stored
        return "", 0

    def never_written(self, cells: Array) -> Array:
        return self._written[cells] == 0

    def write(
        self, cells: Array, who: Array, when: Array, *, atomic: bool, alike: Array | None = None
    ) -> tuple[str, int]:
        """Record a write; return its problem ("" if there is none) and the position. Those that
        are ``alike`` may write one cell at once."""
        before = self._written[cells]
        clash = self._clash(before, self._written_when[cells], who, when)
        if atomic:
            clash &= (before & _ATOMIC) == 0
        if clash.any():
            return "another thread writes it too, no barrier between", int(np.argmax(clash))
        clash = self._clash(self._read[cells], self._read_when[cells], who, when)
        if self._readers is not None:
            clash &= _scope(self._read[cells], who) < 3
            clash |= self._order.unheard(self._readers[:, cells], who >> 10)
        if clash.any():
            return "another thread reads what it writes, no barrier between", int(np.argmax(clash))
        stamp = who | (_SET | _ATOMIC if atomic else _SET)
        self._written[cells], self._written_when[cells] = stamp, when
        if not atomic:
            twice = self._written[cells] != stamp
            if alike is not None:
                twice &= ~alike
            if twice.any():
                return "several threads write it at once", int(np.argmax(twice))
        return "", 0

    def _clash(self, stamp: Array, before: Array, who: Array, now: Array) -> Array:
        """Whether an access is not ordered after the one that left a stamp."""
        scope = _scope(stamp, who)
        same_barrier = (before >> 40) >= (now >> 40)
        found = (scope == 2) & same_barrier
        found |= (scope == 1) & same_barrier & ((before & 0xFFFFF) >= (now & 0xFFFFF))
        far = scope == 3
        if far.any():
            fences = self._order.before((stamp & _THREAD) >> 10, who >> 10)
            found |= far & (fences <= _fences(before))
        return found & (stamp != 0)


def _fences(when: Array) -> Array:
    """Those of the block, in a time stamp."""
    return (when >> 20) & 0xFFFFF


def _scope(stamp: Array, who: Array) -> Array:
    """Distance of two threads: 0 same thread, 1 same warp, 2 same block, 3 different blocks."""
    apart = (stamp ^ who) & _THREAD
    found = (apart > 0).astype(np.int64) + (apart >= 32) + (apart >= 1024)
    return np.maximum(found, (stamp >> 60) & 3)


def _merged(stamp: Array, other: Array) -> Array:
    """One stamp for both: the narrowest scope that contains all of their threads."""
    scope = np.maximum(_scope(stamp, other), (other >> 60) & 3)
    # The lowest thread of the scope stands for all, so that the result is the same in any order.
    shift = np.array([0, 5, 10, 58])[scope]
    thread = ((stamp & _THREAD) >> shift) << shift
    return (scope << 60) | _SET | thread


class Arena:
    """All global memory of a launch, by slot."""

    def __init__(self, blocks: int, check_races: bool, cooperative: bool = False) -> None:
        self.memories: list[Memory] = []
        self.order = Order(reserve(blocks, np.int64), cooperative)
        self._check = check_races
        self._back: list[tuple[Array, Array]] = []
        self._known: dict[tuple[int, int, bool], int] = {}

    def add(self, name: str, array: Array, *, granule: int, read_only: bool = False) -> int:
        """Add an array and return its address; an array that is passed twice keeps its address."""
        if not array.flags.c_contiguous:
            raise LaunchError(f"{name} must be C-contiguous; np.ascontiguousarray makes a copy.")
        flat = array.reshape(-1).view(np.ndarray).view(np.uint8)
        same = (flat.ctypes.data, flat.nbytes, flat.flags.writeable)
        if same in self._known:
            return self._known[same]
        lead = flat.ctypes.data % 16
        if lead:
            # As on a device, a view that starts inside another array may be misaligned.
            staged = np.zeros(flat.nbytes + lead + 15, np.uint8)
            shift = -staged.ctypes.data % 16
            data = staged[shift : shift + lead + flat.nbytes]
            data[lead:] = flat
            if flat.flags.writeable:
                self._back.append((flat, data[lead:]))
        else:
            data = flat
        cells = -(-data.nbytes // granule) + 1
        self.memories.append(
            Memory(
                name,
                data,
                flat.nbytes,
                read_only=read_only or not flat.flags.writeable,
                initialised=not isinstance(array, Uninitialised),
                granule=granule,
                shadow=Shadow(cells, self.order, is_global=True) if self._check else None,
                lead=lead,
            )
        )
        self._known[same] = (len(self.memories) << SLOT_BITS) + ARRAY_START + lead
        return self._known[same]

    def write_back(self) -> None:
        for array, staged in self._back:
            array[:] = staged
