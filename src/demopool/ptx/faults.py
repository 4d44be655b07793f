"""What can be wrong with a kernel, and where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import DemopoolError

Index = tuple[int, int, int]


class PtxError(DemopoolError):
    """Base of everything this package raises."""


class CompileError(PtxError):
    """The compiler or the assembler refused the source; the message is theirs."""


class UnknownInstruction(PtxError):
    """PTX that is not understood here: the message names it. Nothing is guessed."""


class LaunchError(PtxError):
    """A launch that a driver would refuse, or that passes arguments the kernel does not take."""


class FaultKind(StrEnum):
    """The closed set of what a running kernel can do wrong."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED = "uninitialised read"
    RACE = "race"
    READ_ONLY = "read-only memory"
    DIVERGENT_BARRIER = "divergent barrier"
    MISSING_THREAD = "missing thread"
    ASSERTION = "assertion"
    RUNAWAY = "runaway"


@dataclass(frozen=True)
class Place:
    """An instruction: the kernel, its line in the PTX, its text, and the line of the source."""

    kernel: str
    line: int
    text: str
    source: str = ""

    def __str__(self) -> str:
        source = f", {self.source}" if self.source else ""
        return f"{self.kernel}, PTX line {self.line}{source}: {self.text}"


class Fault(PtxError):
    """A kernel did something wrong: what, which instruction, and by which thread.

    ``address`` is relative to the start of the ``memory`` it belongs to (an argument, ``shared``).
    """

    def __init__(
        self,
        kind: FaultKind,
        what: str,
        place: Place,
        block: Index,
        thread: Index,
        *,
        memory: str = "",
        address: int | None = None,
    ) -> None:
        self.kind, self.what, self.place = kind, what, place
        self.block, self.thread = block, thread
        self.memory, self.address = memory, address
        super().__init__(f"{kind}: {what}; block {block}, thread {thread}, in {place}")
