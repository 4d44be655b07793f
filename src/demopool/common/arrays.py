"""Arrays of any library."""

from __future__ import annotations

from typing import Any


def overwritten(placed: Any, fresh: Any) -> Any:
    """The array with the values of another, at its own address if its library can write to it."""
    try:
        placed[:] = fresh
    except Exception:
        return fresh
    return placed
