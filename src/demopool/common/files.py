"""Write files atomically, by one process at a time; read files that may be untrusted."""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InvalidInput

LARGEST = 128_000_000
"""Maximum bytes of a results file; a million asv cells take less."""

UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    SyntaxError,
    RecursionError,
    MemoryError,
)
"""Errors that malformed content can raise, including deep nesting and very long numbers."""

_NAME = re.compile(r"[A-Za-z0-9_.:+-]{1,60}")


def is_name(value: object) -> bool:
    """Whether it is a text that can do nothing in a table, a picture or a page."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def read_text(path: Path) -> str:
    """Read a regular UTF-8 file of at most ``LARGEST`` bytes; otherwise raise ``InvalidInput``.

    Opened without blocking: a fifo has no end, and it may never get a writer.
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
            # Read one byte more than allowed: the stated size may be wrong.
            content = file.read(LARGEST + 1)
        except OSError as problem:
            raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    if len(content) > LARGEST:
        raise InvalidInput(f"{path} cannot be read: it has more than {LARGEST // 10**6} MB.")
    return content.decode("utf-8", errors="replace")


LOCK_SECONDS = 10.0
"""Longer than any lock is held, which is the time to write a small file, unless a process hangs."""


@contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Lock a file against other processes that lock it too.

    The lock is a file beside it, ``NAME.lock``, which stays: the system releases it when a process
    ends, for whatever reason. After ``seconds``, and where the system or the file system has no
    locks, the block runs without one.
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
    """Write text as UTF-8, completely or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside it, then rename: an interrupted write leaves the old file, or none.

    A link stays a link, a file keeps its mode, and a path that is not a file (a pipe) is written
    to directly.
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
    """The mode that open() would give a new file; the umask can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask
