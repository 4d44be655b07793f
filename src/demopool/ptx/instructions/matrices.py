"""Matrix instructions of a whole warp: products by tensor cores, and loads of their operands.

A fragment is what the lanes of a warp hold of a matrix: lanes come in eight groups of four, and a
register holds one number of 32 bits or two of 16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import floats
from ..decode import Decoder, Kind, Read, Step
from ..faults import FaultKind, Place, UnknownInstruction
from ..syntax import BITS, Address, Instruction, Operand
from .building import Builder, only
from .resolving import Access, address_of, pieces

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any

_LANE = np.arange(32)
_GROUP, _WITHIN = _LANE // 4, _LANE % 4
_WHOLE_WARP = np.uint32(0xFFFFFFFF)

_ROWS, _COLUMNS = 16, 8
_DEPTHS = {"tf32": (4, 8), "f16": (8, 16), "bf16": (8, 16)}
_SUMS = {"tf32": ("f32",), "f16": ("f32", "f16"), "bf16": ("f32",)}
_ONLY_FLOAT32 = np.uint32(0x1FFF)
"""Bits of the significand that float32 has and TF32 has not."""


class Fragment(NamedTuple):
    """The element that each part of each register of each lane holds: (registers, parts, 32)."""

    kind: str
    shape: tuple[int, int]
    rows: Array
    columns: Array

    @property
    def registers(self) -> int:
        return int(self.rows.shape[0])


def _fragment(kind: str, shape: tuple[int, int], rows: Array, columns: Array) -> Fragment:
    return Fragment(kind, shape, *np.broadcast_arrays(rows, columns))


def _counted(kind: str, elements: int) -> tuple[int, Array, Array]:
    """Numbers in a register, and the numbers of registers and parts, to be broadcast."""
    parts = 32 // BITS[kind]
    register = np.arange(elements // 32 // parts).reshape(-1, 1, 1)
    return parts, register, np.arange(parts).reshape(1, -1, 1)


def left(kind: str, depth: int) -> Fragment:
    """A, by rows."""
    parts, register, part = _counted(kind, _ROWS * depth)
    columns = parts * _WITHIN + part + 4 * parts * (register // 2)
    return _fragment(kind, (_ROWS, depth), _GROUP + 8 * (register % 2), columns)


def right(kind: str, depth: int) -> Fragment:
    """B, by columns."""
    parts, register, part = _counted(kind, depth * _COLUMNS)
    rows = parts * _WITHIN + part + 4 * parts * register
    return _fragment(kind, (depth, _COLUMNS), rows, _GROUP)


def sums(kind: str) -> Fragment:
    """C and D: every lane has two neighbours in each of two rows."""
    parts, register, part = _counted(kind, _ROWS * _COLUMNS)
    element = parts * register + part
    return _fragment(
        kind, (_ROWS, _COLUMNS), _GROUP + 8 * (element // 2), 2 * _WITHIN + element % 2
    )


def summed(a: Array, b: Array, c: Array) -> Array:
    """C + A B in float64, in which the products are exact, in the order of the columns of A.

    What a device does is not documented; docs/reference/ptx.md has the bounds of both.
    """
    for k in range(a.shape[2]):
        c = c + a[:, :, k, None] * b[:, k, None, :]
    return c


def _multiply(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """D = C + A B by all lanes of a warp."""
    *how, shape, rows, columns, to, kind, other, start = ins.modifiers
    layout = (*how, rows, columns)
    depth = int(shape.removeprefix("m16n8k"))
    is_known = depth in _DEPTHS[kind] and to in _SUMS[kind] and (other, start) == (kind, to)
    if not is_known or layout != ("sync", "aligned", "row", "col"):
        raise UnknownInstruction(f"This shape or type of mma is not supported ({place}).")
    fragments = (left(kind, depth), right(kind, depth), sums(to))
    operands = tuple(map(decoder.parts, ins.operands))
    wanted = [fragments[2].registers, *(f.registers for f in fragments)]
    if [len(items) for items in operands] != wanted:
        raise UnknownInstruction(f"Its operands must have {wanted} registers ({place}).")
    reads = [_reads(decoder, items) for items in operands[1:]]
    writes = [decoder.write(item, "u32") for item in operands[0]]

    def run(frame: Frame, mask: Array) -> None:
        held = [_held(frame, registers) for registers in reads]
        if kind == "tf32" and frame.wave.triton:
            held[:2] = [registers & ~_ONLY_FLOAT32 for registers in held[:2]]
        elif kind == "tf32":
            for registers in held[:2]:
                _check_rounded(frame, registers, mask, place)
        a, b, c = (_matrix(registers, f) for registers, f in zip(held, fragments, strict=True))
        found = _registers(summed(a, b, c), fragments[2])
        for write, values in zip(writes, found, strict=True):
            write(frame, values, mask)
        warps = frame.wave.warp_count(frame.wave.active(mask))
        frame.wave.counts.tensor_flops += 2 * _ROWS * _COLUMNS * depth * warps

    return Step(place, Kind.WARP, run, members=lambda frame: _WHOLE_WARP, aligned=True)


def _reads(decoder: Decoder, items: tuple[Operand, ...]) -> list[Read]:
    return [decoder.read(item, "u32") for item in items]


def _held(frame: Frame, registers: list[Read]) -> Array:
    """The bits of some registers: (registers, warps, 32)."""
    lanes = frame.wave.lanes
    return np.stack([np.broadcast_to(read(frame), lanes).reshape(-1, 32) for read in registers])


def _check_rounded(frame: Frame, bits: Array, mask: Array, place: Place) -> None:
    """A float32 that was not rounded to TF32 has no defined value in a product."""
    strange = ((bits & _ONLY_FLOAT32) != 0) & ~np.isnan(bits.view(np.float32))
    lanes = strange.any(axis=0).reshape(-1) & frame.wave.mask_of(mask)
    if lanes.any():
        what = "a TF32 operand has bits that only float32 has: cvt.rna.tf32.f32 rounds them"
        raise frame.wave.fault(FaultKind.UNDEFINED, what, place, lanes)


def _matrix(bits: Array, fragment: Fragment) -> Array:
    """The matrices of all warps from the registers of their lanes, in float64."""
    if fragment.kind in ("f32", "tf32"):
        numbers = bits[:, None].view(np.float32)
    else:
        halves = np.stack([bits, bits >> np.uint32(16)], axis=1).astype(np.uint16)
        is_short = fragment.kind == "f16"
        numbers = halves.view(np.float16) if is_short else floats.from_bfloat16(halves)
    found = np.empty((bits.shape[1], *fragment.shape))
    found[:, fragment.rows, fragment.columns] = np.moveaxis(numbers, 2, 0)
    return found


def _registers(matrices: Array, fragment: Fragment) -> list[Array]:
    """The registers of all lanes from the matrices of their warps, rounded to nearest."""
    numbers = np.moveaxis(matrices[:, fragment.rows, fragment.columns], 0, 2)
    if fragment.kind == "f32":
        bits = numbers[:, 0].astype(np.float32).view(np.uint32)
    else:
        halves = numbers.astype(np.float16).view(np.uint16).astype(np.uint32)
        bits = halves[:, 0] | halves[:, 1] << np.uint32(16)
    return list(bits.reshape(fragment.registers, -1))


def _load(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """One, two or four 8 x 8 matrices of 16 bits: each of eight lanes has the address of a row."""
    only(ins, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared_cta")
    count = next(int(m[1]) for m in ins.modifiers if m in ("x1", "x2", "x4"))
    address, targets = ins.operands[1], decoder.parts(ins.operands[0])
    assert isinstance(address, Address)
    named = {"shared", "shared_cta"} & set(ins.modifiers)
    if ins.type != "b16" or "m8n8" not in ins.modifiers or len(targets) != count or not named:
        raise UnknownInstruction(f"This form of ldmatrix is not supported ({place}).")
    writes = [decoder.write(target, "u32") for target in targets]
    where, transposed = address_of(decoder, address), "trans" in ins.modifiers
    access = Access(place, "shared", "b16", elements=8)

    def run(frame: Frame, mask: Array) -> None:
        wave = frame.wave
        rows = np.zeros((wave.lanes, 8), np.uint16)
        giving = wave.mask_of(mask) & (np.arange(wave.lanes) % 32 < 8 * count)
        for piece in pieces(wave, access, where(frame), giving, "load"):
            index = piece.start[:, None] // 2 + np.arange(8)
            rows[piece.lanes] = piece.memory.view(2)[index]
        matrices = rows.reshape(-1, 4, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        pairs = np.ascontiguousarray(matrices).view(np.uint32).reshape(-1, 4, 32)
        for i, write in enumerate(writes):
            write(frame, pairs[:, i].reshape(-1), mask)

    return Step(place, Kind.WARP, run, members=lambda frame: _WHOLE_WARP, aligned=True)


TABLE: dict[str, Builder] = {
    "mma": _multiply,
    "ldmatrix": _load,
}
