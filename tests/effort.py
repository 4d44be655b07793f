"""How hard a search tries: a draw of its cases, or all of them in ``make test-all``."""

from __future__ import annotations

import os
from typing import TypeVar

VARIABLE = "DEMOPOOL_TEST_ALL"
T = TypeVar("T")


def cases(all_of_them: T, draw: T) -> T:
    """How many examples a property test runs, or which values a parameter takes."""
    return all_of_them if os.environ.get(VARIABLE) == "1" else draw
