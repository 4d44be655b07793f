"""Runs a command that measures, and ends it, whole, when its parent is gone.

    python -m demopool.common.guard FOLDER PATIENCE COMMAND ...

Even after kill -9 of the parent nothing may run beside the next measurement. The guard's
standard input is a pipe that nobody writes to: it ends when the parent does, or wants an end.
FOLDER holds the temporary files of the command; it is removed at the end. PATIENCE is how many
seconds an interrupted command may take to end by itself. Files that the guard has open by
inheritance (the lock of make bench) stay open in the command.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Of Linux, from sys/prctl.h; other systems do without.
_SIGNAL_AT_PARENTS_DEATH, _ADOPT_ORPHANS = 1, 36


def main() -> int:
    folder, patience, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    _prctl(_ADOPT_ORPHANS, 1)
    asv = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder)},
        close_fds=False,
        # If the guard is killed too.
        preexec_fn=lambda: _prctl(_SIGNAL_AT_PARENTS_DEATH, signal.SIGINT),
    )
    while asv.poll() is None:
        gone, _, _ = select.select([sys.stdin], [], [], 0.1)
        if gone:
            _interrupt(asv, patience)
    _end_all()
    shutil.rmtree(folder, ignore_errors=True)
    return asv.returncode if asv.returncode >= 0 else 128 - asv.returncode


def _interrupt(asv: subprocess.Popen[bytes], patience: float) -> None:
    """As Ctrl-C would: asv then ends its fork server and what that has started."""
    asv.send_signal(signal.SIGINT)
    try:
        asv.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        asv.kill()
        asv.wait()


def _end_all() -> None:
    """Kill what the command has left; the children of a killed one become ours in turn."""
    while children := list(_children()):
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def _children() -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may contain anything; state and parent follow.
            parent = status.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # it has ended
        if int(parent) == os.getpid():
            yield int(status.parent.name)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
