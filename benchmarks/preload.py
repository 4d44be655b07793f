"""Import the libraries of the CPU backends, and nothing that touches a GPU."""

from __future__ import annotations

import contextlib

import demopool


def preload() -> None:
    """Load every usable backend whose device is the CPU; a broken one fails in its benchmarks."""
    for row in demopool.backends():
        if row["state"] == "ok" and row["backend"].endswith(":cpu"):
            with contextlib.suppress(Exception):
                demopool.backend(row["backend"])
