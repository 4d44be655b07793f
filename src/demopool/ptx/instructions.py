"""The instructions that compute: each one a small builder that turns operands into a step.

Memory instructions are in ``access``, those of warps in ``warps``; ``TABLE`` has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import access, floats, integers, warps
from .decode import DTYPES, Decoder, Kind, Step
from .faults import FaultKind, Place, UnknownInstruction
from .memory import LOCAL_SLOT, PARAM_SLOT, SHARED_SLOT, SLOT_BITS
from .syntax import BITS, Immediate, Instruction, Symbol, Vector

if TYPE_CHECKING:
    from .machine import Frame

Array = Any
Builder = Callable[[Decoder, Instruction, Place], Step]

_ROUNDING = ("rn", "rz", "rm", "rp")
_WINDOWS = {
    "shared": SHARED_SLOT,
    "local": LOCAL_SLOT,
    "param": PARAM_SLOT,
    "global": 0,
    "const": 0,
}


def _mode(ins: Instruction) -> str:
    return next((m for m in ins.modifiers if m in _ROUNDING), "rn")


def _is_float(kind: str) -> bool:
    return kind in ("f16", "f32", "f64")


def _known(ins: Instruction, *allowed: str) -> None:
    """Modifiers that are not understood are an error: what they mean would be ignored."""
    strange = [m for m in ins.modifiers if m not in allowed and m not in BITS]
    if strange:
        raise UnknownInstruction(f"The modifier .{strange[0]} of {ins.text} is not known here.")


def computed(
    decoder: Decoder,
    ins: Instruction,
    place: Place,
    compute: Callable[..., Array],
    *,
    kinds: tuple[str, ...] = (),
    result: str = "",
    flops: int = 0,
    special: int = 0,
) -> Step:
    """A step ``d = compute(a, b, ...)``; every operand has the instruction's type unless told."""
    kind = ins.type
    reads = [
        decoder.read(operand, kinds[i] if i < len(kinds) else kind)
        for i, operand in enumerate(ins.operands[1:])
    ]
    write = decoder.write(ins.operands[0], result or kind)
    compute = _with_float_modifiers(ins, compute)

    def run(frame: Frame, mask: Array) -> None:
        write(frame, compute(*(read(frame) for read in reads)), mask)

    counted = flops if _is_float(kind) else 0
    return Step(
        place,
        Kind.PLAIN,
        run,
        flops=counted,
        is_double=kind == "f64",
        special=special if _is_float(kind) else 0,
    )


def _with_float_modifiers(ins: Instruction, compute: Callable[..., Array]) -> Callable[..., Array]:
    """Flush-to-zero of operands and results, and saturation."""
    if ins.type != "f32" or not {"ftz", "sat"} & set(ins.modifiers):
        return compute
    flush, saturate = "ftz" in ins.modifiers, "sat" in ins.modifiers

    def wrapped(*operands: Array) -> Array:
        if flush:
            operands = tuple(
                floats.flushed(a) if np.asarray(a).dtype == np.float32 else a for a in operands
            )
        found = compute(*operands)
        if flush and np.asarray(found).dtype == np.float32:
            found = floats.flushed(found)
        return floats.saturated(found) if saturate else found

    return wrapped


# --- arithmetic ---


def _add(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, *_ROUNDING, "ftz", "sat", "cc")
    mode, kind, minus = _mode(ins), ins.type, ins.op.startswith("sub")
    if "cc" in ins.modifiers or ins.op in ("addc", "subc"):
        return _with_carry(decoder, ins, place)
    if _is_float(kind):
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
    """32 or 64 bits of a longer sum; the carry stays in the frame."""
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
    _known(ins, *_ROUNDING, "ftz", "sat", "lo", "hi", "wide")
    mode, kind = _mode(ins), ins.type
    if _is_float(kind):
        return computed(decoder, ins, place, lambda a, b: floats.multiply(a, b, mode), flops=1)
    if "wide" in ins.modifiers:
        return computed(decoder, ins, place, integers.multiply_wide, result=_twice(kind))
    if "hi" in ins.modifiers:
        return computed(decoder, ins, place, integers.multiply_high)
    return computed(decoder, ins, place, np.multiply)


def _twice(kind: str) -> str:
    return f"{kind[0]}{2 * BITS[kind]}"


def _multiply_add(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, *_ROUNDING, "ftz", "sat", "lo", "hi", "wide")
    mode, kind = _mode(ins), ins.type
    if _is_float(kind):
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
    if "hi" in ins.modifiers:
        return computed(decoder, ins, place, lambda a, b, c: integers.multiply_high(a, b) + c)
    return computed(decoder, ins, place, lambda a, b, c: a * b + c)


def _divide(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, *_ROUNDING, "ftz", "approx", "full")
    mode = _mode(ins)
    if _is_float(ins.type):
        # Approximate division is within 2 units in the last place; here it is exact.
        return computed(decoder, ins, place, lambda a, b: floats.divide(a, b, mode), special=1)
    return computed(decoder, ins, place, integers.divide)


def _remainder(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
    return computed(decoder, ins, place, integers.remainder)


def _extreme(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "ftz", "NaN")
    least, keep = ins.op == "min", "NaN" in ins.modifiers
    if not _is_float(ins.type):
        return computed(decoder, ins, place, np.minimum if least else np.maximum)
    pick = floats.smallest if least else floats.largest
    return computed(decoder, ins, place, lambda a, b: pick(a, b, keep_nan=keep), flops=1)


def _absolute(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "ftz")
    return computed(decoder, ins, place, np.abs)


def _negate(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "ftz")
    return computed(decoder, ins, place, np.negative)


def _square_root(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, *_ROUNDING, "ftz", "approx")
    mode = _mode(ins)
    return computed(decoder, ins, place, lambda a: floats.square_root(a, mode), special=1)


def _reciprocal(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, *_ROUNDING, "ftz", "approx")
    mode = _mode(ins)
    return computed(
        decoder, ins, place, lambda a: floats.divide(np.ones_like(a), a, mode), special=1
    )


def _elementary(function: Callable[[Array], Array]) -> Builder:
    """Approximate on a device (to about 2 units in the last place); here rounded once."""

    def build(decoder: Decoder, ins: Instruction, place: Place) -> Step:
        _known(ins, "approx", "ftz")
        dtype = DTYPES[ins.type]
        wide = np.longdouble if ins.type == "f64" else np.float64
        return computed(
            decoder, ins, place, lambda a: function(a.astype(wide)).astype(dtype), special=1
        )

    return build


def _copy_sign(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
    return computed(decoder, ins, place, lambda a, b: np.copysign(b, a))


# --- bits ---


def _logic(function: Callable[..., Array]) -> Builder:
    def build(decoder: Decoder, ins: Instruction, place: Place) -> Step:
        _known(ins)
        return computed(decoder, ins, place, function)

    return build


def _shift(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
    compute = integers.shift_left if ins.op == "shl" else integers.shift_right
    return computed(decoder, ins, place, compute, kinds=(ins.type, "u32"))


def _funnel(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "l", "r", "wrap", "clamp")
    left, wrap = "l" in ins.modifiers, "wrap" in ins.modifiers
    return computed(
        decoder, ins, place, lambda a, b, c: integers.funnel(a, b, c, left=left, wrap=wrap)
    )


def _to_32(function: Callable[..., Array]) -> Builder:
    def build(decoder: Decoder, ins: Instruction, place: Place) -> Step:
        _known(ins)
        return computed(decoder, ins, place, function, result="u32")

    return build


def _find(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "shiftamt")
    amount = "shiftamt" in ins.modifiers
    return computed(
        decoder,
        ins,
        place,
        lambda a: integers.find_leading(a, shift_amount=amount),
        result="u32",
    )


def _bit_field(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
    if ins.op == "bfe":
        return computed(decoder, ins, place, integers.extract_field, kinds=(ins.type, "u32", "u32"))
    kinds = (ins.type, ins.type, "u32", "u32")
    return computed(decoder, ins, place, integers.insert_field, kinds=kinds)


def _permute(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
    return computed(decoder, ins, place, integers.permute)


def _logic3(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
    table = ins.operands[4]
    assert isinstance(table, Immediate)
    value = table.value
    return computed(decoder, ins, place, lambda a, b, c, _: integers.logic3(a, b, c, value))


# --- comparing and selecting ---


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
    """Ordered comparisons with a NaN are false, those that end in u are true."""
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
    decoder: Decoder, ins: Instruction
) -> tuple[Callable[[Frame], tuple[Array, Array]], str]:
    """Reads both operands of a comparison: its truth, and what it is combined with."""
    _known(ins, *_COMPARISONS, "num", "nan", *_COMBINE, "ftz")
    name, kind = ins.modifiers[0], ins.type
    combine = next((_COMBINE[m] for m in ins.modifiers[1:] if m in _COMBINE), None)
    first, second = (decoder.read(operand, kind) for operand in ins.operands[1:3])
    third = decoder.read(ins.operands[3], "pred") if combine else None
    flush = "ftz" in ins.modifiers and kind == "f32"

    def truth(frame: Frame) -> tuple[Array, Array]:
        a, b = first(frame), second(frame)
        if flush:
            a, b = floats.flushed(a), floats.flushed(b)
        found = compare(name, a, b)
        if combine is None or third is None:
            return found, np.logical_not(found)
        other = third(frame)
        return combine(found, other), combine(np.logical_not(found), other)

    return truth, kind


def _set_predicate(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    truth, _ = _comparison(decoder, ins)
    writes = [decoder.write(operand, "pred") for operand in decoder.parts(ins.operands[0])]

    def run(frame: Frame, mask: Array) -> None:
        for write, value in zip(writes, truth(frame), strict=False):
            write(frame, value, mask)

    return Step(place, Kind.PLAIN, run)


def _set(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    """All bits, or 1.0, where a comparison holds."""
    truth, _ = _comparison(decoder, ins)
    result = ins.modifiers[-2]
    dtype = DTYPES[result]
    yes = dtype.type(1) if _is_float(result) else np.array(-1, "i8").astype(dtype)[()]
    write = decoder.write(ins.operands[0], result)

    def run(frame: Frame, mask: Array) -> None:
        write(frame, np.where(truth(frame)[0], yes, dtype.type(0)), mask)

    return Step(place, Kind.PLAIN, run)


def _select(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
    kinds = (ins.type, ins.type, "pred")
    return computed(decoder, ins, place, lambda a, b, p: np.where(p, a, b), kinds=kinds)


def _select_by_sign(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "ftz")
    result, tested = ins.modifiers[-2], ins.modifiers[-1]
    kinds = (result, result, tested)
    return computed(
        decoder, ins, place, lambda a, b, c: np.where(c >= 0, a, b), kinds=kinds, result=result
    )


def _test_property(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    tiny = np.finfo(DTYPES[ins.type]).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < tiny),
    }
    return computed(decoder, ins, place, tests[ins.modifiers[0]], result="pred")


# --- moving and converting ---


def _move(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins)
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
    _known(ins, *_ROUNDING, *whole, "ftz", "sat")
    result, source = ins.modifiers[-2], ins.modifiers[-1]
    mode = next((m for m in ins.modifiers if m in (*_ROUNDING, *whole)), "rn")
    flush, saturate = "ftz" in ins.modifiers, "sat" in ins.modifiers
    if result in ("f16x2", "bf16x2"):
        return _convert_pair(decoder, ins, place, result, mode)

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
        return floats.to_bfloat16(a, mode)
    if a.dtype.kind == "f" and dtype.kind != "f":
        return floats.to_integer(a, dtype, mode if mode.endswith("i") else "rzi")
    if a.dtype.kind == "f":
        if mode.endswith("i"):
            a, mode = floats.to_whole(a, mode), "rn"
        found = floats.converted(a, dtype, mode)
        return floats.saturated(found) if saturate else found
    if dtype.kind == "f":
        return _from_integer(a, dtype, mode)
    if saturate:
        to, own = np.iinfo(dtype), np.iinfo(a.dtype)
        a = np.clip(a, max(to.min, own.min), min(to.max, own.max))
    return a.astype(dtype)


def _from_integer(a: Array, dtype: Any, mode: str) -> Array:
    """Rounded once: 64 bits are the exact sum of two halves."""
    if a.dtype.itemsize < 8:
        return floats.sum_of(a.astype(np.float64), np.float64(0), dtype, mode)
    high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return floats.sum_of(high, low, dtype, mode)


def _convert_pair(decoder: Decoder, ins: Instruction, place: Place, result: str, mode: str) -> Step:
    def half(a: Array) -> Array:
        if result == "bf16x2":
            return floats.to_bfloat16(a, mode)
        return floats.converted(a, np.float16, mode).view(np.uint16)

    def compute(a: Array, b: Array) -> Array:
        return (half(a).astype(np.uint32) << np.uint32(16)) | half(b).astype(np.uint32)

    return computed(decoder, ins, place, compute, kinds=("f32", "f32"), result="b32")


def _convert_address(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "to", *_WINDOWS)
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
    slot = _WINDOWS[ins.modifiers[0]]
    windows = [s for s in _WINDOWS.values() if s]

    def compute(a: Array) -> Array:
        found = a >> np.uint64(SLOT_BITS)
        return found == slot if slot else ~np.isin(found, windows)

    return computed(decoder, ins, place, compute, kinds=("u64",), result="pred")


# --- control ---


def _branch(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "uni")
    target = ins.operands[0]
    assert isinstance(target, Symbol)
    return Step(place, Kind.BRANCH, target=decoder.function.labels[target.name])


def _leave(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    return Step(place, Kind.LEAVE)


def _barrier(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    if "warp" in ins.modifiers:
        return warps.warp_barrier(decoder, ins, place)
    if "red" in ins.modifiers:
        return warps.barrier_vote(decoder, ins, place)
    _known(ins, "sync", "cta", "aligned")
    identity = ins.operands[0] if ins.operands else Immediate(0)
    if len(ins.operands) > 1 or "sync" not in ins.modifiers or not isinstance(identity, Immediate):
        raise UnknownInstruction(f"Barriers for a part of the block are not known here ({place}).")
    return Step(place, Kind.BARRIER)


def _fence(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    wide = {"gl", "gpu", "sys"} & set(ins.modifiers)

    def run(frame: Frame, mask: Array) -> None:
        if wide:
            frame.wave.fence(mask)

    return Step(place, Kind.PLAIN, run)


def _trap(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    def run(frame: Frame, mask: Array) -> None:
        raise frame.wave.fault(FaultKind.ASSERTION, "the kernel stops itself", place, mask)

    return Step(place, Kind.PLAIN, run)


def _nothing(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    return Step(place, Kind.PLAIN, lambda frame, mask: None)


def _call(decoder: Decoder, ins: Instruction, place: Place) -> Step:
    _known(ins, "uni")
    lists = [tuple(map(str, o.items)) for o in ins.operands if isinstance(o, Vector)]
    (name,) = (o.name for o in ins.operands if isinstance(o, Symbol))
    has_result = isinstance(ins.operands[0], Vector)
    results = lists.pop(0) if has_result else ()
    arguments = lists.pop(0) if lists else ()

    def run(frame: Frame, mask: Array) -> None:
        if name == "__assertfail":
            raise frame.wave.fault(FaultKind.ASSERTION, "an assert does not hold", place, mask)
        frame.wave.call(name, frame, arguments, results, mask, place)

    return Step(place, Kind.PLAIN, run)


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
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
    "testp": _test_property,
    "mov": _move,
    "cvt": _convert,
    "cvta": _convert_address,
    "isspacep": _is_in_space,
    "bra": _branch,
    "ret": _leave,
    "exit": _leave,
    "call": _call,
    "trap": _trap,
    "bar": _barrier,
    "barrier": _barrier,
    "membar": _fence,
    "fence": _fence,
    "nanosleep": _nothing,
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "griddepcontrol": _nothing,
    "ld": access.load,
    "ldu": access.load,
    "st": access.store,
    "atom": access.atomic,
    "red": access.atomic,
    "shfl": warps.shuffle,
    "vote": warps.vote,
    "activemask": warps.active_mask,
    "match": warps.match,
    "redux": warps.reduce,
}
"""Every instruction that is understood."""
