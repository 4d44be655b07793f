"""Decode the instructions of a function into executable steps; operands are looked up once.

A register holds one value per lane, as unsigned bits, or a single value when all lanes agree.
Arrays in registers are never changed in place, so they can be shared. A step receives the frame
(registers and parameters of a call) and a mask of the lanes that run it (None for all).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np

from .faults import Place, UnknownInstruction
from .syntax import (
    BITS,
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from .frames import Frame

Array = Any
Run = Callable[["Frame", Array], None]
Read = Callable[["Frame"], Array]
Write = Callable[["Frame", Array, Array], None]

DTYPES: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    "f16": np.dtype("f2"),
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
    # NumPy has no type for these: they are kept as bits.
    "bf16": np.dtype("u2"),
    "tf32": np.dtype("u4"),
    "f16x2": np.dtype("u4"),
    "bf16x2": np.dtype("u4"),
}


_USERS = ("st", "red", "atom", "cp", "vote", "match", "redux", "mma", "bar", "barrier")
"""Instructions whose operands reach memory or other threads."""


_UNSUPPORTED = (KeyError, IndexError, ValueError, TypeError, AttributeError, StopIteration)
"""Errors that builders raise when a modifier or an operand that they expect is missing."""

SPECIAL = {
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    *("%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%total_smem_size"),
    *(f"%lanemask_{which}" for which in ("eq", "lt", "le", "gt", "ge")),
    *("%clock", "%clock64", "%smid", "%nsmid", "%gridid"),
}
"""Special registers that can be read."""


class Kind(Enum):
    """How the scheduler treats a step."""

    PLAIN = auto()
    BRANCH = auto()
    LEAVE = auto()
    BARRIER = auto()
    WARP = auto()


@dataclass(frozen=True)
class Step:
    """A decoded instruction.

    ``members`` reads the mask of lanes that a warp instruction requires; an ``aligned`` one always
    requires all of them. A step that ``polls`` may be waiting for a write by another thread.
    ``choice`` selects one of two operands; the other one may be undefined.

    Registers are listed by number: those of the guard (``deciders``), those of the two operands of
    a choice (``choices``), those read (``sources``), those whose value leaves the registers, as an
    address or a stored value (``uses``), and those written (``targets``).
    """

    place: Place
    kind: Kind
    run: Run | None = None
    guard: Read | None = None
    target: int = 0
    members: Read | None = None
    aligned: bool = False
    flops: int = 0
    is_double: bool = False
    special: int = 0
    polls: bool = False
    choice: Read | None = None
    choices: tuple[tuple[int, ...], ...] = ()
    deciders: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    uses: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()


class Decoder:
    """Builds readers and writers for the operands of one function.

    ``table`` maps an operation to the builder of its steps (``instructions.TABLE``); ``name`` is
    the function's name in the source, which faults report.
    """

    def __init__(
        self, function: Function, table: Mapping[str, Callable[..., Step]], name: str = ""
    ) -> None:
        self.function = function
        self._table = table
        self._name = name or function.name
        self.index = {name: i for i, name in enumerate(function.registers)}

    def steps(self) -> list[Step]:
        return [self._step(instruction) for instruction in self.function.code]

    def _step(self, ins: Instruction) -> Step:
        place = Place(self._name, ins.line, ins.text, ins.source)
        builder = self._table.get(ins.op)
        if builder is None:
            raise UnknownInstruction(f"The instruction {ins.op} is not supported ({place}).")
        try:
            step = builder(self, ins, place)
        except _UNSUPPORTED as problem:
            raise UnknownInstruction(
                f"This form of {ins.op} is not supported ({place}): {problem}."
            ) from problem
        guard = self.read(ins.guard, "pred") if ins.guard else None
        deciders = self.numbers((ins.guard,)) if ins.guard else ()
        sources, uses, targets = self._registers_of(ins)
        if ins.op == "selp":
            step = replace(
                step,
                choice=self.read(ins.operands[3], "pred"),
                choices=tuple(self.numbers((operand,)) for operand in ins.operands[1:3]),
            )
            sources = self.numbers(ins.operands[3:])
        return replace(
            step, guard=guard, deciders=deciders, sources=sources, uses=uses, targets=targets
        )

    def _registers_of(self, ins: Instruction) -> tuple[tuple[int, ...], ...]:
        """Numbers of the registers that an instruction reads, uses and writes (see ``Step``)."""
        writes = ins.op not in ("st", "red", "cp", "bra", "bar", "barrier", "call")
        writes |= "red" in ins.modifiers  # a barrier with a result
        targets = self.numbers(ins.operands[:1]) if writes else ()
        read = ins.operands[1:] if writes else ins.operands
        sources = self.numbers(read)
        if ins.op in _USERS and "param" not in ins.modifiers:
            uses = sources
        elif ins.op == "shfl":
            uses = self.numbers(ins.operands[2:])  # the value may be undefined in some lanes
        else:
            uses = self.numbers(tuple(o for o in read if isinstance(o, Address)))
        return sources, uses, targets

    def numbers(self, operands: tuple[Operand, ...]) -> tuple[int, ...]:
        """Numbers of the registers in the operands."""
        found: list[int] = []
        for operand in map(self._named, operands):
            if isinstance(operand, Vector):
                found += self.numbers(operand.items)
            elif isinstance(operand, Address):
                found += self.numbers((operand.base,))
            elif isinstance(operand, Register) and operand.name in self.index:
                found.append(self.index[operand.name])
        return tuple(found)

    def read(self, operand: Operand, kind: str) -> Read:
        """A reader of an operand's value as the given type."""
        operand = self._named(operand)
        if isinstance(operand, Register):
            return self._read_register(operand, kind)
        if isinstance(operand, Immediate):
            value = constant(operand, kind)
            return lambda frame: value
        if isinstance(operand, Symbol):
            name, dtype = operand.name, DTYPES[kind]
            return lambda frame: dtype.type(frame.wave.symbol(name))
        raise UnknownInstruction(f"The operand {operand} is not supported.")

    def _read_register(self, operand: Register, kind: str) -> Read:
        name, negated = operand.name, operand.negated
        if name not in self.index:
            return self._read_special(name, DTYPES[kind])
        i = self.index[name]
        if self.function.registers[name] == "pred":
            if negated:
                return lambda frame: ~frame.registers[i]
            return lambda frame: frame.registers[i]
        have, dtype = BITS[self.function.registers[name]], DTYPES[kind]
        if have == BITS[kind]:
            return lambda frame: frame.registers[i].view(dtype)
        bits = DTYPES[f"u{BITS[kind]}"]
        return lambda frame: frame.registers[i].astype(bits).view(dtype)

    def _read_special(self, name: str, dtype: Any) -> Read:
        if name not in SPECIAL:
            raise UnknownInstruction(f"The special register {name} is not supported.")
        return lambda frame: frame.wave.special(name).astype(dtype)

    def write(self, operand: Operand, kind: str) -> Write:
        """A writer of values of the given type to an operand; it extends narrower values."""
        operand = self._named(operand)
        if isinstance(operand, Symbol) and operand.name == "_":
            return lambda frame, value, mask: None
        if not isinstance(operand, Register):
            raise UnknownInstruction(f"{operand} cannot be written to.")
        i = self.index[operand.name]
        declared = self.function.registers[operand.name]
        if declared == "pred" or kind == "pred":
            return lambda frame, value, mask: frame.set(i, np.asarray(value, bool), mask)
        dtype, wide = DTYPES[kind], DTYPES[f"u{BITS[declared]}"]
        if BITS[declared] == BITS[kind]:

            def same(frame: Frame, value: Array, mask: Array) -> None:
                frame.set(i, np.asarray(value, dtype).view(wide), mask)

            return same
        extended = DTYPES[f"s{BITS[declared]}"] if kind.startswith("s") else wide
        bits = dtype if kind.startswith("s") else DTYPES[f"u{BITS[kind]}"]

        def extend(frame: Frame, value: Array, mask: Array) -> None:
            value = np.asarray(value, dtype).view(bits)
            frame.set(i, value.astype(extended).view(wide), mask)

        return extend

    def _named(self, operand: Operand) -> Operand:
        """Turn a symbol that names a register into one: inline assembly may omit the ``%``."""
        if isinstance(operand, Symbol) and operand.name in self.index:
            return Register(operand.name)
        return operand

    def parts(self, operand: Operand) -> tuple[Operand, ...]:
        """The items of a vector, or the operand itself."""
        return operand.items if isinstance(operand, Vector) else (operand,)


def constant(operand: Immediate, kind: str) -> Array:
    """A literal number as a value of the given type."""
    if kind == "pred":
        return np.bool_(operand.value)
    dtype = DTYPES[kind]
    if operand.float_bits:
        number = np.array(operand.value, f"u{operand.float_bits // 8}")
        value = number.view(f"f{operand.float_bits // 8}")
        if dtype.kind == "f":
            return value.astype(dtype)[()]
        return number.astype(f"u{BITS[kind] // 8}").view(dtype)[()]
    if dtype.kind == "f":
        return dtype.type(operand.value)
    bits = np.array(operand.value % (1 << BITS[kind]), f"u{BITS[kind] // 8}")
    return bits.view(dtype)[()]
