"""Decoded functions, and the frame of a call: its registers and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import instructions
from . import memory as space
from .decode import Decoder, Step
from .syntax import BITS, Function, Program

if TYPE_CHECKING:
    from .machine import Wave

Array = Any

# The content of a register before it is written: a value that is easy to recognise. As a double it
# has a moderate size, because arithmetic on extreme values is slow and inactive lanes compute too.
_POISON = {1: 0xA5, 2: 0xA5A5, 4: 0xDEADBEEF, 8: 0xC7DEADBEEFDEADBE}


@dataclass
class Decoded:
    """A function that is ready to run."""

    function: Function
    steps: list[Step]
    register_bytes: list[int]  # 0 for predicates


class Functions:
    """The functions of a program, decoded when they are first run.

    An unsupported instruction is therefore an error only when its function is called.
    """

    def __init__(self, program: Program, names: dict[str, str]) -> None:
        self._program = program
        self._names = {lowered: name for name, lowered in names.items()}
        self._decoded: dict[str, Decoded] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._program.functions

    def __getitem__(self, name: str) -> Decoded:
        if name not in self._decoded:
            function = self._program.functions[name]
            sizes = [
                0 if kind == "pred" else BITS[kind] // 8 for kind in function.registers.values()
            ]
            steps = Decoder(function, instructions.TABLE, self._names.get(name, "")).steps()
            self._decoded[name] = Decoded(function, steps, sizes)
        return self._decoded[name]


class Frame:
    """Registers and parameters of one call."""

    def __init__(self, wave: Wave, decoded: Decoded) -> None:
        self.wave = wave
        self.decoded = decoded
        self.registers: list[Array] = [
            np.asarray(False) if not size else np.array(_POISON[size], space.UNSIGNED[size])
            for size in decoded.register_bytes
        ]
        self.parameters: dict[tuple[str, int], Array] = {}
        self.carry: Array = np.asarray(False)
        # Registers that are still undefined, with the lanes in which they are.
        self.undefined: dict[int, Array] = dict.fromkeys(
            range(len(self.registers)), np.asarray(True)
        )

    def never_written(self, registers: tuple[int, ...], mask: Array) -> Array | None:
        """Lanes of the mask in which one of these registers is undefined; None if there is none."""
        found = None
        for index in registers:
            if index in self.undefined:
                lanes = self.undefined[index] & self.wave.mask_of(mask)
                if lanes.any():
                    found = lanes if found is None else found | lanes
        return found

    def forget(self, registers: tuple[int, ...], lanes: Array) -> None:
        """Mark these registers as undefined in these lanes."""
        for index in registers:
            self.undefined[index] = self.undefined.get(index, np.asarray(False)) | lanes

    def set(self, index: int, value: Array, mask: Array) -> None:
        if index in self.undefined:
            left = self.undefined[index] & ~self.wave.mask_of(mask)
            if left.any() and mask is not None:
                self.undefined[index] = left
            else:
                del self.undefined[index]
        self.registers[index] = (
            value if mask is None else np.where(mask, value, self.registers[index])
        )

    def pass_on(self, name: str, offset: int, value: Array, mask: Array) -> None:
        """Set a parameter or a result of a call, and keep the values that other lanes have set."""
        before = self.parameters.get((name, offset), value)
        self.parameters[name, offset] = value if mask is None else np.where(mask, value, before)

    def parameter(self, name: str, offset: int, width: int) -> Array:
        """A parameter of the kernel, or one passed by a call."""
        if (name, offset) in self.parameters:
            return np.asarray(self.parameters[name, offset]).astype(space.UNSIGNED[width])
        start = self.wave.parameter_offsets[name] + offset
        return np.frombuffer(self.wave.parameter_bytes, space.UNSIGNED[width], 1, start)[0]
