"""Run a *wave* of blocks at once: every thread of every block is a lane of NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import memory as space
from .copies import Copies
from .counting import WARP, Counts
from .faults import Fault, FaultKind, Index, Place, UnknownInstruction
from .frames import Frame, Functions
from .memory import (
    ARRAY_START,
    BARRIER,
    FENCE,
    LOCAL_SLOT,
    PARAM_SLOT,
    SHARED_SLOT,
    SHARED_START,
    WARP_BARRIER,
    Arena,
    Memory,
    Shadow,
    Wrong,
)
from .scheduler import Scheduler
from .syntax import Function, Program, Variable

Array = Any

_AXES = ("x", "y", "z")


@dataclass
class Layout:
    """Offsets and sizes of a kernel's variables, the same for every block."""

    shared: dict[str, int]
    shared_bytes: int
    local: dict[str, int]
    local_bytes: int
    shared_granule: int = 4
    local_granule: int = 4


def layout(program: Program, function: Function, dynamic: int, granule: int) -> Layout:
    """Place the static variables one after the other, then the dynamic one."""
    shared, size = _placed([*program.shared, *function.shared])
    if program.dynamic_shared:
        size = -(-size // 16) * 16
        shared |= dict.fromkeys(program.dynamic_shared, size)
    called = [f for f in program.functions.values() if not f.is_entry]
    local, local_size = _placed([*function.local, *(v for f in called for v in f.local)])
    return Layout(shared, size + dynamic, local, local_size, granule, granule)


def _placed(variables: list[Variable]) -> tuple[dict[str, int], int]:
    offsets, size = {}, 0
    for variable in variables:
        size = -(-size // variable.align) * variable.align
        offsets[variable.name] = size
        size += variable.size
    return offsets, size


@dataclass
class Launch:
    """What all waves of a launch share."""

    functions: Functions
    kernel: str
    grid: Index
    block: Index
    layout: Layout
    arena: Arena
    symbols: dict[str, int]
    parameter_bytes: bytes
    parameter_offsets: dict[str, int]
    dynamic_shared: int
    cooperative: bool
    counting: bool
    check_races: bool
    triton: bool
    max_steps: int
    counts: Counts = field(default_factory=Counts)
    executed: set[int] = field(default_factory=set)
    steps: int = 0


class Wave:
    """Some blocks of a launch, which run together."""

    def __init__(self, launch: Launch, blocks: list[Index]) -> None:
        self._launch = launch
        self.blocks = blocks
        self.counts, self.counting = launch.counts, launch.counting
        self.triton = launch.triton
        threads = int(np.prod(launch.block))
        padded = -(-threads // WARP) * WARP
        self.lanes = padded * len(blocks)
        self.warps = self.lanes // WARP
        lane = np.arange(self.lanes)
        self._thread = lane % padded
        self.block_of = lane // padded
        self.exists = self._thread < threads
        self._everyone = None if threads == padded else self.exists
        self._all_lanes = np.nonzero(self.exists)[0]
        self._left = np.zeros(self.lanes, bool)
        grid = launch.grid
        self._linear = np.array([x + grid[0] * (y + grid[1] * z) for x, y, z in blocks], np.int64)
        self.who = (self._linear[self.block_of] << 10) | self._thread
        self.when = np.full(self.lanes, BARRIER, np.int64)
        self._specials: dict[str, Array] = {}
        self.parameter_bytes = launch.parameter_bytes
        self.parameter_offsets = launch.parameter_offsets
        self._lay_out_memory(launch)

    def _lay_out_memory(self, launch: Launch) -> None:
        plan = launch.layout
        self.shared_stride = -(-max(plan.shared_bytes, 1) // 16) * 16
        self.local_stride = -(-max(plan.local_bytes, 1) // 16) * 16
        order = launch.arena.order

        def private(name: str, size: int, stride: int, copies: int, granule: int) -> Memory:
            total = stride * copies if size else 16
            return Memory(
                name,
                space.reserve(total, np.uint8),
                size,
                initialised=False,
                granule=granule,
                shadow=Shadow(total // granule, order) if launch.check_races else None,
            )

        self.shared = private(
            "shared memory",
            plan.shared_bytes,
            self.shared_stride,
            len(self.blocks),
            plan.shared_granule,
        )
        self.copies = Copies(self.lanes, self.shared.data.nbytes)
        self.local = private(
            "local memory", plan.local_bytes, self.local_stride, self.lanes, plan.local_granule
        )
        self._parameters = Memory(
            "parameters",
            np.frombuffer(launch.parameter_bytes or b"\0", np.uint8),
            len(launch.parameter_bytes),
            read_only=True,
        )

    # --- called by instructions ---

    def symbol(self, name: str) -> int:
        """The address of a variable in its own memory space."""
        plan = self._launch.layout
        if name in plan.shared:
            return SHARED_START + plan.shared[name]
        if name in plan.local:
            return SHARED_START + plan.local[name]
        if name in self._launch.symbols:
            return self._launch.symbols[name]
        if name in self.parameter_offsets:
            return (PARAM_SLOT << space.SLOT_BITS) + self.parameter_offsets[name]
        raise UnknownInstruction(f"The PTX declares no variable or parameter {name}.")

    def special(self, name: str) -> Array:
        if name not in self._specials:
            self._specials[name] = self._make_special(name)
        return self._specials[name]

    def _make_special(self, name: str) -> Array:
        launch = self._launch
        base, _, axis = name[1:].partition(".")
        block = launch.block
        if base == "tid":
            x, y, z = (
                self._thread % block[0],
                self._thread // block[0] % block[1],
                self._thread // (block[0] * block[1]),
            )
            return {"x": x, "y": y, "z": z}[axis].astype(np.uint32)
        if base == "ctaid":
            index = np.array([b[_AXES.index(axis)] for b in self.blocks], np.uint32)
            return np.uint32(index[0]) if len(index) == 1 else index[self.block_of]
        if axis:
            return np.uint32({"ntid": block, "nctaid": launch.grid}[base][_AXES.index(axis)])
        lane = self._thread % WARP
        if base.startswith("lanemask"):
            return _lane_mask(base.removeprefix("lanemask_"), lane)
        values = {
            "laneid": lane.astype(np.uint32),
            "warpid": (self._thread // WARP).astype(np.uint32),
            "nwarpid": np.uint32(-(-int(np.prod(block)) // WARP)),
            "dynamic_smem_size": np.uint32(launch.dynamic_shared),
            "total_smem_size": np.uint32(launch.layout.shared_bytes),
        }
        return values.get(base, np.uint64(0))  # clocks and processor numbers do not exist here

    def behind(self, slot: int, *, generic: bool) -> tuple[Memory | None, int]:
        """The memory of a slot, and its start within the slot; None if the slot is empty."""
        if 0 < slot <= len(self._launch.arena.memories):
            return self._launch.arena.memories[slot - 1], ARRAY_START
        if generic and slot == SHARED_SLOT:
            return self.shared, SHARED_START
        if generic and slot == LOCAL_SLOT:
            return self.local, SHARED_START
        if generic and slot == PARAM_SLOT:
            return self._parameters, 0
        return None, 0

    def active(self, mask: Array) -> Array:
        return self._all_lanes if mask is None else np.nonzero(mask)[0]

    def mask_of(self, mask: Array) -> Array:
        return self.exists if mask is None else mask

    def warp_count(self, lanes: Array) -> int:
        seen = np.zeros(self.warps, bool)
        seen[lanes // WARP] = True
        return int(np.count_nonzero(seen))

    def fence(self, mask: Array) -> None:
        """Order later accesses by other blocks after all accesses by these threads' blocks."""
        blocks = np.unique(self.block_of[self.active(mask)])
        self._launch.arena.order.fence(self._linear[blocks])
        self.when = np.where(np.isin(self.block_of, blocks), self.when + FENCE, self.when)

    def exchange(self, memory: Memory, words: Array, lanes: Array, how: str) -> None:
        """Lanes access words of global memory in a way that other blocks may wait for."""
        blocks = self._linear[self.block_of[lanes]]
        of, reads, writes = id(memory), how != "store", how != "load"
        self._launch.arena.order.exchange(words, blocks, of, reads=reads, writes=writes)

    def parts_of_blocks(self, count: int) -> list[Array]:
        """Masks of lanes: the first block, and up to so many parts less one of the others."""
        first, others = np.split(np.arange(len(self.blocks)), [1])
        parts = [first, *np.array_split(others, min(count - 1, len(others)) or 1)]
        return [np.isin(self.block_of, part) & self.exists for part in parts if part.size]

    def order_warps(self, mask: Array) -> None:
        """Order later accesses by these lanes after all earlier ones by lanes of their warp."""
        through = self.mask_of(mask)
        # Parts of a warp may have passed more warp barriers than others: take the maximum.
        latest = np.where(through, self.when, 0).reshape(-1, WARP).max(axis=1)
        self.when = np.where(through, np.repeat(latest, WARP) + WARP_BARRIER, self.when)

    def fault(
        self,
        kind: FaultKind,
        what: str,
        place: Place,
        mask: Array = None,
        *,
        lanes: Array | None = None,
        **details: Any,
    ) -> Fault:
        lane = int((self.active(mask) if lanes is None else lanes)[0])
        x, y = self._launch.block[:2]
        thread = int(self._thread[lane])
        index = (thread % x, thread // x % y, thread // (x * y))
        return Fault(kind, what, place, self.blocks[int(self.block_of[lane])], index, **details)

    def fault_of(self, wrong: Wrong, place: Place, memory: str) -> Fault:
        lanes = np.array([wrong.lane])
        return self.fault(
            wrong.kind, wrong.what, place, lanes=lanes, memory=memory, address=wrong.address
        )

    def missing(self, place: Place, lanes: Array, what: str) -> Fault:
        return self.fault(
            FaultKind.MISSING_THREAD, f"{what} does not take part", place, lanes=lanes
        )

    def call(
        self,
        name: str,
        caller: Frame,
        arguments: tuple[str, ...],
        results: tuple[str, ...],
        mask: Array,
        place: Place,
    ) -> None:
        """Run a function that was not inlined to its end, for the lanes of a mask."""
        if name not in self._launch.functions:
            raise UnknownInstruction(f"The PTX does not define the function {name} ({place}).")
        decoded = self._launch.functions[name]
        frame = Frame(self, decoded)
        for given, wanted in zip(arguments, decoded.function.params, strict=True):
            for (known, offset), value in list(caller.parameters.items()):
                if known == given:
                    frame.parameters[wanted.name, offset] = value
        Scheduler(self, frame, self._launch, is_kernel=False).run(mask)
        for result, returned in zip(results, decoded.function.returns, strict=True):
            for (known, offset), value in frame.parameters.items():
                if known == returned.name:
                    caller.pass_on(result, offset, value, mask)

    # --- running ---

    def run(self) -> None:
        frame = Frame(self, self._launch.functions[self._launch.kernel])
        with np.errstate(all="ignore"):
            Scheduler(self, frame, self._launch, is_kernel=True).run(self._everyone)

    @property
    def gone(self) -> Array:
        """Lanes without a running thread: padding, or threads that have left the kernel."""
        return self._left | ~self.exists

    def leave(self, mask: Array) -> None:
        self._left |= self.mask_of(mask)

    def in_complete_blocks(self, mask: Array) -> Array:
        """The lanes of blocks of which all threads are in a mask."""
        inside = self.mask_of(mask).reshape(len(self.blocks), -1)
        complete = (inside == self.exists.reshape(len(self.blocks), -1)).all(axis=1)
        return complete[self.block_of] & self.exists

    def pass_barrier(self, place: Place, mask: Array) -> None:
        """Release the blocks in which every thread waits; any other block here is stuck."""
        waiting = self.mask_of(mask).reshape(len(self.blocks), -1)
        exists = self.exists.reshape(len(self.blocks), -1)
        there = waiting.any(axis=1)
        stuck = there & (waiting != exists).any(axis=1)
        if stuck.any():
            block = int(np.argmax(stuck))
            row = np.arange(self.lanes).reshape(len(self.blocks), -1)[block]
            absent = row[exists[block] & ~waiting[block]]
            how = "has left the kernel" if self._left[absent[0]] else "waits elsewhere"
            raise self.fault(
                FaultKind.DIVERGENT_BARRIER,
                f"{len(absent)} threads of the block do not come to this barrier: this one {how}",
                place,
                lanes=absent[:1],
            )
        self.counts.barriers += int(np.count_nonzero(there))
        through = self.mask_of(mask)
        barriers = (self.when >> 40) + 1
        self.when = np.where(through, (barriers << 40) | (self.when & (BARRIER - 1)), self.when)


def _lane_mask(which: str, lane: Array) -> Array:
    bit = np.left_shift(np.uint64(1), lane.astype(np.uint64))
    below = bit - np.uint64(1)
    masks = {
        "eq": bit,
        "lt": below,
        "le": below | bit,
        "gt": ~(below | bit),
        "ge": ~below,
    }
    return (masks[which] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
