"""Format values with a suitable unit, for tables and sentences."""

from __future__ import annotations

# Minimum value in seconds to use a unit, its size in seconds, its name.
_TIMES = ((3600.0, 3600.0, "h"), (1000.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"))

AXES = {"time": (1e3, "ms"), "memory": (1e-6, "MB")}
"""On an axis: what a value is multiplied by, and the unit it has then; others stay as they are."""


def readable(value: float | None, quantity: str) -> str:
    """A ``time``, ``memory``, ``error``, ``count`` or ``other`` quantity.

    In about three digits, but a count in full: what it shows is in the fourth.
    """
    if value is None:
        return "-"
    if quantity == "time":
        for least, size, unit in _TIMES:
            if value >= 0.9995 * least:
                return f"{_digits(value / size)} {unit}"
        return f"{value * 1e6:.3g} us"
    if quantity == "memory":
        for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            # A value that rounds to 1000 of a unit is 1 of the next.
            if value >= 0.9995 * size:
                return f"{_digits(value / size)} {unit}"
        return f"{value:.0f} B"
    if quantity == "count":
        return f"{value:,.0f}"
    return f"{value:.1e}" if quantity == "error" else f"{value:.4g}"


def _digits(value: float) -> str:
    """About three digits, and no exponent even for large values of the largest unit."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
