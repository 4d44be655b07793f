"""Asynchronous copies from global to shared memory: starting, committing, waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..decode import Decoder, Kind, Read, Step
from ..faults import FaultKind, Place, UnknownInstruction
from ..syntax import Address, Immediate, Instruction, Operand, Register
from .building import Builder, only
from .resolving import Access, address_of, pieces

if TYPE_CHECKING:
    from ..frames import Frame
    from ..machine import Wave

Array = Any

_SIZES = {"ca": (4, 8, 16), "cg": (16,)}
_PREFETCH = ("L2_64B", "L2_128B", "L2_256B")


def _copy(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    if ins.modifiers[1] in ("commit_group", "wait_group", "wait_all"):
        return _commit_or_wait(decoder, ins, place)
    only(ins, "async", *_SIZES, "shared", "shared_cta", "global", *_PREFETCH)
    to, source, size = ins.operands[:3]
    assert isinstance(to, Address)
    assert isinstance(source, Address)
    if not isinstance(size, Immediate) or size.value not in _SIZES[ins.modifiers[1]]:
        raise UnknownInstruction(f"cp.async does not copy {size} bytes that way ({place}).")
    whole = size.value
    given = _given_bytes(decoder, ins.operands[3:], whole)
    target, origin = address_of(decoder, to), address_of(decoder, source)
    written = Access(place, "shared", "b8", whole)

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        bytes_read = np.broadcast_to(given(frame), wave.lanes).astype(np.int64)
        beyond = wave.mask_of(mask) & (bytes_read > whole)
        if beyond.any():
            what = f"it has more than the {whole} bytes that are copied to fill"
            raise wave.fault(FaultKind.UNDEFINED, what, place, beyond)
        data = np.zeros((wave.lanes, whole), np.uint8)  # what is not read is filled with zeros
        for length in np.unique(bytes_read[wave.active(mask)]):
            if length:
                read = Access(place, "global", "b8", int(length), align=whole)
                _fetch(wave, read, origin(frame), wave.mask_of(mask) & (bytes_read == length), data)
        for piece in pieces(wave, written, target(frame), mask, "store"):
            wave.copies.start(piece.lanes, piece.start, data[piece.lanes])

    return Step(place, Kind.PLAIN, run)


def _given_bytes(decoder: Decoder, operands: tuple[Operand, ...], whole: int) -> Read:
    """How many bytes there are to read: a number, or none where a predicate says so."""
    if not operands:
        return lambda frame: np.uint32(whole)
    (operand,) = operands
    if isinstance(operand, Register) and decoder.function.registers[operand.name] == "pred":
        ignored = decoder.read(operand, "pred")
        return lambda frame: np.where(ignored(frame), 0, whole)
    return decoder.read(operand, "u32")


def _fetch(wave: Wave, access: Access, address: Array, mask: Array, data: Array) -> None:
    for piece in pieces(wave, access, address, mask, "load"):
        index = piece.start[:, None] + np.arange(access.size)
        data[piece.lanes, : access.size] = piece.memory.view(1)[index]


def _commit_or_wait(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "async", "commit_group", "wait_group", "wait_all")
    if ins.modifiers[1] == "commit_group":
        return Step(
            place, Kind.PLAIN, lambda frame, m: frame.wave.copies.commit(frame.wave.active(m))
        )
    left = -1
    if ins.modifiers[1] == "wait_group":
        (number,) = ins.operands
        assert isinstance(number, Immediate)
        left = number.value
    return Step(place, Kind.PLAIN, _waiting(left))


def _waiting(left: int) -> Callable[[Frame, Array], None]:
    def run(frame: Frame, mask: Array) -> None:
        wave, shared = frame.wave, frame.wave.shared
        for copy in wave.copies.finished(wave.mask_of(mask), left):
            size = copy.data.shape[1]
            shared.view(1)[copy.start[:, None] + np.arange(size)] = copy.data
            if shared.shadow is None:
                continue
            # Others may read this after a barrier that follows now, not one before.
            who, when = wave.who[copy.lanes], wave.when[copy.lanes]
            for inside in range(0, size, shared.granule):
                cells = (copy.start + inside) // shared.granule
                shared.shadow.write(cells, who, when, atomic=False)

    return run


TABLE: dict[str, Builder] = {
    "cp": _copy,
}
