"""Every cell of the conformance suite. XLA compiles for each of its shapes, which takes minutes:
``DEMOPOOL_TEST_ALL=1`` judges the largest examples as well."""

import os

from demopool.testing import conformance_cells

test_cell = conformance_cells(
    "jax:cpu", quick=os.environ.get("DEMOPOOL_TEST_ALL") != "1", seconds=3600
)
