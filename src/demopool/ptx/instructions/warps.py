"""Instructions of a whole warp: shuffles, votes, reductions, barriers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..decode import DTYPES, Decoder, Kind, Step
from ..faults import Place, UnknownInstruction
from ..syntax import Instruction
from .building import Builder, only

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any

_LANE = np.arange(32)


def shuffle(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """Every lane reads a register of another lane."""
    only(ins, "sync", "up", "down", "bfly", "idx")
    mode = next(m for m in ins.modifiers if m in ("up", "down", "bfly", "idx"))
    if "sync" not in ins.modifiers:
        raise UnknownInstruction(f"PTX has had no shuffles without .sync since sm_70 ({place}).")
    targets = decoder.parts(ins.operands[0])
    write = decoder.write(targets[0], "b32")
    write_inside = decoder.write(targets[1], "pred") if len(targets) > 1 else None
    value, step, clamp = (decoder.read(o, "u32") for o in ins.operands[1:4])
    members = decoder.read(ins.operands[4], "u32")
    from_registers, to_registers = decoder.numbers(ins.operands[1:2]), decoder.numbers(targets[:1])

    def run(frame: Frame, mask: Array) -> None:
        lanes = np.arange(frame.wave.lanes)
        lane, first = lanes % 32, lanes // 32 * 32
        by = step(frame).astype(np.int64) & 31
        c = clamp(frame).astype(np.int64)
        segment, limit = (c >> 8) & 31, c & 31
        low = lane & segment
        high = low | (limit & ~segment)
        source = {
            "up": lambda: lane - by,
            "down": lambda: lane + by,
            "bfly": lambda: lane ^ by,
            "idx": lambda: low | (by & ~segment),
        }[mode]()
        inside = source >= high if mode == "up" else source <= high
        taken = np.where(inside, source, lane) + first
        active = frame.wave.mask_of(mask)
        values = np.broadcast_to(value(frame), lanes.shape)
        unknown = frame.never_written(from_registers, mask)
        write(frame, values[taken], mask)
        # A value from a lane that takes no part is undefined, but often it is not used.
        unknown = ~active if unknown is None else unknown | ~active
        if (unknown[taken] & active).any():
            frame.forget(to_registers, unknown[taken] & active)
        if write_inside is not None:
            write_inside(frame, np.broadcast_to(inside, lanes.shape), mask)

    return Step(place, Kind.WARP, run, members=members)


def vote(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """Whether a predicate holds in all or any lanes, or in which."""
    only(ins, "sync", "all", "any", "uni", "ballot")
    kind = next(m for m in ins.modifiers if m in ("all", "any", "uni", "ballot"))
    result = "b32" if kind == "ballot" else "pred"
    write = decoder.write(ins.operands[0], result)
    read = decoder.read(ins.operands[1], "pred")
    members = decoder.read(ins.operands[2], "u32")

    def run(frame: Frame, mask: Array) -> None:
        rows = _rows(frame, members, mask)
        truth = np.broadcast_to(read(frame), (frame.wave.lanes,)).reshape(-1, 1, 32)
        yes, no = (rows & truth), (rows & ~truth)
        if kind == "ballot":
            found = _bits(yes)
        else:
            found = {
                "all": lambda: ~no.any(axis=2),
                "any": lambda: yes.any(axis=2),
                "uni": lambda: ~(yes.any(axis=2) & no.any(axis=2)),
            }[kind]()
        write(frame, found.reshape(-1), mask)

    return Step(place, Kind.WARP, run, members=members)


def match(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """Which lanes have the same value (any), or whether all of them have (all)."""
    only(ins, "sync", "all", "any")
    for_all = "all" in ins.modifiers
    targets = decoder.parts(ins.operands[0])
    write = decoder.write(targets[0], "b32")
    write_truth = decoder.write(targets[1], "pred") if len(targets) > 1 else None
    read = decoder.read(ins.operands[1], f"u{ins.type[1:]}")
    members = decoder.read(ins.operands[2], "u32")

    def run(frame: Frame, mask: Array) -> None:
        rows = _rows(frame, members, mask)
        values = np.broadcast_to(read(frame), (frame.wave.lanes,)).reshape(-1, 32)
        same = rows & (values[:, :, None] == values[:, None, :])
        if for_all:
            truth = (same == rows).all(axis=2)
            found = np.where(truth, _bits(rows), np.uint32(0))
            if write_truth is not None:
                write_truth(frame, truth.reshape(-1), mask)
        else:
            found = _bits(same)
        write(frame, found.reshape(-1), mask)

    return Step(place, Kind.WARP, run, members=members)


def reduce(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """A sum, minimum, maximum or bitwise combination over lanes."""
    only(ins, "sync", "add", "min", "max", "and", "or", "xor")
    name = next(m for m in ins.modifiers if m in ("add", "min", "max", "and", "or", "xor"))
    dtype = DTYPES[ins.type]
    if dtype.kind == "f":
        raise UnknownInstruction(f"Reductions of floats are not supported ({place}).")
    limits = np.iinfo(dtype)
    neutral = {"min": limits.max, "max": limits.min, "and": limits.max if limits.min == 0 else -1}
    function: Any = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[name]
    write = decoder.write(ins.operands[0], ins.type)
    read = decoder.read(ins.operands[1], ins.type)
    members = decoder.read(ins.operands[2], "u32")

    def run(frame: Frame, mask: Array) -> None:
        rows = _rows(frame, members, mask)
        values = np.broadcast_to(read(frame), (frame.wave.lanes,)).reshape(-1, 1, 32)
        chosen = np.where(rows, values, dtype.type(neutral.get(name, 0)))
        write(frame, function.reduce(chosen, axis=2, dtype=dtype).reshape(-1), mask)

    return Step(place, Kind.WARP, run, members=members)


def active_mask(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    write = decoder.write(ins.operands[0], "b32")

    def run(frame: Frame, mask: Array) -> None:
        active = frame.wave.mask_of(mask).reshape(-1, 32)
        write(frame, np.repeat(_bits(active), 32), mask)

    return Step(place, Kind.PLAIN, run)


def warp_barrier(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "warp", "sync")
    named = decoder.read(ins.operands[0], "u32")

    def members(frame: Frame) -> Array:
        """The mask may name threads that have left: unlike a shuffle, nothing is read from them."""
        return named(frame) & ~np.repeat(_bits(frame.wave.gone.reshape(-1, 32)), 32)

    def run(frame: Frame, mask: Array) -> None:
        frame.wave.order_warps(mask)

    return Step(place, Kind.WARP, run, members=members)


def barrier_vote(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """A barrier of the block that counts or combines a predicate of all its threads."""
    only(ins, "red", "cta", "aligned", "popc", "and", "or")
    name = next(m for m in ins.modifiers if m in ("popc", "and", "or"))
    if len(ins.operands) != 3:
        raise UnknownInstruction(f"Barriers for a part of the block are not supported ({place}).")
    write = decoder.write(ins.operands[0], "u32" if name == "popc" else "pred")
    read = decoder.read(ins.operands[2], "pred")

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        blocks = len(wave.blocks)
        truth = np.broadcast_to(read(frame), (wave.lanes,)).reshape(blocks, -1)
        there = wave.exists.reshape(blocks, -1)
        found: Any
        if name == "popc":
            found = (truth & there).sum(axis=1).astype(np.uint32)
        elif name == "and":
            found = (truth | ~there).all(axis=1)
        else:
            found = (truth & there).any(axis=1)
        write(frame, np.repeat(found, wave.lanes // blocks), mask)

    return Step(place, Kind.BARRIER, run)


def _rows(frame: Frame, members: Any, mask: Array) -> Array:
    """The lanes that take part, as each lane of the warp names them: (warps, 32, 32)."""
    named = np.broadcast_to(members(frame), (frame.wave.lanes,)).reshape(-1, 32)
    present = frame.wave.mask_of(mask).reshape(-1, 1, 32)
    return ((named[:, :, None] >> _LANE.astype(np.uint32)) & np.uint32(1)).astype(bool) & present


def _bits(rows: Array) -> Array:
    """Pack the truth values of 32 lanes into one word."""
    weights = np.left_shift(np.uint64(1), _LANE.astype(np.uint64))
    return (rows * weights).sum(axis=-1).astype(np.uint32)


TABLE: dict[str, Builder] = {
    "shfl": shuffle,
    "vote": vote,
    "activemask": active_mask,
    "match": match,
    "redux": reduce,
}
