"""Resolve, check, record and count the memory accesses of instructions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import counting
from ..decode import Decoder, Read
from ..faults import FaultKind, Place, UnknownInstruction
from ..memory import SHARED_START, SLOT_BITS, Memory
from ..syntax import BITS, Address, Instruction

if TYPE_CHECKING:
    from ..machine import Wave

Array = Any

_SPACES = ("global", "shared", "local", "param", "const")
_HINTS = {
    *("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "ca", "cg", "cs", "cv", "lu"),
    *("wb", "wt", "nc", "cta", "gpu", "sys", "cluster", "uni"),
}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


class Piece(NamedTuple):
    """The lanes of an access that fall into one memory, and their byte offsets there."""

    memory: Memory
    lanes: Array
    picked: Array | slice
    offsets: Array
    start: Array


class Access(NamedTuple):
    """The properties of an instruction's memory access; without ``align`` its size is that too."""

    place: Place
    space: str
    kind: str
    elements: int
    synchronising: bool = False
    read_only: bool = False
    align: int = 0

    @property
    def width(self) -> int:
        return max(BITS[self.kind] // 8, 1)

    @property
    def size(self) -> int:
        return self.width * self.elements


def access_of(ins: Instruction, place: Place, also: Collection[str] = ()) -> Access:
    modifiers = set(ins.modifiers)
    for m in modifiers:
        hint = m in _HINTS or m.startswith(("L1_", "L2_", "shared_")) or m == "cache_hint"
        if not (hint or m in _SPACES or m in _VECTORS or m in BITS or m in also):
            raise UnknownInstruction(f"The modifier .{m} of {ins.text} is not supported.")
    space = next((m for m in ins.modifiers if m in _SPACES or m.startswith("shared_")), "")
    count = next((_VECTORS[m] for m in ins.modifiers if m in _VECTORS), 1)
    ordered = bool(modifiers & {"volatile", "relaxed", "acquire", "release", "acq_rel"})
    return Access(place, space.split("_")[0], ins.type, count, ordered, "nc" in modifiers)


def address_of(decoder: Decoder, address: Address) -> Read:
    base = decoder.read(address.base, "u64")
    offset = np.int64(address.offset).view(np.uint64)
    return lambda frame: base(frame) + offset


def pieces(
    wave: Wave,
    access: Access,
    address: Array,
    mask: Array,
    op: str,
    stored: Sequence[Array] = (),
) -> list[Piece]:
    """Split an access by memory, after checking it: any violation raises a fault. ``stored`` are
    the values that lanes store, if lanes may store the same ones at once."""
    lanes = wave.active(mask)
    address = np.broadcast_to(address, (wave.lanes,))[lanes].astype(np.int64)
    found = []
    for memory, picked, offsets in _resolved(wave, access, address, lanes):
        piece = _piece(wave, memory, lanes[picked], picked, offsets)
        align = access.align or access.size
        misaligned = offsets % align != 0
        if misaligned.any():
            what = f"{memory.name}: {align} bytes at an address that is no multiple of it"
            raise _at(wave, access, piece, int(np.argmax(misaligned)), FaultKind.MISALIGNED, what)
        wrong = memory.wrong(offsets, piece.lanes, access.size)
        if wrong is not None:
            raise wave.fault_of(wrong, access.place, memory.name)
        _check(wave, access, piece, op, stored)
        if wave.counting:
            _count(wave, access, piece, op)
        found.append(piece)
    return found


def _resolved(
    wave: Wave, access: Access, address: Array, lanes: Array
) -> Iterator[tuple[Memory, Any, Array]]:
    """For every memory: the lanes whose addresses lie in it, and their offsets."""
    everything = slice(None)
    if access.space == "shared":
        yield wave.shared, everything, address - SHARED_START
    elif access.space == "local":
        yield wave.local, everything, address - SHARED_START
    else:
        slots = address >> SLOT_BITS
        same = slots[0] == slots[-1] and bool((slots == slots[0]).all())
        for slot in slots[:1] if same else np.unique(slots):
            picked = everything if same else np.nonzero(slots == slot)[0]
            memory, start = wave.behind(int(slot), generic=access.space in ("", "param", "const"))
            if memory is None:
                first = int(np.argmax(slots == slot))
                raise wave.fault(
                    FaultKind.OUT_OF_BOUNDS,
                    f"the address {int(address[first]):#x} is in no array"
                    + (" of global memory" if access.space == "global" else ""),
                    access.place,
                    lanes=lanes[first : first + 1],
                    address=int(address[first]),
                )
            yield memory, picked, address[picked] - (int(slot) << SLOT_BITS) - start


def _piece(wave: Wave, memory: Memory, lanes: Array, picked: Any, offsets: Array) -> Piece:
    start = offsets
    if memory is wave.shared:
        start = offsets + wave.block_of[lanes] * wave.shared_stride
    elif memory is wave.local:
        start = offsets + lanes * wave.local_stride
    return Piece(memory, lanes, picked, offsets, start)


def _alike(piece: Piece, stored: Sequence[Array]) -> Array:
    """Of every lane, whether all lanes that store where it does store the same values."""
    _, first, place = np.unique(piece.start, return_index=True, return_inverse=True)
    differ = np.zeros(len(first), bool)
    for values in stored:
        own = values[piece.lanes]
        np.logical_or.at(differ, place, own != own[first][place])
    return ~differ[place]


def _check(wave: Wave, access: Access, piece: Piece, op: str, stored: Sequence[Array] = ()) -> None:
    memory = piece.memory
    if op != "load" and memory.read_only:
        raise _at(wave, access, piece, 0, FaultKind.READ_ONLY, f"it writes to {memory.name}")
    shadow = memory.shadow
    if shadow is None:
        return
    if memory is wave.shared:
        _check_copies(wave, access, piece)
    who, when = wave.who[piece.lanes], wave.when[piece.lanes]
    on_purpose = wave.triton and memory is wave.shared and bool(stored)
    alike = _alike(piece, stored) if on_purpose else None
    for inside in range(0, access.size, memory.granule):
        cells = (piece.start + inside) // memory.granule
        if op != "store" and not memory.initialised:
            never = shadow.never_written(cells)
            if never.any():
                what = f"no thread has written this byte of {memory.name}"
                raise _at(wave, access, piece, int(np.argmax(never)), FaultKind.UNINITIALISED, what)
        if op == "load" and access.read_only:
            written = ~shadow.never_written(cells)
            if written.any():
                what = "a load through the read-only cache of what this kernel writes"
                at = int(np.argmax(written))
                raise _at(wave, access, piece, at, FaultKind.READ_ONLY, what)
        if op == "load":
            # A volatile read may race with a write on purpose.
            problem, at = ("", 0) if access.synchronising else shadow.read(cells, who, when)
        else:
            atomic = op == "atomic" or access.synchronising
            problem, at = shadow.write(cells, who, when, atomic=atomic, alike=alike)
        if problem:
            raise _at(wave, access, piece, at, FaultKind.RACE, f"{memory.name}: {problem}")
    is_global = memory is not wave.shared and memory is not wave.local
    if is_global and (op == "atomic" or access.synchronising):
        wave.exchange(memory, piece.start, piece.lanes, op)


def _check_copies(wave: Wave, access: Access, piece: Piece) -> None:
    """What a copy under way will write must be neither read nor written."""
    found = wave.copies.under_way(piece.start, access.size)
    if found is None:
        return
    at = int(np.argmax(found))
    what = "a copy to it may be under way: its thread has not waited for the group it is in"
    if not wave.copies.is_committed(int(piece.start[at]), access.size):
        what = "a copy to it may be under way: its thread has not committed it to a group"
    raise _at(wave, access, piece, at, FaultKind.PENDING_COPY, f"{piece.memory.name}: {what}")


def _at(wave: Wave, access: Access, piece: Piece, at: int, kind: FaultKind, what: str) -> Any:
    offset = int(piece.offsets[at]) - piece.memory.lead
    return wave.fault(
        kind,
        f"{what} (byte {offset})",
        access.place,
        lanes=piece.lanes[at : at + 1],
        address=offset,
        memory=piece.memory.name,
    )


def _count(wave: Wave, access: Access, piece: Piece, op: str) -> None:
    counts, warps = wave.counts, wave.warps
    memory = piece.memory
    if memory is wave.shared:
        # Each block has its own banks and blocks share no warp: offsets within a copy suffice.
        counting.count_shared(counts, piece.lanes, piece.offsets, access.size, warps)
    elif memory is wave.local:
        counts.local_requests += wave.warp_count(piece.lanes)
    elif not memory.name.startswith("parameters"):
        counting.count_global(
            counts, memory.touched, piece.lanes, piece.offsets, access.size, warps, op
        )
    if op == "atomic":
        counting.count_atomics(counts, piece.lanes, piece.offsets, warps)
