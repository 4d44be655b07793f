"""``python -m tools.ratios``, or with the names of backends."""

from __future__ import annotations

import subprocess
import sys

from rich.console import Console

from demopool.contract import registry
from demopool.machine.fingerprint import BUSY
from demopool.machine.system import busy_share
from tools.ratios.measuring import BACKENDS, measure


def main() -> int:
    console = Console()
    wanted = sys.argv[1:] or [name for name in BACKENDS if registry.probe(name).state == "ok"]
    for backend in wanted:
        if backend not in BACKENDS:
            console.print(f"There are no ratios for {backend}, only for {', '.join(BACKENDS)}.")
            return 2
    busy = busy_share()
    if busy is not None and busy > BUSY:
        console.print(
            f"Warning: other processes use {busy:.0%} of the cores; these ratios are unreliable."
        )
    if len(wanted) == 1:
        measure(wanted[0], console)
        return 0
    # Each in its own process, because spinning threads of OpenBLAS slow torch down.
    for backend in wanted:
        subprocess.run([sys.executable, "-m", "tools.ratios", backend], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
