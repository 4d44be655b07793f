"""Limits of architectures, figures of devices, occupancy and lower bounds on the time.

Figures are from data sheets and the CUDA C programming guide. A bound is a lower bound: no launch
on that device can be faster. It is not a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

from .counting import Counts

KIB = 1024


@dataclass(frozen=True)
class Limits:
    """Resources of a multiprocessor, and the maximum that one block may use."""

    arch: str
    warps: int
    blocks: int
    shared_per_block: int
    shared_per_processor: int
    reserved_shared: int
    shared_unit: int = 128
    registers: int = 65536
    registers_per_thread: int = 255


LIMITS = {
    limits.arch: limits
    for limits in (
        Limits("sm_75", 32, 16, 64 * KIB, 64 * KIB, 0, 256),
        Limits("sm_80", 64, 32, 163 * KIB, 164 * KIB, KIB),
        Limits("sm_90", 64, 32, 227 * KIB, 228 * KIB, KIB),
        Limits("sm_100", 64, 32, 227 * KIB, 228 * KIB, KIB),
        Limits("sm_120", 48, 24, 99 * KIB, 100 * KIB, KIB),
    )
}
ARCHITECTURES = tuple(LIMITS)


@dataclass(frozen=True)
class Resources:
    """Resources that the assembler allocated for a kernel."""

    registers: int
    shared_bytes: int
    spilled_bytes: int
    stack_bytes: int


@dataclass(frozen=True)
class Occupancy:
    """Warps that fit on a multiprocessor, the architecture's maximum, and the limiting resource."""

    warps: int
    most: int
    limited_by: str

    @property
    def share(self) -> float:
        return self.warps / self.most


def occupancy(resources: Resources, threads: int, dynamic_shared: int, arch: str) -> Occupancy:
    """Theoretical occupancy of a multiprocessor by blocks of ``threads`` threads."""
    limits = LIMITS[arch]
    warps = -(-threads // 32)
    # The rule of NVIDIA's cuda_occupancy.h: a warp's registers are allocated in units of 256, and
    # each of the four partitions of a multiprocessor has a quarter of the registers.
    per_warp = -(-max(resources.registers, 1) * 32 // 256) * 256
    by_registers = limits.registers // 4 // per_warp * 4
    shared = resources.shared_bytes + dynamic_shared + limits.reserved_shared
    shared = -(-shared // limits.shared_unit) * limits.shared_unit
    fits = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": by_registers // warps,
        "shared memory": limits.shared_per_processor // shared if shared else limits.blocks,
    }
    by = min(fits, key=lambda name: fits[name])
    return Occupancy(fits[by] * warps, limits.warps, by)


@dataclass(frozen=True)
class Device:
    """Figures from a data sheet; rates are per second, of tensor cores the highest for mma.

    ``clock`` is the highest one. The highest rate for mma is that of float16 without
    sparsity; TF32 has half of it or less.
    """

    name: str
    arch: str
    flops: float
    double_flops: float
    bytes: float
    l2_bytes: int
    processors: int
    tensor_flops: float
    clock: float


DEVICES = (
    Device("T4", "sm_75", 8.1e12, 0.25e12, 0.32e12, 4 << 20, 40, 65e12, 1.59e9),
    Device("A100", "sm_80", 19.5e12, 9.7e12, 1.555e12, 40 << 20, 108, 312e12, 1.41e9),
    Device("RTX 4090", "sm_89", 82.6e12, 1.29e12, 1.008e12, 72 << 20, 128, 330e12, 2.52e9),
    Device("H100", "sm_90", 66.9e12, 33.5e12, 3.35e12, 50 << 20, 132, 989e12, 1.98e9),
)


@dataclass(frozen=True)
class Bound:
    """The minimum time a device needs for the counted work, and what limits it."""

    seconds: float
    limited_by: str


def bound(counts: Counts, device: Device) -> Bound:
    """Roofline bound: peak arithmetic against the bytes that the kernel moves in global memory.

    It assumes that all those bytes come from DRAM and ignores what the caches save; a bound from
    reading the ``useful_bytes`` of each array once would include that.
    """
    times = {
        "arithmetic": counts.flops / device.flops + counts.double_flops / device.double_flops,
        "tensor cores": counts.tensor_flops / device.tensor_flops,
        "memory": counts.global_bytes / device.bytes,
    }
    by = max(times, key=lambda name: times[name])
    return Bound(times[by], by)
