"""Writing files whole, by one process at a time; reading files that may be a stranger's."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InvalidInput

LARGEST = 128_000_000
"""Bytes of a file of results; a million cells of asv's take less."""

UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""What nonsense in a file can raise, its nesting and the length of its numbers included."""


def read_text(path: Path) -> str:
    """A regular file of UTF-8 of at most ``LARGEST`` bytes; anything else is a sentence.

    Opened without waiting: a fifo has no end, and nobody may ever write into it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InvalidInput(f"{path} cannot be read: it is not a regular file.")
    with os.fdopen(handle, "rb") as file:
        try:
            # One more than allowed: what the size says need not be what comes.
            content = file.read(LARGEST + 1)
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    if len(content) > LARGEST:
        raise InvalidInput(f"{path} cannot be read: it has more than {LARGEST // 10**6} MB.")
    return content.decode("utf-8", errors="replace")


LOCK_SECONDS = 10.0
"""Nobody holds a lock for longer than it takes to write a small file, unless something hangs."""


@contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Keep other processes that ask for the same from changing a file meanwhile.

    The lock is a file beside it, ``NAME.lock``, which stays: the system releases it when a process
    ends, however that happens. After ``seconds``, and where the system or the file system has no
    locks, the work is done without one.
    """
    try:
        import fcntl
    except ImportError:  # not a Unix
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("ab") as file:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    break
                time.sleep(0.01)
            except OSError:
                break
        yield  # closing the file releases it


def write_text(path: Path, text: str) -> None:
    """Text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside, then rename: an interrupted write leaves the old file, or none.

    A link stays a link, a file keeps its mode, and what is not a file (a pipe) is written to.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        try:
            path.write_bytes(content)
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None
        return
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(beside, stat.S_IMODE(path.stat().st_mode) if path.exists() else _new_file_mode())
        os.replace(beside, path)
    except OSError as problem:
        Path(beside).unlink(missing_ok=True)
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _new_file_mode() -> int:
    """What an ordinary open() would give; the mask can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask
