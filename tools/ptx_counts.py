"""What the sample kernels do, as counts: ``python -m tools.ptx_counts [--write]``.

Counts are the same on every machine. They are kept in a file that a test compares, so that a kernel
(or a compiler) that gets worse shows in the history.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

TESTS = Path(__file__).parents[1] / "tests"
FILE = TESTS / "ptx_samples" / "counts.json"


def counted() -> dict[str, dict[str, Any]]:
    """Of every sample on its first case, for sm_80."""
    sys.path.insert(0, str(TESTS))
    from ptx_samples import cases

    found = {}
    for sample in cases.SAMPLES:
        counts, _, _ = sample.run(sample.module(), sample.kernel, sample.cases[0])
        found[sample.name] = {"case": list(sample.cases[0]), **counts.as_dict()}
    return found


@click.command()
@click.option("--write", is_flag=True, help="Replace the file.")
def main(write: bool) -> None:
    """Print the counts, or write them."""
    text = json.dumps(counted(), indent=1, sort_keys=True) + "\n"
    if write:
        FILE.write_text(text)
    else:
        click.echo(text, nl=False)


if __name__ == "__main__":
    main()
