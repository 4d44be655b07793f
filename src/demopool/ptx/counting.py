"""Count the work of a kernel while it runs; the counts are the same on every machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from .memory import Traffic

Array = Any

WARP = 32
SECTOR = 32
"""Bytes of global memory that one transaction moves."""

BANKS = 32


@dataclass
class Counts:
    """The work of one launch, or the sum over several.

    instructions             executed, per warp: one for up to 32 threads
    thread_instructions      executed, per thread
    divergent_branches       branches that split a warp
    barriers                 passed, per block
    flops, double_flops      additions, multiplications (a fused one counts two), per thread
    tensor_flops             additions and multiplications by tensor cores
    special                  divisions, roots, exponentials, logarithms, per thread
    global_requests          loads and stores of global memory, per warp
    global_sectors           32-byte sectors that these requests touch
    useful_bytes             bytes of these sectors that were requested
    shared_requests          loads and stores of shared memory, per warp
    shared_wavefronts        passes that they take; those above ``shared_least`` are bank conflicts
    atomics                  executed, per thread
    atomic_collisions        atomics on an address that another thread of the warp also updates
    local_requests           loads and stores of local memory (spills, arrays), per warp
    traffic                  memory traffic of every global array
    """

    instructions: int = 0
    thread_instructions: int = 0
    divergent_branches: int = 0
    barriers: int = 0
    flops: int = 0
    double_flops: int = 0
    tensor_flops: int = 0
    special: int = 0
    global_requests: int = 0
    global_sectors: int = 0
    useful_bytes: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    shared_least: int = 0
    atomics: int = 0
    atomic_collisions: int = 0
    local_requests: int = 0
    traffic: dict[str, Traffic] = field(default_factory=dict)

    @property
    def useful_share(self) -> float:
        """Share of the bytes moved by global memory that were requested; 1 if none moved."""
        return self.useful_bytes / (SECTOR * self.global_sectors) if self.global_sectors else 1.0

    @property
    def bank_conflicts(self) -> int:
        """Passes over shared memory that a better layout would save."""
        return self.shared_wavefronts - self.shared_least

    @property
    def global_bytes(self) -> int:
        """Bytes moved by global memory, in whole sectors."""
        return SECTOR * self.global_sectors

    def __add__(self, other: Counts) -> Counts:
        sums: dict[str, Any] = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name != "traffic"
        }
        traffic = dict(self.traffic)
        for name, more in other.traffic.items():
            known = traffic.get(name, Traffic())
            traffic[name] = Traffic(
                **{f.name: getattr(known, f.name) + getattr(more, f.name) for f in fields(Traffic)}
            )
        return Counts(**sums, traffic=traffic)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def count_global(
    counts: Counts, traffic: Traffic, lanes: Array, offsets: Array, size: int, warps: int, op: str
) -> None:
    """Count a load, store or atomic of ``size`` bytes per lane, at offsets into an array."""
    sectors = _distinct(lanes, offsets // SECTOR, warps)
    requests = int(np.count_nonzero(sectors))
    useful = int(_distinct(lanes, offsets, warps).sum()) * size
    counts.global_requests += requests
    counts.global_sectors += int(sectors.sum())
    counts.useful_bytes += useful
    traffic.requests += requests
    traffic.sectors += int(sectors.sum())
    traffic.useful_bytes += useful
    if op != "store":
        traffic.loaded_bytes += useful
    if op != "load":
        traffic.stored_bytes += useful


def count_shared(counts: Counts, lanes: Array, offsets: Array, size: int, warps: int) -> None:
    """Count a load or store of shared memory.

    A pass serves one 4-byte word from each of 32 banks; accesses of 8 and 16 bytes are split into
    half and quarter warps.
    """
    per_lane = max(size // 4, 1)
    words = np.full((warps * WARP, per_lane), -1, np.int64)
    words[lanes] = offsets[:, None] // 4 + np.arange(per_lane)
    passes = np.sort(words.reshape(warps * per_lane, BANKS), axis=1)
    first = np.ones(passes.shape, bool)
    first[:, 1:] = passes[:, 1:] != passes[:, :-1]
    first &= passes >= 0
    rows, columns = np.nonzero(first)
    banks = passes[rows, columns] % BANKS
    load = np.bincount(rows * BANKS + banks, minlength=passes.shape[0] * BANKS)
    wavefronts = load.reshape(-1, BANKS).max(axis=1)
    counts.shared_requests += _warps(lanes, warps)
    counts.shared_wavefronts += int(wavefronts.sum())
    counts.shared_least += int(np.count_nonzero(wavefronts))


def count_atomics(counts: Counts, lanes: Array, offsets: Array, warps: int) -> None:
    counts.atomics += len(lanes)
    counts.atomic_collisions += len(lanes) - int(_distinct(lanes, offsets, warps).sum())


def _distinct(lanes: Array, values: Array, warps: int) -> Array:
    """Number of distinct values (>= 0) in every warp."""
    rows = np.full(warps * WARP, -1, np.int64)
    rows[lanes] = values
    ordered = np.sort(rows.reshape(warps, WARP), axis=1)
    changes = np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1)
    return changes + 1 - (ordered[:, 0] < 0)


def _warps(lanes: Array, warps: int) -> int:
    seen = np.zeros(warps, bool)
    seen[lanes // WARP] = True
    return int(np.count_nonzero(seen))
