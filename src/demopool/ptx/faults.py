"""Errors of kernels and launches, and where they occurred."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..errors import DemopoolError

Index = tuple[int, int, int]


class PtxError(DemopoolError):
    """Base class of all errors that this package raises."""


class CompileError(PtxError):
    """The compiler or the assembler rejected the source; this is its message."""


class UnknownInstruction(PtxError):
    """The PTX contains something unsupported, which the message names. Nothing is guessed."""


class LaunchError(PtxError):
    """A driver would reject the launch, or its arguments do not match the kernel's parameters."""


class FaultKind(StrEnum):
    """All kinds of faults that a running kernel can cause."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED = "uninitialised read"
    RACE = "race"
    PENDING_COPY = "pending copy"
    READ_ONLY = "read-only memory"
    DIVERGENT_BARRIER = "divergent barrier"
    MISSING_THREAD = "missing thread"
    UNDEFINED = "undefined operand"
    ASSERTION = "assertion"
    RUNAWAY = "runaway"


@dataclass(frozen=True)
class Place:
    """The location of an instruction: kernel, line in the PTX, text, and line in the source."""

    kernel: str
    line: int
    text: str
    source: str = ""

    def __str__(self) -> str:
        source = f", {self.source}" if self.source else ""
        return f"{self.kernel}, PTX line {self.line}{source}: {self.text}"


class Fault(PtxError):
    """An error of a running kernel: what happened, at which instruction, in which thread.

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
