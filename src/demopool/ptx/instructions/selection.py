"""Comparing and selecting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import floats
from ..decode import DTYPES, Decoder, Kind, Step
from ..faults import Place
from ..syntax import Instruction
from .building import Builder, calculable, computed, is_float, only

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def compare(name: str, a: Array, b: Array) -> Array:
    """Compare; with a NaN, ordered comparisons are false and those that end in u are true."""
    if name == "ne":
        unordered = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else False
        return np.not_equal(a, b) & ~np.asarray(unordered)
    if name in _COMPARE:
        return _COMPARE[name](a, b)
    unordered = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return unordered if name == "nan" else ~unordered
    if name == "neu":
        return np.not_equal(a, b)
    return _COMPARE[name.removesuffix("u")](a, b) | unordered


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_COMPARISONS = (*_COMPARE, "ne", *(f"{c}u" for c in ("eq", "ne", "lt", "le", "gt", "ge")))


def _comparison(
    decoder: Decoder, ins: Instruction, place: Place
) -> tuple[Callable[[Frame], tuple[Array, Array]], str]:
    """A reader of a comparison's two results (the second negated), and the type compared."""
    only(ins, *_COMPARISONS, "num", "nan", *_COMBINE, "ftz")
    name, is_bfloat16 = ins.modifiers[0], ins.type == "bf16"
    kind = ins.type if is_bfloat16 else calculable(ins.type, place)
    combine = next((_COMBINE[m] for m in ins.modifiers[1:] if m in _COMBINE), None)
    first, second = (decoder.read(operand, kind) for operand in ins.operands[1:3])
    third = decoder.read(ins.operands[3], "pred") if combine else None
    flush = "ftz" in ins.modifiers and is_float(kind)

    def truth(frame: Frame) -> tuple[Array, Array]:
        a, b = first(frame), second(frame)
        if is_bfloat16:
            a, b = floats.from_bfloat16(a), floats.from_bfloat16(b)
        if flush:
            a, b = floats.flushed(a), floats.flushed(b)
        found = compare(name, a, b)
        if combine is None or third is None:
            return found, np.logical_not(found)
        other = third(frame)
        return combine(found, other), combine(np.logical_not(found), other)

    return truth, kind


def _set_predicate(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    truth, _ = _comparison(decoder, ins, place)
    writes = [decoder.write(operand, "pred") for operand in decoder.parts(ins.operands[0])]

    def run(frame: Frame, mask: Array) -> None:
        for write, value in zip(writes, truth(frame), strict=False):
            write(frame, value, mask)

    return Step(place, Kind.PLAIN, run)


def _set(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """Set all bits, or 1.0, where a comparison holds, else 0."""
    truth, _ = _comparison(decoder, ins, place)
    result = ins.modifiers[-2]
    for kind in (result, ins.type):
        calculable(kind, place)
    dtype = DTYPES[result]
    yes = dtype.type(1) if is_float(result) else np.array(-1, "i8").astype(dtype)[()]
    write = decoder.write(ins.operands[0], result)

    def run(frame: Frame, mask: Array) -> None:
        write(frame, np.where(truth(frame)[0], yes, dtype.type(0)), mask)

    return Step(place, Kind.PLAIN, run)


def _select(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins)
    kinds = (ins.type, ins.type, "pred")
    return computed(decoder, ins, place, lambda a, b, p: np.where(p, a, b), kinds=kinds)


def _select_by_sign(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    only(ins, "ftz")
    result, tested = ins.modifiers[-2], ins.modifiers[-1]
    kinds = (result, result, tested)
    flush = "ftz" in ins.modifiers and is_float(tested)

    def compute(a: Array, b: Array, c: Array) -> Array:
        return np.where((floats.flushed(c) if flush else c) >= 0, a, b)

    return computed(decoder, ins, place, compute, kinds=kinds, result=result)


def _test_property(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    tiny = np.finfo(DTYPES[ins.type]).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= tiny) | (a == 0)),  # zeros are normal
        "subnormal": lambda a: (a != 0) & (np.abs(a) < tiny),
    }
    return computed(decoder, ins, place, tests[ins.modifiers[0]], result="pred")


TABLE: dict[str, Builder] = {
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
    "testp": _test_property,
}
