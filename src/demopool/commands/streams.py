"""Handle standard streams that are closed, full, or a pipe without a reader; and signals."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

_SHOW_CURSOR = b"\x1b[?25h"


def prepare() -> None:
    """Prepare streams and signals, before anything is read or written."""
    _replace_closed_streams()
    _keep_output_apart()
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show must not be an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A progress bar hides the cursor. Without a terminal there is no bar, and without a handler the
    # signal ends us at once, even within a long library call, where Python's handlers would wait.
    if sys.stderr.isatty():
        signal.signal(signal.SIGTERM, _end)


def silence() -> None:
    """Discard output that can no longer be written, so that Python's final flush does not fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _replace_closed_streams() -> None:
    """Open closed streams (``>&-``) on the null device: otherwise the next file that is opened
    would get their number, and all their output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The system assigns the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _keep_output_apart() -> None:
    """Give our output a descriptor of its own: what libraries and plug-ins write to that of
    standard output, past Python, goes to standard error and cannot get into our JSON."""
    was = sys.stdout
    if not isinstance(was, io.TextIOWrapper) or was is not sys.__stdout__ or was.fileno() != 1:
        return
    buffering = 1 if was.line_buffering else -1
    sys.stdout = os.fdopen(os.dup(1), "w", buffering, was.encoding, was.errors)
    os.dup2(2, 1)


def _end(number: int, frame: FrameType | None) -> None:
    """Restore the cursor, then die from the signal as if there were no handler."""
    with suppress(OSError):
        os.write(2, _SHOW_CURSOR)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
