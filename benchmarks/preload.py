"""Import the libraries of the CPU backends, and nothing that uses a GPU."""

from __future__ import annotations

import contextlib

import demopool


def preload() -> None:
    """Load every usable CPU backend; the benchmarks of a broken one report its error."""
    for row in demopool.backends():
        if row["state"] == "ok" and row["backend"].endswith(":cpu"):
            with contextlib.suppress(Exception):
                demopool.backend(row["backend"])
