"""How hard a search tries: a draw of its cases, or all of them in ``make test-all``."""

from __future__ import annotations

import os

VARIABLE = "DEMOPOOL_TEST_ALL"


def cases(all_of_them: int, draw: int) -> int:
    """How many examples a property test runs."""
    return all_of_them if os.environ.get(VARIABLE) == "1" else draw
