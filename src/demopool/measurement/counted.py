"""The counted side of ``counting.py``: a script that runs under callgrind, with the standard
library only.

It imports what all jobs need once, uncounted, and forks for each job. So every job starts from the
same state, whatever ran before, and the import of a large library is paid once. A job is made and
warmed up uncounted; then callgrind counts, and writes down what it counted at every mark.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pickle
import signal
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP = 16
"""Calls before any is counted. CPython adapts its bytecode, and libraries fill their caches."""
OK, SAID, SILENT = 0, 1, 2
"""How the process of a job ends: counted, failed and said why, failed without a word."""


def main(request: Path, marks: str, channel: int) -> None:
    """Count every job of the pickled request, and say how each went in a line of JSON."""
    parent = os.getppid()
    asked = pickle.loads(request.read_bytes())
    sys.path[:] = asked["path"]
    counter = ctypes.CDLL(marks)
    # Looked up now: the first access to a function of a library resolves its name.
    begin, mark, end = counter.begin, counter.mark, counter.end
    before = asked["before"]
    if before is not None:
        function, arguments = pickle.loads(before)
        function(*arguments)
    make, jobs = pickle.loads(asked["jobs"])

    def count(number: int) -> None:
        renew, call = make(*jobs[number])
        # A collection now and then would be charged to whichever call it interrupts.
        gc.collect()
        gc.disable()
        for _ in range(WARM_UP):
            renew()
            call()
        begin()
        for _ in range(2):  # fill the simulated caches
            renew()
            call()
        mark()
        mark()  # nothing lies between these two but a mark
        for _ in range(asked["calls"]):
            renew()
            mark()
            call()
            mark()
        end()

    for number in range(len(jobs)):
        process = os.fork()
        if process == 0:
            _end_with(count, number, channel)
        code = _waited(process, asked["seconds"], parent)
        if code in (OK, SAID):
            continue
        if code is None:
            _say(channel, number, state="timeout", reason=f"not counted in {asked['seconds']:g} s")
        else:
            how = f"died of signal {-code}" if code < 0 else f"exited with code {code}"
            _say(channel, number, state="error", reason=f"its process {how}")


def _end_with(count: Any, number: int, channel: int) -> None:
    """Count, and end this process without what Python does at exit."""
    code = SILENT
    try:
        count(number)
        _say(channel, number, state="ok", process=os.getpid())
        code = OK
    except BaseException as problem:
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        _say(channel, number, state="error", reason=f"it raised {reason[:300]}")
        code = SAID
    finally:
        os._exit(code)


def _waited(process: int, seconds: float, parent: int) -> int | None:
    """The exit code, or minus the signal; None if it had to be killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and os.getppid() == parent:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    if os.getppid() != parent:
        sys.exit("nobody waits for the counts any more")
    return None


def _say(channel: int, number: int, **facts: Any) -> None:
    os.write(channel, (json.dumps({"job": number, **facts}) + "\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
