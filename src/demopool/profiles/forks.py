"""Which libraries a forked process cannot use.

A forked process has the memory of its parent but none of its threads: torch's OpenMP waits for
them forever, and CUDA refuses to work. OpenBLAS, and our threads for Numba, start again. Users may
call such a library themselves; ``auto`` must not take a NumPy program to one.
"""

from __future__ import annotations

import os
import sys

from ..problem.vocabulary import Backend

loaded_before: frozenset[str] | None = None
"""In a forked process, the modules that were loaded before it was; else None."""


def reason_against(backend: str) -> str:
    """Why an array must not be taken to a backend in this process; empty if it may be."""
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
    """Whether ``multiprocessing`` forked this process before this module was imported.

    A spawned process shows it in its command line; the fork server has loaded nothing.
    """
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
