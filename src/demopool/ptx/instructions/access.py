"""Loads, stores and atomics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import floats
from ..decode import DTYPES, Decoder, Kind, Step
from ..faults import Place
from ..memory import UNSIGNED
from ..syntax import Address, Instruction, Symbol
from .building import Builder, calculable
from .resolving import access_of, address_of, pieces

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any


def load(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    access = access_of(ins, place)
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
    where = address_of(decoder, address)

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        found = np.zeros((access.elements, wave.lanes), UNSIGNED[access.width])
        for piece in pieces(wave, access, where(frame), mask, "load"):
            view = piece.memory.view(access.width)
            for i in range(access.elements):
                index = (piece.start + i * access.width) // access.width
                found[i, piece.lanes] = view[index]
        for write, values in zip(writes, found, strict=True):
            write(frame, values.view(dtype), mask)

    return Step(place, Kind.PLAIN, run, polls=access.synchronising)


def store(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    access = access_of(ins, place)
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
    where = address_of(decoder, address)

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        values = [np.broadcast_to(read(frame), (wave.lanes,)) for read in reads]
        for piece in pieces(wave, access, where(frame), mask, "store", values):
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
    access = access_of(ins, place, _ATOMICS)
    name = next(m for m in ins.modifiers if _ATOMICS.get(m) or m == "cas")
    wants_old = ins.op == "atom"
    address = ins.operands[int(wants_old)]
    assert isinstance(address, Address)
    reads = [decoder.read(o, access.kind) for o in ins.operands[int(wants_old) + 1 :]]
    write = decoder.write(ins.operands[0], access.kind) if wants_old else None
    where, dtype = address_of(decoder, address), DTYPES[calculable(access.kind, place)]
    function = _ATOMICS[name]
    flushes = name == "add" and access.kind == "f32"  # in global memory only

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        values = [np.broadcast_to(read(frame), (wave.lanes,)) for read in reads]
        before = np.zeros(wave.lanes, dtype)
        for piece in pieces(wave, access, where(frame), mask, "atomic"):
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


TABLE: dict[str, Builder] = {
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
}
