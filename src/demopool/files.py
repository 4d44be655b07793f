"""Writing files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .errors import InvalidInput


def write_text(path: Path, text: str) -> None:
    """Write beside, then rename: an interrupted write leaves the old file, or none."""
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except OSError as problem:
        Path(beside).unlink(missing_ok=True)
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
