"""The content of a PTX file as plain values (created by ``parser``, changed by ``mutants``)."""

from __future__ import annotations

from dataclasses import dataclass, field

BITS = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "tf32": 32,
    "f64": 64,
    "f16x2": 32,
    "bf16x2": 32,
    "pred": 1,
}
"""Width in bits of every supported PTX type."""


@dataclass(frozen=True)
class Register:
    """``%r1``; a guard or a predicate can be negated: ``!%p1``."""

    name: str
    negated: bool = False

    def __str__(self) -> str:
        return "!" * self.negated + self.name


@dataclass(frozen=True)
class Immediate:
    """A literal number: an integer, or the bits of a float (``0f3F800000``)."""

    value: int
    float_bits: int = 0

    def __str__(self) -> str:
        if self.float_bits:
            return f"{'0f' if self.float_bits == 32 else '0d'}{self.value:0{self.float_bits // 4}X}"
        return str(self.value)


@dataclass(frozen=True)
class Symbol:
    """The name of a variable, a parameter, a function or a label."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Address:
    """``[base+offset]``."""

    base: Register | Symbol | Immediate
    offset: int = 0

    def __str__(self) -> str:
        return f"[{self.base}{f'+{self.offset}' if self.offset else ''}]"


@dataclass(frozen=True)
class Vector:
    """``{%f1, %f2}``; also the parenthesised lists of a call, and the pair ``%p1|%p2``."""

    items: tuple[Operand, ...]
    brackets: str = "{}"

    def __str__(self) -> str:
        if self.brackets == "|":
            return "|".join(map(str, self.items))
        return self.brackets[0] + ", ".join(map(str, self.items)) + self.brackets[1]


Operand = Register | Immediate | Symbol | Address | Vector


@dataclass(frozen=True)
class Instruction:
    """One instruction: ``@!%p1 setp.lt.s32 %p2, %r1, %r2``."""

    op: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    line: int = 0
    source: str = ""

    @property
    def text(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        operands = ", ".join(map(str, self.operands))
        return f"{guard}{'.'.join((self.op, *self.modifiers))} {operands}".rstrip()

    @property
    def type(self) -> str:
        """The type of the instruction: in PTX, its last modifier."""
        return self.modifiers[-1] if self.modifiers else ""


@dataclass(frozen=True)
class Variable:
    """A parameter or a variable in memory; ``size`` is in bytes, 0 if the launch sets it."""

    name: str
    type: str
    size: int
    align: int
    initial: bytes = b""


@dataclass
class Function:
    """A kernel (``is_entry``) or a function it calls."""

    name: str
    is_entry: bool
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    registers: dict[str, str] = field(default_factory=dict)
    shared: list[Variable] = field(default_factory=list)
    local: list[Variable] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    max_threads: int = 1024


@dataclass
class Program:
    """A whole file; ``dynamic_shared`` are names of the one array whose size the launch sets."""

    target: str
    functions: dict[str, Function] = field(default_factory=dict)
    shared: list[Variable] = field(default_factory=list)
    memory: list[Variable] = field(default_factory=list)
    constants: list[Variable] = field(default_factory=list)
    dynamic_shared: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(name for name, function in self.functions.items() if function.is_entry)
