"""Standard streams and signals as a command may find them: closed, full, a pipe nobody reads."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

_SHOW_CURSOR = b"\x1b[?25h"


def prepare() -> None:
    """Before anything is read or written."""
    _fill_the_closed()
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A bar of progress hides the cursor. Without a terminal there is none, and a signal ends us at
    # once, also within a long call of a library, where Python's own handlers wait.
    if sys.stderr.isatty():
        signal.signal(signal.SIGTERM, _end)


def silence() -> None:
    """What cannot be written any more goes nowhere: Python's last flush must not complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fill_the_closed() -> None:
    """The number of a closed stream (``>&-``) goes to the next file opened, and all output too."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The system gives the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _end(number: int, frame: FrameType | None) -> None:
    """By the signal itself, as without a handler, but with the cursor back."""
    with suppress(OSError):
        os.write(2, _SHOW_CURSOR)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
