"""Functions ready to run, and what a call of one has: its registers and parameters."""

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

# What a register holds before it is written: nobody should rely on it, and it is easy to see. As a
# double it is of moderate size: extreme ones are computed slowly, and dead lanes compute too.
_POISON = {1: 0xA5, 2: 0xA5A5, 4: 0xDEADBEEF, 8: 0xC7DEADBEEFDEADBE}


@dataclass
class Decoded:
    """A function ready to run."""

    function: Function
    steps: list[Step]
    register_bytes: list[int]  # 0 for predicates


class Functions:
    """The functions of a program, decoded when they are first run.

    An instruction nobody knows is an error only for those who use it.
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
        # Registers that nobody has written yet, with the lanes for which that is so.
        self.undefined: dict[int, Array] = dict.fromkeys(
            range(len(self.registers)), np.asarray(True)
        )

    def never_written(self, registers: tuple[int, ...], mask: Array) -> Array | None:
        """Lanes of a mask in which one of these registers has no value; None if there are none."""
        found = None
        for index in registers:
            if index in self.undefined:
                lanes = self.undefined[index] & self.wave.mask_of(mask)
                if lanes.any():
                    found = lanes if found is None else found | lanes
        return found

    def forget(self, registers: tuple[int, ...], lanes: Array) -> None:
        """What these lanes have in these registers is no value."""
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
        """Set a parameter of a call, or a result: other lanes may have set theirs elsewhere."""
        before = self.parameters.get((name, offset), value)
        self.parameters[name, offset] = value if mask is None else np.where(mask, value, before)

    def parameter(self, name: str, offset: int, width: int) -> Array:
        """A parameter of the kernel, or one that a call passed."""
        if (name, offset) in self.parameters:
            return np.asarray(self.parameters[name, offset]).astype(space.UNSIGNED[width])
        start = self.wave.parameter_offsets[name] + offset
        return np.frombuffer(self.wave.parameter_bytes, space.UNSIGNED[width], 1, start)[0]
