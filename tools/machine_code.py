"""What the machine code of a kernel shows: its main loop, what that reads, and what hides it.

Text of ``nvdisasm`` in, counts out. A loop is found by the branch that closes it, and the main one
is the innermost with most products. A thread starts its instructions in order, and waits for memory
where it first uses what it has read: only what stands between a load and the first use of its
registers hides the load.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_KERNEL = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+),", re.MULTILINE)
_LINE = re.compile(
    r"^(?P<label>\.L_\w+):|/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?(?P<name>[A-Z][\w.]*)(?P<rest>[^;]*);",
    re.MULTILINE,
)
_REGISTER = re.compile(r"\bR(\d+)\b(\.64)?")
_PRODUCTS = {"FFMA": 1, "FFMA2": 2, "DFMA": 1, "HMMA": 1}


class Instruction(NamedTuple):
    """``LDS.128 R64, [R129.X4+0x80]``, without its predicate."""

    name: str
    operands: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.name.partition(".")[0]

    @property
    def bits(self) -> int:
        """Of a load or a store, for each thread."""
        found = re.search(r"\.(64|128)\b", self.name)
        return int(found[1]) if found else 32

    @property
    def written(self) -> set[int]:
        """Registers that a load fills."""
        first = int(self.operands[0].removeprefix("R"))
        return set(range(first, first + self.bits // 32))

    @property
    def read(self) -> set[int]:
        """Registers that it uses; an operand may be several of them, and names the first."""
        found: set[int] = set()
        for place, operand in enumerate(self.operands):
            if place == 0 and "[" not in operand:
                continue  # what it writes
            for number, pair in _REGISTER.findall(operand):
                count = 2 if pair else 1 if "[" in operand else self._width(place)
                found.update(range(int(number), int(number) + count))
        return found

    def _width(self, place: int) -> int:
        """Registers of an operand."""
        if self.kind == "HMMA":  # m16n8k8 of TF32: a factor of four, one of two, and the sum
            return 2 if place == 2 else 4
        return 2 if self.kind[0] == "D" or self.kind == "FFMA2" else self.bits // 32


class Loop(NamedTuple):
    """Instructions from the target of a branch back to the branch."""

    instructions: tuple[Instruction, ...]

    def count(self, kind: str, bits: int | None = None) -> int:
        return sum(
            one.kind == kind and (bits is None or one.bits == bits) for one in self.instructions
        )

    @property
    def products(self) -> int:
        """Multiplications with an addition by threads, or products of tensor cores."""
        return _products(self.instructions)

    @property
    def per_load(self) -> float | None:
        """Products for each load from shared memory."""
        loads = self.count("LDS")
        return self.products / loads if loads else None

    @property
    def hidden(self) -> int | None:
        """The fewest products between a load from global memory and the first use of it, where the
        loop goes on from its end to its start."""
        found = [
            _products(self._until_used(place))
            for place, one in enumerate(self.instructions)
            if one.kind == "LDG"
        ]
        return min(found, default=None)

    def _until_used(self, place: int) -> Sequence[Instruction]:
        filled = self.instructions[place].written
        after = self.instructions[place + 1 :] + self.instructions[:place]
        used = (i for i, one in enumerate(after) if one.read & filled)
        return after[: next(used, len(after))]


class Kernel(NamedTuple):
    """Of one architecture."""

    instructions: int
    loop: Loop | None


def _products(instructions: Sequence[Instruction]) -> int:
    return sum(_PRODUCTS.get(one.kind, 0) for one in instructions)


def kernels(text: str) -> dict[str, Kernel]:
    """By the names that the compiler gave them."""
    pieces = _KERNEL.split(text)[1:]
    return {name: _kernel(code) for name, code in zip(pieces[::2], pieces[1::2], strict=True)}


def _kernel(code: str) -> Kernel:
    labels: dict[str, int] = {}
    instructions: list[Instruction] = []
    closed: list[tuple[int, int]] = []
    for line in _LINE.finditer(code):
        if line["label"]:
            labels[line["label"]] = len(instructions)
            continue
        operands = tuple(part.strip() for part in line["rest"].split(",") if part.strip())
        instructions.append(Instruction(line["name"], operands))
        target = re.search(r"`\((\.L_\w+)\)", line["rest"])
        if instructions[-1].kind == "BRA" and target and target[1] in labels:
            closed.append((labels[target[1]], len(instructions)))
    innermost = [
        Loop(tuple(instructions[start:end]))
        for start, end in closed
        if not any((start, end) != (s, e) and start <= s and e <= end for s, e in closed)
    ]
    main = max(innermost, key=_weight, default=None)
    return Kernel(sum(one.kind != "NOP" for one in instructions), main)


def _weight(loop: Loop) -> tuple[int, int, int]:
    return loop.products, loop.count("LDG") + loop.count("LDS"), len(loop.instructions)
