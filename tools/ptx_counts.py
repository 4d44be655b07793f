"""What the sample kernels do, as counts: ``python -m tools.ptx_counts [--write]``.

Counts are the same on every machine. They are kept in a file that a test compares, so that a kernel
(or a compiler) that gets worse shows in the history.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tools import counts

TESTS = Path(__file__).parents[1] / "tests"
FILE = TESTS / "ptx_samples" / "counts.json"


def counted() -> dict[str, dict[str, Any]]:
    """Of every sample on its first case, for sm_80."""
    sys.path.insert(0, str(TESTS))
    from ptx_samples import cases

    found = {}
    for sample in cases.SAMPLES:
        done, _, _ = sample.run(sample.module(), sample.kernel, sample.cases[0])
        found[sample.name] = {"case": list(sample.cases[0]), **done.as_dict()}
    return found


main = counts.command(counted, FILE)

if __name__ == "__main__":
    main()
