"""The conformance suite: every cell of the capability table, judged by the reference.

:mod:`.features` makes the input, :mod:`.examples` the questions and their answers,
:mod:`.tolerance` says how far off a right answer may be and why, :mod:`.laws` what must hold
whatever the reference says, :mod:`.engine` runs one cell, :mod:`.cells` does it in a process,
:mod:`.matrix` runs them all, :mod:`.verdicts` keeps what was found.
"""

from .cells import Cell, failed
from .matrix import check, reproduce

__all__ = ["Cell", "check", "failed", "reproduce"]
