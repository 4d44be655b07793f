"""Identify the code that was measured by a digest of its files, without loading any library."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..contract import registry
from ..problem.vocabulary import BACKENDS

_SUFFIXES = (".py", ".cu", ".json")


@cache
def code_key(backend: str) -> str:
    """A digest of the code that a backend's results depend on: its package and shared code.

    Of a plug-in also the versions that its probe reports: the fingerprint knows those of ours.
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
    for place in (*_places(specification.load.__module__), *_shared()):
        inside = place.rglob("*") if place.is_dir() else [place]
        files += [file for file in inside if file.suffix in _SUFFIXES]
    digest = hashlib.sha256()
    if backend not in BACKENDS:
        digest.update(repr(sorted(registry.probe(backend).versions.items())).encode())
    for file in sorted(files, key=lambda file: (file.parent.name, file.name)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _places(module: str) -> list[Path]:
    """The folders of the package that contains a module; the file of a module without one."""
    loaded = importlib.import_module(module)
    if loaded.__package__:
        return [Path(path) for path in importlib.import_module(loaded.__package__).__path__]
    return [Path(loaded.__file__)] if loaded.__file__ else []


def _shared() -> list[Path]:
    spec = find_spec("demopool.implementations.shared")
    return [Path(path) for path in (spec.submodule_search_locations or ())] if spec else []
