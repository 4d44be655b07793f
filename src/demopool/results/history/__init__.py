"""What happened from commit to commit: :mod:`.analysis` finds it, the rest shows it."""

from .analysis import (
    Point,
    Regression,
    Series,
    Step,
    Thresholds,
    commits,
    only,
    regressions,
    series,
    steps,
)
from .levels import Level

__all__ = [
    "Level",
    "Point",
    "Regression",
    "Series",
    "Step",
    "Thresholds",
    "commits",
    "only",
    "regressions",
    "series",
    "steps",
]
