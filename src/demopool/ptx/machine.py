"""Running blocks: a *wave* of them at once, every thread of every block a lane of NumPy arrays.

Lanes that stand at the same instruction form a group. The group with the lowest instruction runs,
until it meets another one (they merge), splits at a branch, waits at a barrier or leaves. Running
the lowest first makes divergent branches come together again as early as they can.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import memory as space
from .counting import WARP, Counts
from .decode import Decoder, Kind, Step
from .faults import Fault, FaultKind, Index, Place, UnknownInstruction
from .memory import (
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
from .syntax import BITS, Function, Program, Variable

Array = Any

# What a register holds before it is written: nobody should rely on it, and it is easy to see.
_POISON = {1: 0xA5, 2: 0xA5A5, 4: 0xDEADBEEF, 8: 0xDEADBEEFDEADBEEF}

_AXES = ("x", "y", "z")
SPECIAL = {
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in _AXES),
    *("%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size"),
    *(f"%lanemask_{which}" for which in ("eq", "lt", "le", "gt", "ge")),
    *("%clock", "%clock64", "%smid", "%nsmid", "%gridid"),
}
"""Special registers that can be read."""


@dataclass
class Decoded:
    """A function ready to run."""

    function: Function
    steps: list[Step]
    register_bytes: list[int]  # 0 for predicates


def decode(program: Program) -> dict[str, Decoded]:
    """All functions of a program; an instruction nobody knows is an error here."""
    found = {}
    for name, function in program.functions.items():
        sizes = [0 if kind == "pred" else BITS[kind] // 8 for kind in function.registers.values()]
        found[name] = Decoded(function, Decoder(function).steps(), sizes)
    return found


class Frame:
    """Registers and parameters of one call."""

    def __init__(self, wave: Wave, decoded: Decoded) -> None:
        self.wave = wave
        self.decoded = decoded
        self.registers: list[Array] = [
            np.asarray(False) if not size else np.array(_POISON[size], space.UNSIGNED[size])
            for size in decoded.register_bytes
        ]
        self.parameters: dict[tuple[str, int], Array] = {}
        self.carry: Array = np.asarray(False)

    def set(self, index: int, value: Array, mask: Array) -> None:
        self.registers[index] = (
            value if mask is None else np.where(mask, value, self.registers[index])
        )

    def parameter(self, name: str, offset: int, width: int) -> Array:
        """A parameter of the kernel, or one that a call passed."""
        if (name, offset) in self.parameters:
            return np.asarray(self.parameters[name, offset]).astype(space.UNSIGNED[width])
        start = self.wave.parameter_offsets[name] + offset
        return np.frombuffer(self.wave.parameter_bytes, space.UNSIGNED[width], 1, start)[0]


@dataclass
class Layout:
    """Where the variables of a kernel are: the same for every block."""

    shared: dict[str, int]
    shared_bytes: int
    local: dict[str, int]
    local_bytes: int
    shared_granule: int = 4
    local_granule: int = 4


def layout(program: Program, function: Function, dynamic: int, granule: int) -> Layout:
    """Static variables one after the other, then the dynamic one."""
    shared, size = _placed([*program.shared, *function.shared])
    if program.dynamic_shared is not None:
        size = -(-size // 16) * 16
        shared[program.dynamic_shared.name] = size
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
    """What all waves of a launch have in common."""

    decoded: dict[str, Decoded]
    kernel: str
    grid: Index
    block: Index
    layout: Layout
    arena: Arena
    symbols: dict[str, int]
    parameter_bytes: bytes
    parameter_offsets: dict[str, int]
    dynamic_shared: int
    counting: bool
    check_races: bool
    most_steps: int
    counts: Counts = field(default_factory=Counts)
    steps: int = 0


class Wave:
    """Some blocks of a launch, run together."""

    def __init__(self, launch: Launch, blocks: list[Index]) -> None:
        self._launch = launch
        self.blocks = blocks
        self.counts, self.counting = launch.counts, launch.counting
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
        fences = launch.arena.fences

        def private(name: str, size: int, stride: int, copies: int, granule: int) -> Memory:
            total = stride * copies if size else 16
            return Memory(
                name,
                space.reserve(total, np.uint8),
                size,
                initialised=False,
                granule=granule,
                shadow=Shadow(total // granule, fences) if launch.check_races else None,
            )

        self.shared = private(
            "shared memory",
            plan.shared_bytes,
            self.shared_stride,
            len(self.blocks),
            plan.shared_granule,
        )
        self.local = private(
            "local memory", plan.local_bytes, self.local_stride, self.lanes, plan.local_granule
        )
        self._parameters = Memory(
            "parameters",
            np.frombuffer(launch.parameter_bytes or b"\0", np.uint8),
            len(launch.parameter_bytes),
            read_only=True,
        )

    # --- what instructions ask for ---

    def symbol(self, name: str) -> int:
        """The address of a variable, in its own space."""
        plan = self._launch.layout
        if name in plan.shared:
            return SHARED_START + plan.shared[name]
        if name in plan.local:
            return SHARED_START + plan.local[name]
        if name in self._launch.symbols:
            return self._launch.symbols[name]
        if name in self.parameter_offsets:
            return (PARAM_SLOT << space.SLOT_BITS) + self.parameter_offsets[name]
        raise UnknownInstruction(f"Nothing is called {name} here.")

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
        return values.get(base, np.uint64(0))  # clocks and numbers of processors: nothing to tell

    def behind(self, slot: int, *, generic: bool) -> tuple[Memory | None, int]:
        """The memory of a slot, and where it starts in it."""
        if 0 < slot <= len(self._launch.arena.memories):
            return self._launch.arena.memories[slot - 1], 0
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
        """Later accesses of other blocks come after what these threads' blocks have done."""
        blocks = np.unique(self.block_of[self.active(mask)])
        self._launch.arena.fences[self._linear[blocks]] += 1
        self.when = np.where(np.isin(self.block_of, blocks), self.when + FENCE, self.when)

    def order_warps(self, mask: Array) -> None:
        self.when = np.where(self.mask_of(mask), self.when + WARP_BARRIER, self.when)

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
        """Run a function that was not inlined, for the lanes of a mask, to its end."""
        decoded = self._launch.decoded.get(name)
        if decoded is None:
            raise UnknownInstruction(f"The function {name} is not in this PTX ({place}).")
        frame = Frame(self, decoded)
        for given, wanted in zip(arguments, decoded.function.params, strict=True):
            for (known, offset), value in list(caller.parameters.items()):
                if known == given:
                    frame.parameters[wanted.name, offset] = value
        _Scheduler(self, frame, self._launch, is_kernel=False).run(mask)
        for result, returned in zip(results, decoded.function.returns, strict=True):
            for (known, offset), value in frame.parameters.items():
                if known == returned.name:
                    caller.parameters[result, offset] = value

    # --- running ---

    def run(self) -> None:
        frame = Frame(self, self._launch.decoded[self._launch.kernel])
        with np.errstate(all="ignore"):
            _Scheduler(self, frame, self._launch, is_kernel=True).run(self._everyone)

    @property
    def gone(self) -> Array:
        """Lanes that are no threads (any more)."""
        return self._left | ~self.exists

    def leave(self, mask: Array) -> None:
        self._left |= self.mask_of(mask)

    def pass_barrier(self, place: Place, mask: Array) -> None:
        """Blocks of which every thread waits go on. Any other block is stuck."""
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


class _Scheduler:
    """Takes the lanes of one call of one function to its end."""

    def __init__(self, wave: Wave, frame: Frame, launch: Launch, *, is_kernel: bool) -> None:
        self._wave, self._frame, self._launch = wave, frame, launch
        self._steps = frame.decoded.steps
        self._is_kernel = is_kernel
        self._groups: dict[int, Array] = {}
        self._waiting: dict[int, Array] = {}
        self._parked: dict[int, Array] = {}

    def run(self, mask: Array) -> None:
        self._groups = {0: mask}
        while True:
            if self._groups:
                at = min(self._groups)
                self._run_group(at, self._groups.pop(at))
            elif self._parked:
                self._wake()
            elif self._waiting:
                self._release()
            else:
                return

    def _run_group(self, at: int, mask: Array) -> None:
        """From an instruction on, until the group meets another one, splits, waits or leaves."""
        wave, frame, launch = self._wave, self._frame, self._launch
        counts, steps = launch.counts, self._steps
        limit = min(self._groups, default=len(steps) + 1)
        active = wave.active(mask)
        lanes, warps = len(active), wave.warp_count(active)
        if lanes == wave.lanes:
            mask = None
        while at < limit:
            if at >= len(steps):
                self._leave(mask)
                return
            step = steps[at]
            launch.steps += 1
            if launch.steps > launch.most_steps:
                what = f"more than {launch.most_steps} steps"
                raise wave.fault(FaultKind.RUNAWAY, what, step.place, mask)
            counts.instructions += warps
            counts.thread_instructions += lanes
            mine, count = mask, lanes
            if step.guard is not None:
                truth = step.guard(frame)
                if truth.ndim == 0:
                    count = lanes if truth else 0
                else:
                    mine = truth & wave.mask_of(mask)
                    count = int(np.count_nonzero(mine))
                    mine = mask if count == lanes else mine
            if count == 0:
                at += 1
                continue
            if step.kind is Kind.PLAIN:
                step.run(frame, mine)  # type: ignore[misc]  # a plain step has something to run
                self._count_arithmetic(step, count)
                at += 1
                continue
            if step.kind is Kind.BRANCH and count == lanes:
                at = step.target
                continue
            self._turn(step, at, mask, mine, count == lanes)
            return
        self._push(at, mask)

    def _turn(self, step: Step, at: int, mask: Array, mine: Array, all_of_them: bool) -> None:
        """What ends a group: the lanes of ``mine`` do something else than the others."""
        if not all_of_them:
            others = self._wave.mask_of(mask) & ~mine
            self._push(at + 1, others)
        if step.kind is Kind.BRANCH:
            self._wave.counts.divergent_branches += self._split_warps(mine, mask)
            self._push(step.target, mine)
        elif step.kind is Kind.LEAVE:
            self._leave(mine)
        elif step.kind is Kind.BARRIER:
            if not self._is_kernel:
                raise UnknownInstruction(
                    f"Barriers in functions that were not inlined are not known here: {step.place}."
                )
            self._waiting[at] = _union(self._waiting.get(at, False), mine)
        else:
            self._warp_step(step, at, mine)

    def _warp_step(self, step: Step, at: int, mine: Array) -> None:
        """Lanes whose warp is complete go on; the others wait for those they name."""
        mine = _union(self._parked.pop(at, False), mine)
        ready = self._complete(step, mine)
        if ready is None or ready.any():
            assert step.run is not None
            step.run(self._frame, ready)
            self._push(at + 1, ready)
        if ready is not None and not ready.all():
            rest = self._wave.mask_of(mine) & ~ready
            if rest.any():
                self._parked[at] = rest

    def _complete(self, step: Step, mine: Array) -> Array:
        """Lanes of which all the lanes they name are here (None: all lanes)."""
        wave = self._wave
        assert step.members is not None
        named = np.broadcast_to(step.members(self._frame), (wave.lanes,))
        here = wave.mask_of(mine)
        weights = np.left_shift(np.uint32(1), np.arange(WARP, dtype=np.uint32))
        present = np.repeat((here.reshape(-1, WARP) * weights).sum(axis=1, dtype=np.uint32), WARP)
        own = np.tile(weights, wave.warps)
        stranger = here & ((named & own) == 0)
        if stranger.any():
            raise wave.missing(step.place, np.nonzero(stranger)[0][:1], "its own mask says it")
        gone = wave.gone
        left = np.repeat((gone.reshape(-1, WARP) * weights).sum(axis=1, dtype=np.uint32), WARP)
        never = here & ((named & left) != 0)
        if never.any():
            what = "its mask names a thread that has left or was never there: it"
            raise wave.missing(step.place, np.nonzero(never)[0][:1], what)
        ready = here & ((named & ~present) == 0)
        return mine if bool((ready == here).all()) else ready

    def _wake(self) -> None:
        """Everybody else waits: warps that are complete by now go on, any other is stuck."""
        for at in list(self._parked):
            mask = self._parked[at]
            ready = self._wave.mask_of(self._complete(self._steps[at], mask))
            if ready.any():
                self._push(at, self._parked.pop(at))
                return
        at, mask = next(iter(self._parked.items()))
        what = "its mask names a thread that never comes here: it"
        raise self._wave.missing(self._steps[at].place, self._wave.active(mask)[:1], what)

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for at, mask in waiting.items():
            step = self._steps[at]
            self._wave.pass_barrier(step.place, mask)
            if step.run is not None:
                step.run(self._frame, mask)
            self._push(at + 1, mask)

    def _leave(self, mask: Array) -> None:
        if self._is_kernel:
            self._wave.leave(mask)

    def _push(self, at: int, mask: Array) -> None:
        self._groups[at] = _union(self._groups.get(at, False), mask)

    def _split_warps(self, mine: Array, mask: Array) -> int:
        """Warps in which some lanes branch and some do not."""
        taken = mine.reshape(-1, WARP)
        stays = (self._wave.mask_of(mask) & ~mine).reshape(-1, WARP)
        return int(np.count_nonzero(taken.any(axis=1) & stays.any(axis=1)))

    def _count_arithmetic(self, step: Step, lanes: int) -> None:
        if step.flops:
            if step.is_double:
                self._launch.counts.double_flops += step.flops * lanes
            else:
                self._launch.counts.flops += step.flops * lanes
        if step.special:
            self._launch.counts.special += step.special * lanes


def _union(one: Array, other: Array) -> Array:
    """Of masks; False is the empty one, None everybody."""
    if one is False:
        return other
    if one is None or other is None:
        return None
    return one | other


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
