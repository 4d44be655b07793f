"""Helpers for the builders, which turn instructions into steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import floats
from ..decode import Decoder, Kind, Step
from ..faults import Place, UnknownInstruction
from ..syntax import BITS, Instruction

if TYPE_CHECKING:
    from ..frames import Frame

Array = Any
Builder = Callable[[Decoder, Instruction, Place], Step]
"""Turns an instruction into a step."""

ROUNDING = ("rn", "rz", "rm", "rp")


def rounding_mode(ins: Instruction) -> str:
    return next((m for m in ins.modifiers if m in ROUNDING), "rn")


def is_float(kind: str) -> bool:
    return kind in ("f16", "f32", "f64")


def calculable(kind: str, place: Place) -> str:
    """Reject arithmetic on types kept as bits: they can only be moved and converted."""
    if kind in ("bf16", "tf32", "f16x2", "bf16x2"):
        raise UnknownInstruction(f"Arithmetic on .{kind} is not supported ({place}).")
    return kind


def only(ins: Instruction, *allowed: str) -> None:
    """Reject unsupported modifiers, whose meaning would otherwise be ignored."""
    strange = [m for m in ins.modifiers if m not in allowed and m not in BITS]
    if strange:
        raise UnknownInstruction(f"The modifier .{strange[0]} of {ins.text} is not supported.")


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
    """A step ``d = compute(a, b, ...)``.

    Operands have the instruction's type unless ``kinds`` or ``result`` give another. With
    ``kinds``, ``compute`` handles the float modifiers (.ftz, .sat) itself.
    """
    kind = ins.type if kinds else calculable(ins.type, place)
    reads = [
        decoder.read(operand, kinds[i] if i < len(kinds) else kind)
        for i, operand in enumerate(ins.operands[1:])
    ]
    write = decoder.write(ins.operands[0], result or kind)
    if not kinds:
        compute = _with_float_modifiers(ins, compute)

    def run(frame: Frame, mask: Array) -> None:
        write(frame, compute(*(read(frame) for read in reads)), mask)

    counted = flops if is_float(kind) or kind == "bf16" else 0
    return Step(
        place,
        Kind.PLAIN,
        run,
        flops=counted,
        is_double=kind == "f64",
        special=special if is_float(kind) else 0,
    )


def _with_float_modifiers(ins: Instruction, compute: Callable[..., Array]) -> Callable[..., Array]:
    """Add flushing of operands and results to zero (.ftz), and saturation (.sat)."""
    if not is_float(ins.type) or not {"ftz", "sat"} & set(ins.modifiers):
        return compute
    flush, saturate = "ftz" in ins.modifiers, "sat" in ins.modifiers

    def wrapped(*operands: Array) -> Array:
        if flush:
            operands = tuple(floats.flushed(a) for a in operands)
        found = compute(*operands)
        if flush:
            found = floats.flushed(found)
        return floats.saturated(found) if saturate else found

    return wrapped
