"""Cells of the conformance suite. XLA compiles for each of its shapes, so all of them take long:
``DEMOPOOL_TEST_ALL=1`` judges them; otherwise the ones that compile fast are judged."""

import os

from demopool.testing import conformance_cells

ALL = os.environ.get("DEMOPOOL_TEST_ALL") == "1"
test_cell = conformance_cells(
    "jax:cpu", operations=() if ALL else ("pool", "normalize"), quick=not ALL, seconds=3600
)
