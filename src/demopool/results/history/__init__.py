"""What happened from commit to commit, and what of it is a regression.

:mod:`.points` makes series of the table of results, :mod:`.levels` and :mod:`.changes` find the
steps in them, :mod:`.judging` tells regressions from the machine's doing, :mod:`.losses` what is no
longer measured, :mod:`.confirming` what measuring again has shown; :mod:`.text` and
:mod:`.sentences` say it.
"""

from .changes import Step, Thresholds, steps
from .confirming import Confirmation
from .judging import Regression, hints, regressions
from .levels import Level
from .losses import Loss, losses
from .points import Point, Series, commits, only, series

__all__ = [
    "Confirmation",
    "Level",
    "Loss",
    "Point",
    "Regression",
    "Series",
    "Step",
    "Thresholds",
    "commits",
    "hints",
    "losses",
    "only",
    "regressions",
    "series",
    "steps",
]
