"""Would a mistake in a kernel of numba:cuda be seen? ``python -m tools.numba_mutants [kernel ...]``

``numba_cases`` has the launches, ``mutation`` has the rest.
"""

from __future__ import annotations

from tools import numba_launches
from tools.mutation import Kernels
from tools.numba_cases import CASES, cases

KERNELS = Kernels(tuple(sorted(CASES)), cases, numba_launches.compiled, numba_launches.run)

main = KERNELS.command()

if __name__ == "__main__":
    main()
