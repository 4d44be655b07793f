"""The counter: instructions and simulated cache misses of a call, under valgrind's callgrind.

A count is a property of the code, not of the moment: other processes, the clock of the CPU and the
temperature do not change it, so a small change of the code's own work shows on a noisy machine.

Valgrind interprets every instruction on a virtual CPU without AVX-512, one thread at a time, and
simulates two levels of cache whose sizes are fixed here. What it cannot see: memory bandwidth,
threads, the clock frequency, instructions that take longer than others, the wider vectors and the
prefetching of a real CPU, GPUs.

What moves a count although the code is the same is fixed too: thread counts, hash seed, the BLAS
kernel, the environment's size, and, where the system permits it, the random addresses.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..problem.vocabulary import State
from .worker import Answer, thread_environment

VERSION = "1"
"""Raised when the same code is counted differently: counts from before are then dropped."""
CALLS = 5
"""Counted calls of a job; the figure is their median."""
START_SECONDS = 300.0
"""For the interpreter and its imports: torch takes 20 s under valgrind, on a busy machine more."""

CACHES = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64")
"""Bytes, ways and bytes per line: 32 kB, and 1 MB, which is about what one core has to itself."""

FIXED = {
    "PYTHONHASHSEED": "0",
    # By default from the CPU. Valgrind knows AVX2, so this is what it would come to on most.
    "OPENBLAS_CORETYPE": "Haswell",
    "NUMBA_CPU_NAME": "haswell",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR", "TMPDIR")
"""Variables that are passed on. All others are not: they lie on the stack and move what follows."""

_MARKS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void mark(void) { CALLGRIND_DUMP_STATS; }
void end(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""

_HEADER = re.compile("(events|totals):")

Job = tuple[Callable[[], Any], Callable[[], Any]]


class Counts(NamedTuple):
    """Of one call; the misses are None without a simulation of caches.

    d1_misses           data accesses that miss the first level
    last_level_misses   those that miss the second too
    """

    instructions: int
    d1_misses: int | None = None
    last_level_misses: int | None = None


@cache
def refusal() -> str | None:
    """Why nothing can be counted here, in a sentence that says what to install; else None."""
    if not sys.platform.startswith("linux"):
        return "counting needs valgrind on Linux"
    if shutil.which("valgrind") is None:
        return "valgrind is not installed; install it with: apt-get install valgrind"
    with TemporaryDirectory() as folder:
        try:
            _compile_marks(Path(folder))
        except (OSError, subprocess.CalledProcessError):
            return (
                "no C program can be compiled with valgrind's headers; install a C compiler and "
                "valgrind's headers with: apt-get install gcc libc6-dev valgrind"
            )
    return None


def count(make: Callable[..., Job], *arguments: Any, **options: Any) -> Answer:
    """One job; the options are those of :func:`count_each`."""
    return next(count_each(make, [arguments], **options))


def count_each(
    make: Callable[..., Job],
    jobs: Sequence[tuple[Any, ...]],
    *,
    before: tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
    caches: bool = False,
    calls: int = CALLS,
    seconds: float = 300.0,
) -> Iterator[Answer]:
    """For each job the :class:`Counts` of a call, in order, as they come.

    ``make(*job)`` gives what puts another input before the next call, which is not counted, and the
    call. It runs in another process, so it must be importable. ``before`` is a function and its
    arguments, run once for all jobs: put imports there. A job that takes longer than ``seconds`` is
    given up.
    """
    reason = refusal()
    if reason is not None:
        yield from [Answer(State.UNAVAILABLE, None, reason)] * len(jobs)
        return
    with TemporaryDirectory(prefix="demopool-counts-") as name:
        folder = Path(name)
        asked = {
            "path": [*map(os.path.abspath, sys.path), _folder(make)],
            "before": before and pickle.dumps(before),
            "jobs": pickle.dumps((make, list(jobs))),
            "calls": calls,
            "seconds": seconds,
        }
        (folder / "request").write_bytes(pickle.dumps(asked))
        _compile_marks(folder)
        with _Counted(folder, caches) as counted:
            waits = START_SECONDS
            for number in range(len(jobs)):
                said = counted.said(waits + seconds)
                waits = 10.0  # the next job starts at once
                if said is None:
                    lost = Answer(State.ERROR, None, counted.death())
                    yield from [lost] * (len(jobs) - number)
                    return
                if said["state"] != State.OK:
                    yield Answer(State(said["state"]), None, said["reason"])
                    continue
                yield Answer(State.OK, _read(folder, said["process"], calls))


class _Counted:
    """The process under callgrind, and the pipe on which it says how its jobs went."""

    def __init__(self, folder: Path, caches: bool) -> None:
        self.folder = folder
        self._unread = b""
        self._channel, theirs = os.pipe()
        script = Path(__file__).with_name("counted.py")
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        with (folder / "printed").open("wb") as printed:
            self._process = subprocess.Popen(
                [
                    *_fixed_addresses(),
                    "valgrind",
                    "--quiet",
                    "--tool=callgrind",
                    "--instr-atstart=no",
                    "--callgrind-out-file=counts.%p",
                    *(CACHES if caches else ()),
                    # -P: the script's own folder does not come first, where its modules would hide
                    # those of the library.
                    *(sys.executable, "-P", str(script)),
                    *("request", "./marks.so", str(theirs)),
                ],
                # Relative names: that of the folder is another every time.
                cwd=folder,
                env=thread_environment(1) | FIXED | kept,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=[theirs],
                start_new_session=True,
            )
        os.close(theirs)

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._channel)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def said(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None if it has died, or says nothing for so long."""
        end = time.monotonic() + seconds
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._channel], [], [], max(0.0, end - time.monotonic()))
            received = os.read(self._channel, 1 << 16) if ready else b""
            if not received:
                return None
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return dict(json.loads(line))

    def death(self) -> str:
        """Why it says nothing more."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.returncode
        how = "gave no answer" if code is None else f"ended with code {code}"
        printed = (self.folder / "printed").read_text(errors="replace").split()
        return f"the process under valgrind {how}; it printed last: {' '.join(printed)[-300:]}"


def _read(folder: Path, process: int, calls: int) -> Counts:
    """From the files that callgrind wrote at the marks, of which ``counted.py`` has the order."""

    def part(number: int) -> dict[str, int]:
        file = folder / f"counts.{process}.{number}"
        return totals(file.read_text(encoding="utf-8", errors="replace"))

    empty, counted = part(2), [part(4 + 2 * call) for call in range(calls)]
    each = {name: round(median(one[name] for one in counted)) - empty[name] for name in empty}
    for file in folder.glob(f"counts.{process}*"):
        file.unlink()
    if "D1mr" not in each:
        return Counts(each["Ir"])
    return Counts(each["Ir"], each["D1mr"] + each["D1mw"], each["DLmr"] + each["DLmw"])


def totals(text: str) -> dict[str, int]:
    """The sum of every event in a file of callgrind's, by the event's name."""
    lines = dict(line.split(":", 1) for line in text.splitlines() if _HEADER.match(line))
    try:
        names, sums = lines["events"].split(), [int(number) for number in lines["totals"].split()]
        # It leaves out zeros at the end of a line.
        sums += [0] * (len(names) - len(sums))
        return dict(zip(names, sums, strict=True))
    except (KeyError, ValueError) as problem:
        raise InvalidInput(f"this is no output of callgrind: {problem}.") from None


def _folder(function: Callable[..., Any]) -> str:
    """Where its top-level package lies; asv imports the benchmarks without a place in sys.path."""
    return str(Path(inspect.getfile(function)).parents[function.__module__.count(".")].absolute())


def _compile_marks(folder: Path) -> None:
    """The library that tells callgrind to count, and when to write down its counts."""
    source, library = folder / "marks.c", folder / "marks.so"
    source.write_text(_MARKS)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)


@cache
def _fixed_addresses() -> tuple[str, ...]:
    """Not every container permits it; counts then differ a little more from run to run."""
    command = ("setarch", "-R")
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return command
