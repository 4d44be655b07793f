"""Identify the code that was measured by a digest of its files, without loading any library."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..contract import registry

_SUFFIXES = (".py", ".cu", ".json")


@cache
def code_key(backend: str) -> str:
    """A digest of our own code that a backend's results depend on: its package and shared code.

    Empty for a backend that is not registered, or not any more.
    """
    if backend not in registry.names():
        return ""
    specification = registry.entry(backend).specification
    if specification is None:
        return ""
    own = Path(__file__).parent.parent
    files = [own / "trials" / name for name in ("jobs.py", "streams.py", "answers.py")]
    files += [own / "choosing" / "referee.py"]
    files += [own / "pooling" / name for name in ("operations.py", "description.py")]
    for folder in (*_folders(specification.load.__module__), *_shared()):
        files += [file for file in folder.rglob("*") if file.suffix in _SUFFIXES]
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: (file.parent.name, file.name)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _folders(module: str) -> list[Path]:
    """The folders of the package that contains a module."""
    package = importlib.import_module(module).__package__
    paths = importlib.import_module(package).__path__ if package else []
    return [Path(path) for path in paths]


def _shared() -> list[Path]:
    spec = find_spec("demopool.implementations.shared")
    return [Path(path) for path in (spec.submodule_search_locations or ())] if spec else []
