"""Branches, barriers, fences and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..decode import Decoder, Kind, Step
from ..faults import FaultKind, Place, UnknownInstruction
from ..syntax import Immediate, Instruction, Symbol, Vector
from . import warps
from .building import Builder, only

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any


def _branch(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "uni")
    target = ins.operands[0]
    assert isinstance(target, Symbol)
    return Step(place, Kind.BRANCH, target=decoder.function.labels[target.name])


def _leave(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "uni")
    if ins.op == "ret" or decoder.function.is_entry:
        return Step(place, Kind.LEAVE)

    def run(frame: Frame, mask: Array) -> None:
        # Rejected only when it runs, because compilers put an exit after every trap.
        raise UnknownInstruction(f"exit inside a called function is not supported ({place}).")

    return Step(place, Kind.PLAIN, run)


def _barrier(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    if "warp" in ins.modifiers:
        return warps.warp_barrier(decoder, ins, place)
    if "red" in ins.modifiers:
        return warps.barrier_vote(decoder, ins, place)
    only(ins, "sync", "cta", "aligned")
    identity = ins.operands[0] if ins.operands else Immediate(0)
    if len(ins.operands) > 1 or "sync" not in ins.modifiers or not isinstance(identity, Immediate):
        raise UnknownInstruction(f"Barriers for a part of the block are not supported ({place}).")
    return Step(place, Kind.BARRIER)


def _fence(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "cta", "gl", "gpu", "cluster", "sys", "sc", "acq_rel", "acquire", "release")
    wide = {"gl", "gpu", "cluster", "sys"} & set(ins.modifiers)

    def run(frame: Frame, mask: Array) -> None:
        if wide:
            frame.wave.fence(mask)

    return Step(place, Kind.PLAIN, run)


def _trap(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    def run(frame: Frame, mask: Array) -> None:
        raise frame.wave.fault(FaultKind.ASSERTION, "the kernel stops itself", place, mask)

    return Step(place, Kind.PLAIN, run)


def _nothing(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    return Step(place, Kind.PLAIN, lambda frame, mask: None)


def _call(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "uni")
    lists = [tuple(map(str, o.items)) for o in ins.operands if isinstance(o, Vector)]
    (name,) = (o.name for o in ins.operands if isinstance(o, Symbol))
    has_result = isinstance(ins.operands[0], Vector)
    results = lists.pop(0) if has_result else ()
    arguments = lists.pop(0) if lists else ()

    def run(frame: Frame, mask: Array) -> None:
        if name == "__assertfail":
            raise frame.wave.fault(FaultKind.ASSERTION, "an assert does not hold", place, mask)
        frame.wave.call(name, frame, arguments, results, mask, place)

    return Step(place, Kind.PLAIN, run)


TABLE: dict[str, Builder] = {
    "bra": _branch,
    "ret": _leave,
    "exit": _leave,
    "call": _call,
    "trap": _trap,
    "bar": _barrier,
    "barrier": _barrier,
    "membar": _fence,
    "fence": _fence,
    "nanosleep": _nothing,
    "prefetch": _nothing,
    "prefetchu": _nothing,
}
