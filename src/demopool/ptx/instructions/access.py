"""Loads, stores and atomics: resolve, check, record and count their accesses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import counting, floats
from ..decode import DTYPES, Decoder, Kind, Read, Step
from ..faults import FaultKind, Place, UnknownInstruction
from ..memory import SHARED_START, SLOT_BITS, UNSIGNED, Memory
from ..syntax import BITS, Address, Instruction, Symbol
from .building import Builder, calculable

if TYPE_CHECKING:
    from ..frames import Frame
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
    """The properties of an instruction's memory access."""

    place: Place
    space: str
    kind: str
    elements: int
    synchronising: bool
    read_only: bool

    @property
    def width(self) -> int:
        return max(BITS[self.kind] // 8, 1)

    @property
    def size(self) -> int:
        return self.width * self.elements


def _access(ins: Instruction, place: Place, also: Collection[str] = ()) -> Access:
    modifiers = set(ins.modifiers)
    for m in modifiers:
        hint = m in _HINTS or m.startswith(("L1_", "L2_", "shared_")) or m == "cache_hint"
        if not (hint or m in _SPACES or m in _VECTORS or m in BITS or m in also):
            raise UnknownInstruction(f"The modifier .{m} of {ins.text} is not supported.")
    space = next((m for m in ins.modifiers if m in _SPACES or m.startswith("shared_")), "")
    count = next((_VECTORS[m] for m in ins.modifiers if m in _VECTORS), 1)
    ordered = bool(modifiers & {"volatile", "relaxed", "acquire", "release", "acq_rel"})
    return Access(place, space.split("_")[0], ins.type, count, ordered, "nc" in modifiers)


def load(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    access = _access(ins, place)
    address = ins.operands[1]
    assert isinstance(address, Address)
    targets = decoder.parts(ins.operands[0])
    writes = [decoder.write(target, access.kind) for target in targets]
    dtype = DTYPES[access.kind]
    if access.space == "param" and isinstance(address.base, Symbol):
        name, start = address.base.name, address.offset

        def run_param(frame: Frame, mask: Array) -> None:
            for i, write in enumerate(writes):
                bits = frame.parameter(name, start + i * access.width, access.width)
                write(frame, bits.view(dtype), mask)

        return Step(place, Kind.PLAIN, run_param)
    where = _address(decoder, address)

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        found = np.zeros((access.elements, wave.lanes), UNSIGNED[access.width])
        for piece in _pieces(wave, access, where(frame), mask, "load"):
            view = piece.memory.view(access.width)
            for i in range(access.elements):
                index = (piece.start + i * access.width) // access.width
                found[i, piece.lanes] = view[index]
        for write, values in zip(writes, found, strict=True):
            write(frame, values.view(dtype), mask)

    return Step(place, Kind.PLAIN, run, polls=access.synchronising)


def store(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    access = _access(ins, place)
    address = ins.operands[0]
    assert isinstance(address, Address)
    bits = f"u{8 * access.width}"
    reads = [decoder.read(source, bits) for source in decoder.parts(ins.operands[1])]
    if access.space == "param" and isinstance(address.base, Symbol):
        name, start = address.base.name, address.offset

        def run_param(frame: Frame, mask: Array) -> None:
            for i, read in enumerate(reads):
                frame.pass_on(name, start + i * access.width, read(frame), mask)

        return Step(place, Kind.PLAIN, run_param)
    where = _address(decoder, address)

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        values = [np.broadcast_to(read(frame), (wave.lanes,)) for read in reads]
        for piece in _pieces(wave, access, where(frame), mask, "store"):
            view = piece.memory.view(access.width)
            for i, value in enumerate(values):
                view[(piece.start + i * access.width) // access.width] = value[piece.lanes]

    return Step(place, Kind.PLAIN, run)


_ATOMICS: dict[str, Callable[..., Array] | None] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "inc": lambda old, top: np.where(old >= top, 0, old + 1).astype(old.dtype),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - 1).astype(old.dtype),
    "cas": None,
    "noftz": None,
}


def atomic(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    access = _access(ins, place, _ATOMICS)
    name = next(m for m in ins.modifiers if _ATOMICS.get(m) or m == "cas")
    wants_old = ins.op == "atom"
    address = ins.operands[int(wants_old)]
    assert isinstance(address, Address)
    reads = [decoder.read(o, access.kind) for o in ins.operands[int(wants_old) + 1 :]]
    write = decoder.write(ins.operands[0], access.kind) if wants_old else None
    where, dtype = _address(decoder, address), DTYPES[calculable(access.kind, place)]
    function = _ATOMICS[name]
    flushes = name == "add" and access.kind == "f32"  # in global memory only

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        values = [np.broadcast_to(read(frame), (wave.lanes,)) for read in reads]
        before = np.zeros(wave.lanes, dtype)
        for piece in _pieces(wave, access, where(frame), mask, "atomic"):
            view, index = piece.memory.view(access.width).view(dtype), piece.start // access.width
            given = [value[piece.lanes] for value in values]
            if flushes and piece.memory is not wave.shared:
                given[0] = floats.flushed(given[0])
            if isinstance(function, np.ufunc) and not wants_old:
                function.at(view, index, given[0])  # in the order of the lanes
            else:
                before[piece.lanes] = _one_by_one(function, view, index, given)
            if flushes and piece.memory is not wave.shared:
                view[index] = floats.flushed(view[index])
        if write is not None:
            write(frame, before, mask)

    flops = 1 if dtype.kind == "f" else 0
    is_double = access.kind == "f64"
    return Step(place, Kind.PLAIN, run, flops=flops, is_double=is_double, polls=wants_old)


def _one_by_one(
    function: Callable[..., Array] | None, view: Array, index: Array, given: list[Array]
) -> Array:
    """Update words in lane order (None: compare and swap), and return the old values."""
    before = np.zeros(len(index), view.dtype)
    for turn in _turns(index):
        old, value = view[index[turn]], given[0][turn]
        before[turn] = old
        if function is None:
            view[index[turn]] = np.where(old == value, given[1][turn], old)
        else:
            view[index[turn]] = function(old, value)
    return before


def _turns(index: Array) -> Iterator[Array]:
    """Groups of lanes with distinct addresses; lanes that share an address keep their order."""
    left = np.arange(len(index))
    while len(left):
        _, first = np.unique(index[left], return_index=True)
        first.sort()
        yield left[first]
        left = np.delete(left, first)


def _address(decoder: Decoder, address: Address) -> Read:
    base = decoder.read(address.base, "u64")
    offset = np.int64(address.offset).view(np.uint64)
    return lambda frame: base(frame) + offset


def _pieces(wave: Wave, access: Access, address: Array, mask: Array, op: str) -> list[Piece]:
    """Split an access by memory, after checking it: any violation raises a fault."""
    lanes = wave.active(mask)
    address = np.broadcast_to(address, (wave.lanes,))[lanes].astype(np.int64)
    pieces = []
    for memory, picked, offsets in _resolved(wave, access, address, lanes):
        piece = _piece(wave, memory, lanes[picked], picked, offsets)
        misaligned = offsets % access.size != 0
        if misaligned.any():
            what = f"{memory.name}: {access.size} bytes at an address that is no multiple of it"
            raise _at(wave, access, piece, int(np.argmax(misaligned)), FaultKind.MISALIGNED, what)
        wrong = memory.wrong(offsets, piece.lanes, access.size)
        if wrong is not None:
            raise wave.fault_of(wrong, access.place, memory.name)
        _check(wave, access, piece, op)
        if wave.counting:
            _count(wave, access, piece, op)
        pieces.append(piece)
    return pieces


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


def _check(wave: Wave, access: Access, piece: Piece, op: str) -> None:
    memory = piece.memory
    if op != "load" and memory.read_only:
        raise _at(wave, access, piece, 0, FaultKind.READ_ONLY, f"it writes to {memory.name}")
    shadow = memory.shadow
    if shadow is None:
        return
    who, when = wave.who[piece.lanes], wave.when[piece.lanes]
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
            problem, at = shadow.write(cells, who, when, atomic=atomic)
        if problem:
            raise _at(wave, access, piece, at, FaultKind.RACE, f"{memory.name}: {problem}")


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


TABLE: dict[str, Builder] = {
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
}
