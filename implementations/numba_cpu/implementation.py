"""NumPy arrays and the kernels of numba:cpu, by operation and route."""

from __future__ import annotations

from typing import ClassVar

from demopool.contract import Hashes, Kernel
from demopool.implementations.numba_cpu import pool, power, sketch, weights
from demopool.implementations.shared.host import HostImplementation
from demopool.implementations.shared.table import kernel_table


class NumbaImplementation(HostImplementation):
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = kernel_table(weights, pool, sketch, power)

    def prepare(self, hashes: Hashes) -> sketch.PreparedHashes:
        return sketch.prepare(hashes)
