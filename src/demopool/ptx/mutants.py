"""Mutants: kernels with one instruction changed, to find out whether their tests notice.

Each change is a small mistake that a person or a compiler could make: another operation or
comparison, swapped operands, a number off by one, an address off by one element, a missing
instruction, an inverted branch. Changes without effect are not made (address conversions that
change no bit, the order of the operands of a sum).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .module import Module
from .syntax import BITS, Address, Immediate, Instruction, Operand, Program, Register, Vector

_OTHER_OPERATION = {
    "add": "sub",
    "sub": "add",
    "min": "max",
    "max": "min",
    "and": "or",
    "or": "and",
    "xor": "or",
    "shl": "shr",
    "mul": "add",
    "div": "mul",
}
_NEXT_COMPARISON = {
    "lt": "le",
    "le": "lt",
    "gt": "ge",
    "ge": "gt",
    "eq": "ne",
    "ne": "eq",
    "lo": "ls",
    "ls": "lo",
    "hi": "hs",
    "hs": "hi",
    "ltu": "leu",
    "leu": "ltu",
    "gtu": "geu",
    "geu": "gtu",
    "equ": "neu",
    "neu": "equ",
}
_ORDERED = {"sub", "div", "rem", "shl", "shr", "selp", "setp"}
_KEPT = {"ret", "exit", "bra", "cvta", "call", "trap", "ld", "nanosleep"}
"""Instructions that are never removed: nothing would change, or nothing would be left to run."""


@dataclass(frozen=True)
class Mutant:
    """A module with one change, which ``what`` describes.

    ``line`` is its line in the PTX, ``source`` its file and line where the PTX names them.
    """

    module: Module
    kernel: str
    line: int
    what: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.kernel}, PTX line {self.line}: {self.what}"


def mutants(module: Module, kernel: str = "", count: int = 50, seed: int = 0) -> Iterator[Mutant]:
    """Distinct mutants of one kernel, drawn without replacement; the seed determines the draw.

    Only instructions that launches of this module have executed are changed, because a test cannot
    detect a change in code that it never reaches. ``coverage`` gives their share.
    """
    function = module.kernel(kernel)
    reached = module.executed.get(function.name, set())
    possible = [
        (at, changed, what)
        for at, ins in enumerate(function.code)
        if ins.line in reached
        for changed, what in _changes(ins, function.registers)
    ]
    rng = np.random.default_rng(seed)
    for i in rng.permutation(len(possible))[:count]:
        at, changed, what = possible[i]
        yield Mutant(
            _with(module, function.name, at, changed),
            module.name_of(function),
            function.code[at].line,
            what,
            function.code[at].source,
        )


def coverage(module: Module, kernel: str = "") -> float:
    """Share of a kernel's instructions that launches have executed."""
    function = module.kernel(kernel)
    reached = module.executed.get(function.name, set())
    return sum(ins.line in reached for ins in function.code) / max(len(function.code), 1)


def _with(module: Module, kernel: str, at: int, changed: Instruction | None) -> Module:
    """A copy of a module in which one instruction is replaced, or removed (None)."""
    program = module.program
    function = program.functions[kernel]
    code, labels = list(function.code), dict(function.labels)
    if changed is None:
        del code[at]
        labels = {name: target - (target > at) for name, target in labels.items()}
    else:
        code[at] = changed
    functions = {**program.functions, kernel: replace(function, code=code, labels=labels)}
    copy = replace(module, executed={})
    copy.__dict__["program"] = Program(**{**vars(program), "functions": functions})
    return copy


def _changes(
    ins: Instruction, registers: dict[str, str]
) -> Iterator[tuple[Instruction | None, str]]:
    """Every change of one instruction, with its description."""
    if ins.op not in _KEPT:
        yield None, f"`{ins.text}` left out"
    if ins.guard is not None:
        other = replace(ins, guard=replace(ins.guard, negated=not ins.guard.negated))
        yield other, f"`{ins.text}` the other way"
    for changed in (*_operations(ins), *_operands(ins, registers)):
        if changed != ins:
            yield changed, f"`{ins.text}` -> `{changed.text}`"


def _operations(ins: Instruction) -> Iterator[Instruction]:
    if ins.op in _OTHER_OPERATION and ins.type != "pred":
        modifiers = ins.modifiers
        if ins.op == "mul":
            if "wide" in modifiers:
                return
            modifiers = tuple(m for m in modifiers if m not in ("lo", "hi"))
        if ins.op == "div":
            modifiers = tuple(m for m in modifiers if m not in ("full", "approx"))
            modifiers = modifiers if ins.type in ("f32", "f64") else ("lo", *modifiers)
        yield replace(ins, op=_OTHER_OPERATION[ins.op], modifiers=modifiers)
    if ins.op in ("setp", "set") and ins.modifiers[0] in _NEXT_COMPARISON:
        modifiers = (_NEXT_COMPARISON[ins.modifiers[0]], *ins.modifiers[1:])
        yield replace(ins, modifiers=modifiers)
    if ins.op in _ORDERED and not {"eq", "ne", "equ", "neu"} & set(ins.modifiers):
        target, first, second, *rest = ins.operands
        yield replace(ins, operands=(target, second, first, *rest))
    if ins.op == "fma":
        target, a, b, c = ins.operands
        yield replace(ins, operands=(target, a, c, b))


def _operands(ins: Instruction, registers: dict[str, str]) -> Iterator[Instruction]:
    """Change one operand slightly: a number, an address, the order of a fragment's registers, or
    to the neighbouring register."""
    if ins.op in ("bra", "call", "bar", "barrier"):
        return
    first = 1 if ins.op != "st" and ins.op != "red" else 0
    for i, operand in enumerate(ins.operands):
        if i < first and not isinstance(operand, Address):
            continue
        for changed in _other_operand(ins, operand, registers):
            operands = (*ins.operands[:i], changed, *ins.operands[i + 1 :])
            yield replace(ins, operands=operands)


def _other_operand(
    ins: Instruction, operand: Operand, registers: dict[str, str]
) -> Iterator[Operand]:
    if isinstance(operand, Immediate):
        yield replace(operand, value=_other_number(operand, ins.op))
    elif isinstance(operand, Address) and "param" not in ins.modifiers:
        yield replace(operand, offset=operand.offset + max(BITS.get(ins.type, 32) // 8, 1))
    elif isinstance(operand, Vector) and ins.op == "mma" and len(operand.items) > 1:
        yield replace(operand, items=(*operand.items[1:], operand.items[0]))
    elif isinstance(operand, Register) and operand.name in registers:
        neighbour = _neighbour(operand.name, registers)
        if neighbour is not None and Register(neighbour) not in ins.operands:
            yield replace(operand, name=neighbour)


def _other_number(operand: Immediate, op: str) -> int:
    """The next integer; a mask with its lowest bit flipped; a float with its highest fraction bit
    flipped, or 1 instead of 0."""
    if op in ("and", "or", "xor"):
        return operand.value ^ ((operand.value & -operand.value) or 1)
    if op == "selp" and not operand.float_bits:
        return int(operand.value == 0)  # usually a truth value: all other numbers act like 1
    if not operand.float_bits:
        return operand.value + 1
    ones, fraction = (0x3F800000, 22) if operand.float_bits == 32 else (0x3FF << 52, 51)
    return operand.value ^ (1 << fraction) if operand.value else ones


def _neighbour(name: str, registers: dict[str, str]) -> str | None:
    """The preceding register of the same type, if there is one."""
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    before = f"{stem}{int(number) - 1}" if number and int(number) > 1 else ""
    return before if registers.get(before) == registers[name] else None
