"""NumPy arrays and the kernels of numba:cpu, by operation and route."""

from __future__ import annotations

from typing import ClassVar

from demopool.contract import Hashes, Kernel
from demopool.implementations.shared.host import HostImplementation
from demopool.implementations.shared.table import kernel_table

from . import pool, power, sketch, weights


class NumbaImplementation(HostImplementation):
    pools_normalized = True
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = kernel_table(weights, pool, sketch, power)

    def prepare(self, hashes: Hashes) -> sketch.PreparedHashes:
        return sketch.prepare(hashes)
