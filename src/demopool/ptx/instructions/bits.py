"""Logic, shifts and fields of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import integers
from ..decode import Decoder, Step
from ..faults import Place
from ..syntax import Immediate, Instruction
from .building import Builder, computed, only

if TYPE_CHECKING:
    pass

Array = Any


def _logic(function: Callable[..., Array]) -> Builder:
    def build(decoder: Decoder, ins: Instruction, place: Place) -> Step:
        only(ins)
        return computed(decoder, ins, place, function)

    return build


def _shift(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    compute = integers.shift_left if ins.op == "shl" else integers.shift_right
    return computed(decoder, ins, place, compute, kinds=(ins.type, "u32"))


def _funnel(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "l", "r", "wrap", "clamp")
    left, wrap = "l" in ins.modifiers, "wrap" in ins.modifiers
    return computed(
        decoder, ins, place, lambda a, b, c: integers.funnel(a, b, c, left=left, wrap=wrap)
    )


def _to_32(function: Callable[..., Array]) -> Builder:
    def build(decoder: Decoder, ins: Instruction, place: Place) -> Step:
        only(ins)
        return computed(decoder, ins, place, function, result="u32")

    return build


def _find(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "shiftamt")
    amount = "shiftamt" in ins.modifiers
    return computed(
        decoder,
        ins,
        place,
        lambda a: integers.find_leading(a, shift_amount=amount),
        result="u32",
    )


def _bit_field(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    if ins.op == "bfe":
        return computed(decoder, ins, place, integers.extract_field, kinds=(ins.type, "u32", "u32"))
    kinds = (ins.type, ins.type, "u32", "u32")
    return computed(decoder, ins, place, integers.insert_field, kinds=kinds)


def _permute(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    return computed(decoder, ins, place, integers.permute)


def _logic3(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    table = ins.operands[4]
    assert isinstance(table, Immediate)
    value = table.value
    return computed(decoder, ins, place, lambda a, b, c, _: integers.logic3(a, b, c, value))


TABLE: dict[str, Builder] = {
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _logic(np.invert),
    "cnot": _logic(lambda a: (a == 0).astype(a.dtype)),
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "popc": _to_32(integers.population),
    "clz": _to_32(integers.leading_zeros),
    "bfind": _find,
    "brev": _logic(integers.reverse),
    "bfe": _bit_field,
    "bfi": _bit_field,
    "prmt": _permute,
    "lop3": _logic3,
}
