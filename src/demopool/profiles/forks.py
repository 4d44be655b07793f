"""Which libraries a forked process cannot use.

A forked process has the memory of its parent and none of its threads: torch's OpenMP waits for them
for ever, CUDA refuses to work. OpenBLAS, and our threads for Numba, start anew. Who calls such a
library himself has decided that; ``auto`` must not take a NumPy program there.
"""

from __future__ import annotations

import os
import sys

from ..problem.vocabulary import Backend

loaded_before: frozenset[str] | None = None
"""In a forked process, the modules that were loaded before it was; else None."""


def obstacle(backend: str) -> str:
    """Why an array should not be taken to a backend in this process; empty if it may be."""
    if loaded_before is None or Backend(backend).survives_fork:
        return ""
    library = Backend(backend).library
    if library not in loaded_before:
        return ""
    return f"this process was forked from one that had loaded {library}, which may hang then"


def _note() -> None:
    global loaded_before
    loaded_before = frozenset(sys.modules)


def _is_forked() -> bool:
    """By ``multiprocessing``, before this was imported. One that was spawned has its command line;
    the server that forks others has loaded nothing."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return False
    return not any(
        word == "--multiprocessing-fork" or word.startswith("from multiprocessing.")
        for word in sys.orig_argv
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note)
    if _is_forked():
        _note()
