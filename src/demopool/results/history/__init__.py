"""What happened from commit to commit: :mod:`.analysis` finds it, the rest shows it."""

from .analysis import (
    Level,
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
