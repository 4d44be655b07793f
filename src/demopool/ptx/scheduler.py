"""Decide which lanes run next: the lowest instruction first, until all lanes have left.

Lanes at the same instruction form a group. The group at the lowest instruction runs until it meets
another group (they merge), splits at a branch, waits at a barrier or leaves. Running the lowest
group first lets divergent branches reconverge as early as possible. A group that keeps polling
memory yields to the next higher group, and to blocks at a barrier, because it may be waiting for
them.

Blocks of a cooperative launch begin one part of them after the other, each when the blocks before
it poll or have nothing left to do: a block that does not wait for the others is then seen to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .counting import WARP
from .decode import Kind, Step
from .faults import FaultKind, UnknownInstruction

if TYPE_CHECKING:
    from .frames import Frame
    from .machine import Launch, Wave

Array = Any

POLLS = 100
"""Volatile or atomic reads by one group after which it yields to another."""

BEGINNINGS = 4
"""Parts of the blocks of a cooperative launch, of which the first is one block alone."""


class Scheduler:
    """Runs the lanes of one function call to its end."""

    def __init__(self, wave: Wave, frame: Frame, launch: Launch, *, is_kernel: bool) -> None:
        self._wave, self._frame, self._launch = wave, frame, launch
        self._steps = frame.decoded.steps
        self._is_kernel = is_kernel
        self._groups: dict[int, Array] = {}
        self._waiting: dict[int, Array] = {}
        self._parked: dict[int, Array] = {}
        self._later: list[Array] = []
        self._after = -1

    def run(self, mask: Array) -> None:
        if self._is_kernel and self._launch.cooperative and self._launch.check_races:
            mask, *self._later = self._wave.parts_of_blocks(BEGINNINGS)
        self._groups = {0: mask}
        while True:
            if self._after >= 0:
                self._let_others_on()
            if self._groups:
                at = self._next()
                self._run_group(at, self._groups.pop(at))
            elif self._parked:
                self._wake()
            elif self._waiting:
                self._release()
            elif self._later:
                self._push(0, self._later.pop(0))
            else:
                return

    def _next(self) -> int:
        """The lowest group; after a group that polled, the next higher one."""
        after, self._after = self._after, -1
        return min((at for at in self._groups if at > after), default=min(self._groups))

    def _limit(self, at: int) -> int:
        """Where a group at an instruction meets the next group."""
        return min((other for other in self._groups if other >= at), default=len(self._steps) + 1)

    def _run_group(self, at: int, mask: Array) -> None:
        """Run a group from an instruction until it meets another one, splits, waits or leaves."""
        wave, frame, launch = self._wave, self._frame, self._launch
        counts, steps = launch.counts, self._steps
        limit, polls = self._limit(at), 0
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
            if launch.steps > launch.max_steps:
                what = f"more than {launch.max_steps} steps"
                raise wave.fault(FaultKind.RUNAWAY, what, step.place, mask)
            launch.executed.add(step.place.line)
            self._check_registers(step, step.deciders, mask)
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
            self._check_registers(step, step.uses, mine)
            if step.kind is Kind.PLAIN:
                unknown = self._unknown(step, mine)
                step.run(frame, mine)  # type: ignore[misc]  # a plain step always has ``run``
                if unknown is not None:
                    frame.forget(step.targets, unknown)
                self._count_arithmetic(step, count)
                at += 1
                polls += step.polls
                if polls > POLLS or (polls and self._later):
                    self._after = at
                    break
                continue
            if step.kind is Kind.BRANCH and count == lanes:
                at = step.target
                limit = self._limit(at)
                continue
            self._turn(step, at, mask, mine, count == lanes)
            return
        self._push(at, mask)

    def _check_registers(self, step: Step, registers: tuple[int, ...], mask: Array) -> None:
        """Undefined values must not be stored, used as an address, or decide a branch."""
        unknown = self._frame.never_written(registers, mask)
        if unknown is not None:
            what = "it depends on a register never written, or on a lane that took no part"
            raise self._wave.fault(FaultKind.UNINITIALISED, what, step.place, unknown)

    def _unknown(self, step: Step, mask: Array) -> Array | None:
        """Lanes in which the result of a step is undefined; None if there is none."""
        unknown = self._frame.never_written(step.sources, mask)
        if step.choice is None:
            return unknown
        truth = step.choice(self._frame)
        for registers, chosen in zip(step.choices, (truth, ~truth), strict=True):
            found = self._frame.never_written(registers, self._wave.mask_of(mask) & chosen)
            unknown = unknown if found is None else found | (False if unknown is None else unknown)
        return unknown

    def _turn(self, step: Step, at: int, mask: Array, mine: Array, all_of_them: bool) -> None:
        """End a group: the lanes of ``mine`` take the step, the others continue after it."""
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
                    f"Barriers in functions that were not inlined are not supported: {step.place}."
                )
            self._waiting[at] = _union(self._waiting.get(at, False), mine)
        else:
            self._warp_step(step, at, mine)

    def _warp_step(self, step: Step, at: int, mine: Array) -> None:
        """Run the lanes whose warp is complete; the others wait for the lanes in their mask."""
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
        """Lanes whose mask names only lanes that are here (None: all lanes)."""
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
            what = _absent(step, "has left or was never there")
            raise wave.missing(step.place, np.nonzero(never)[0][:1], what)
        ready = here & ((named & ~present) == 0)
        return mine if bool((ready == here).all()) else ready

    def _wake(self) -> None:
        """Resume a warp that is complete by now; if there is none, all lanes are stuck."""
        for at in list(self._parked):
            mask = self._parked[at]
            ready = self._wave.mask_of(self._complete(self._steps[at], mask))
            if ready.any():
                self._push(at, self._parked.pop(at))
                return
        at, mask = next(iter(self._parked.items()))
        what = _absent(self._steps[at], "never comes here")
        raise self._wave.missing(self._steps[at].place, self._wave.active(mask)[:1], what)

    def _let_others_on(self) -> None:
        """A group polls: what it waits for may not have begun, or be behind a barrier."""
        if self._later:
            self._push(0, self._later.pop(0))
            self._after = -1  # the lowest group
        waiting = self._waiting
        complete = {at: self._wave.in_complete_blocks(mask) for at, mask in waiting.items()}
        self._waiting = {at: complete[at] for at in waiting if complete[at].any()}
        self._release()
        left = {at: self._wave.mask_of(waiting[at]) & ~complete[at] for at in waiting}
        self._waiting = {at: mask for at, mask in left.items() if mask.any()}

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


def _absent(step: Step, how: str) -> str:
    if step.aligned:
        return f"all threads of the warp must come here together, and one {how}: it"
    return f"its mask names a thread that {how}: it"


def _union(one: Array, other: Array) -> Array:
    """The union of two masks; False is the empty mask, None means all lanes."""
    if one is False:
        return other
    if one is None or other is None:
        return None
    return one | other
