"""Moving, packing and converting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import floats
from ..decode import DTYPES, Decoder, Kind, Step
from ..faults import Place, UnknownInstruction
from ..memory import LOCAL_SLOT, PARAM_SLOT, SHARED_SLOT, SLOT_BITS
from ..syntax import BITS, Instruction, Vector
from .building import ROUNDING, Builder, computed, only

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any

_WINDOWS = {
    "shared": SHARED_SLOT,
    "local": LOCAL_SLOT,
    "param": PARAM_SLOT,
    "global": 0,
    "const": 0,
}


def _move(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    target, source, kind = ins.operands[0], ins.operands[1], ins.type
    if isinstance(target, Vector):
        return _unpack(decoder, ins, place, target)
    if isinstance(source, Vector):
        return _pack(decoder, ins, place, source)
    if kind == "pred":
        return computed(decoder, ins, place, lambda a: a, kinds=("pred",))
    return computed(decoder, ins, place, lambda a: a)


def _unpack(decoder: Decoder, ins: Instruction, place: Place, target: Vector) -> Step:
    width = BITS[ins.type] // len(target.items)
    read = decoder.read(ins.operands[1], f"u{BITS[ins.type]}")
    writes = [decoder.write(item, f"u{width}") for item in target.items]

    def run(frame: Frame, mask: Array) -> None:
        value = read(frame)
        for i, write in enumerate(writes):
            write(frame, (value >> value.dtype.type(i * width)).astype(f"u{width // 8}"), mask)

    return Step(place, Kind.PLAIN, run)


def _pack(decoder: Decoder, ins: Instruction, place: Place, source: Vector) -> Step:
    width, whole = BITS[ins.type] // len(source.items), DTYPES[f"u{BITS[ins.type]}"]
    reads = [decoder.read(item, f"u{width}") for item in source.items]
    write = decoder.write(ins.operands[0], f"u{BITS[ins.type]}")

    def run(frame: Frame, mask: Array) -> None:
        found = whole.type(0)
        for i, read in enumerate(reads):
            found = found | (read(frame).astype(whole) << whole.type(i * width))
        write(frame, found, mask)

    return Step(place, Kind.PLAIN, run)


def _convert(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    whole = ("rni", "rzi", "rmi", "rpi")
    only(ins, *ROUNDING, *whole, "rna", "ftz", "sat")
    result, source = ins.modifiers[-2], ins.modifiers[-1]
    if "tf32" in (result, source):
        return _convert_to_tf32(decoder, ins, place)
    if "rna" in ins.modifiers:
        raise UnknownInstruction(f"Only conversions to .tf32 round by .rna ({place}).")
    mode = next((m for m in ins.modifiers if m in (*ROUNDING, *whole)), "rn")
    flush, saturate = "ftz" in ins.modifiers, "sat" in ins.modifiers
    if result in ("f16x2", "bf16x2"):
        return _convert_pair(decoder, ins, place, result, mode)
    if result == "bf16" and (source not in ("f32", "f16", "bf16") or mode not in ("rn", "rz")):
        raise UnknownInstruction(f"This conversion to .bf16 is not supported ({place}).")

    def compute(a: Array) -> Array:
        if source == "bf16":
            a = floats.from_bfloat16(a)
        if flush and a.dtype == np.float32:
            a = floats.flushed(a)
        found = _conversion(a, result, mode, saturate)
        return floats.flushed(found) if flush and result == "f32" else found

    return computed(decoder, ins, place, compute, kinds=(source,), result=result)


def _conversion(a: Array, result: str, mode: str, saturate: bool) -> Array:
    dtype = DTYPES[result]
    if result == "bf16":
        return floats.to_bfloat16(floats.saturated(a) if saturate else a, mode)
    if a.dtype.kind == "f" and dtype.kind != "f":
        return floats.to_integer(a, dtype, mode if mode.endswith("i") else "rzi")
    if a.dtype.kind == "f":
        if mode.endswith("i"):
            a, mode = floats.to_whole(a, mode), "rn"
        found = floats.converted(a, dtype, mode)
        return floats.saturated(found) if saturate else found
    if dtype.kind == "f":
        found = _from_integer(a, dtype, mode)
        return floats.saturated(found) if saturate else found
    if saturate:
        to, own = np.iinfo(dtype), np.iinfo(a.dtype)
        a = np.clip(a, max(to.min, own.min), min(to.max, own.max))
    return a.astype(dtype)


def _from_integer(a: Array, dtype: Any, mode: str) -> Array:
    """Convert an integer with one rounding: 64 bits are the exact sum of two halves."""
    if a.dtype.itemsize < 8:
        return floats.sum_of(a.astype(np.float64), np.float64(0), dtype, mode)
    high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return floats.sum_of(high, low, dtype, mode)


def _convert_pair(decoder: Decoder, ins: Instruction, place: Place, result: str, mode: str) -> Step:
    only(ins, *ROUNDING)

    def half(a: Array) -> Array:
        if result == "bf16x2":
            return floats.to_bfloat16(a, mode)
        return floats.converted(a, np.float16, mode).view(np.uint16)

    def compute(a: Array, b: Array) -> Array:
        return (half(a).astype(np.uint32) << np.uint32(16)) | half(b).astype(np.uint32)

    return computed(decoder, ins, place, compute, kinds=("f32", "f32"), result="b32")


def _convert_to_tf32(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    mode, result, source = ins.modifiers
    if (result, source) != ("tf32", "f32") or mode not in ("rna", "rn", "rz"):
        raise UnknownInstruction(f"This conversion of .tf32 is not supported ({place}).")
    compute = partial(floats.to_tf32, mode=mode)
    return computed(decoder, ins, place, compute, kinds=("f32",), result="tf32")


def _convert_address(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "to", *_WINDOWS)
    space = next(m for m in ins.modifiers if m in _WINDOWS)
    window = np.uint64(_WINDOWS[space] << SLOT_BITS)
    read = decoder.read(ins.operands[1], ins.type)
    write = decoder.write(ins.operands[0], ins.type)
    back = "to" in ins.modifiers

    def run(frame: Frame, mask: Array) -> None:
        value = read(frame)
        write(frame, value - window if back else value + window, mask)

    return Step(place, Kind.PLAIN, run)


def _is_in_space(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    if "const" in ins.modifiers:
        raise UnknownInstruction(
            f"isspacep.const is not supported: constants are kept in global memory ({place})."
        )
    slot = _WINDOWS[ins.modifiers[0]]
    windows = [s for s in _WINDOWS.values() if s]

    def compute(a: Array) -> Array:
        found = a >> np.uint64(SLOT_BITS)
        return found == slot if slot else ~np.isin(found, windows)

    return computed(decoder, ins, place, compute, kinds=("u64",), result="pred")


TABLE: dict[str, Builder] = {
    "mov": _move,
    "cvt": _convert,
    "cvta": _convert_address,
    "isspacep": _is_in_space,
}
