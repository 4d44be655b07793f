"""Import the libraries of the CPU backends, and nothing that uses a GPU."""

from __future__ import annotations

import contextlib

import demopool

from .harness import vocabulary


def preload() -> None:
    """Load every usable CPU backend; the benchmarks of a broken one report its error."""
    for row in demopool.backends():
        if row["state"] == "ok" and vocabulary.Backend(row["backend"]).on_host:
            with contextlib.suppress(Exception):
                demopool.backend(row["backend"])
