"""Sums, products, quotients, roots and elementary functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import floats, integers
from ..decode import DTYPES, Decoder, Kind, Step
from ..faults import Place
from ..syntax import BITS, Instruction
from .building import ROUNDING, Builder, computed, is_float, only, rounding_mode

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any


def _add(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, *ROUNDING, "ftz", "sat", "cc")
    mode, kind, minus = rounding_mode(ins), ins.type, ins.op.startswith("sub")
    if "cc" in ins.modifiers or ins.op in ("addc", "subc"):
        return _with_carry(decoder, ins, place)
    if is_float(kind):
        if minus:
            return computed(decoder, ins, place, lambda a, b: floats.add(a, -b, mode), flops=1)
        return computed(decoder, ins, place, lambda a, b: floats.add(a, b, mode), flops=1)
    if "sat" in ins.modifiers:
        return computed(decoder, ins, place, lambda a, b: _saturating(a, b, minus))
    return computed(decoder, ins, place, np.subtract if minus else np.add)


def _saturating(a: Array, b: Array, minus: bool) -> Array:
    wide = a.astype(np.int64) + (-b.astype(np.int64) if minus else b.astype(np.int64))
    limits = np.iinfo(np.int32)
    return np.clip(wide, limits.min, limits.max).astype(np.int32)


def _with_carry(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """Add 32 or 64 bits of a longer sum; the frame keeps the carry."""
    bits = f"u{BITS[ins.type]}"
    first, second = (decoder.read(operand, bits) for operand in ins.operands[1:])
    write = decoder.write(ins.operands[0], bits)
    takes, gives = ins.op in ("addc", "subc"), "cc" in ins.modifiers
    minus = ins.op.startswith("sub")

    def run(frame: Frame, mask: Array) -> None:
        a, b = first(frame), second(frame)
        carry = (frame.carry if takes else np.asarray(False)).astype(DTYPES[bits])
        found = a - b - carry if minus else a + b + carry
        if gives:
            over = (
                (a < b) | ((a == b) & (carry == 1))
                if minus
                else (found < a) | ((found == a) & (carry == 1))
            )
            frame.carry = over if mask is None else np.where(mask, over, frame.carry)
        write(frame, found, mask)

    return Step(place, Kind.PLAIN, run)


def _multiply(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, *ROUNDING, "ftz", "sat", "lo", "hi", "wide")
    mode, kind = rounding_mode(ins), ins.type
    if is_float(kind):
        return computed(decoder, ins, place, lambda a, b: floats.multiply(a, b, mode), flops=1)
    if "wide" in ins.modifiers:
        return computed(decoder, ins, place, integers.multiply_wide, result=_twice(kind))
    if "hi" in ins.modifiers:
        return computed(decoder, ins, place, integers.multiply_high)
    return computed(decoder, ins, place, np.multiply)


def _twice(kind: str) -> str:
    return f"{kind[0]}{2 * BITS[kind]}"


def _multiply_add(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, *ROUNDING, "ftz", "sat", "lo", "hi", "wide")
    mode, kind = rounding_mode(ins), ins.type
    if is_float(kind):
        return computed(decoder, ins, place, lambda a, b, c: floats.fma(a, b, c, mode), flops=2)
    if "wide" in ins.modifiers:
        wide = _twice(kind)
        return computed(
            decoder,
            ins,
            place,
            lambda a, b, c: integers.multiply_wide(a, b) + c,
            kinds=(kind, kind, wide),
            result=wide,
        )
    if "sat" in ins.modifiers:
        return computed(
            decoder,
            ins,
            place,
            lambda a, b, c: _saturating(integers.multiply_high(a, b), c, minus=False),
        )
    if "hi" in ins.modifiers:
        return computed(decoder, ins, place, lambda a, b, c: integers.multiply_high(a, b) + c)
    return computed(decoder, ins, place, lambda a, b, c: a * b + c)


def _divide(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, *ROUNDING, "ftz", "approx", "full")
    mode = rounding_mode(ins)
    if is_float(ins.type):
        # A device divides approximately, within 2 units in the last place; here it rounds once.
        return computed(decoder, ins, place, lambda a, b: floats.divide(a, b, mode), special=1)
    return computed(decoder, ins, place, integers.divide)


def _remainder(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    return computed(decoder, ins, place, integers.remainder)


def _extreme(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "ftz", "NaN")
    least, keep = ins.op == "min", "NaN" in ins.modifiers
    if not is_float(ins.type) and ins.type != "bf16":
        return computed(decoder, ins, place, np.minimum if least else np.maximum)
    pick = floats.smallest if least else floats.largest
    return _exact(decoder, ins, place, lambda a, b: pick(a, b, keep_nan=keep), flops=1)


def _absolute(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "ftz")
    return _exact(decoder, ins, place, np.abs)


def _negate(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "ftz")
    return _exact(decoder, ins, place, np.negative)


def _exact(
    decoder: Decoder, ins: Instruction, place: Place, compute: Callable[..., Array], flops: int = 0
) -> Step:
    """What rounds in no format, so bfloat16 can be calculated as float32."""
    if ins.type != "bf16":
        return computed(decoder, ins, place, compute, flops=flops)

    def of_bits(*values: Array) -> Array:
        return floats.to_bfloat16(compute(*map(floats.from_bfloat16, values)))

    kinds = ("bf16",) * (len(ins.operands) - 1)
    return computed(decoder, ins, place, of_bits, kinds=kinds, result="bf16", flops=flops)


def _square_root(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, *ROUNDING, "ftz", "approx")
    mode = rounding_mode(ins)
    return computed(decoder, ins, place, lambda a: floats.square_root(a, mode), special=1)


def _reciprocal(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, *ROUNDING, "ftz", "approx")
    mode = rounding_mode(ins)
    return computed(
        decoder, ins, place, lambda a: floats.divide(np.ones_like(a), a, mode), special=1
    )


def _elementary(function: Callable[[Array], Array]) -> Builder:
    """Rounded once here; a device approximates, within about 2 units in the last place."""

    def build(decoder: Decoder, ins: Instruction, place: Place) -> Step:
        only(ins, "approx", "ftz")
        dtype = DTYPES[ins.type]
        wide = np.longdouble if ins.type == "f64" else np.float64
        return computed(
            decoder, ins, place, lambda a: function(a.astype(wide)).astype(dtype), special=1
        )

    return build


def _copy_sign(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    return computed(decoder, ins, place, lambda a, b: np.copysign(b, a))


TABLE: dict[str, Builder] = {
    "add": _add,
    "sub": _add,
    "addc": _add,
    "subc": _add,
    "mul": _multiply,
    "mad": _multiply_add,
    "fma": _multiply_add,
    "div": _divide,
    "rem": _remainder,
    "min": _extreme,
    "max": _extreme,
    "abs": _absolute,
    "neg": _negate,
    "copysign": _copy_sign,
    "sqrt": _square_root,
    "rcp": _reciprocal,
    "rsqrt": _elementary(lambda a: 1 / np.sqrt(a)),
    "ex2": _elementary(np.exp2),
    "lg2": _elementary(np.log2),
    "sin": _elementary(np.sin),
    "cos": _elementary(np.cos),
    "tanh": _elementary(np.tanh),
}
