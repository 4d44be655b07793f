"""Would a mistake in a kernel of cupy:cuda be seen? ``python -m tools.cupy_mutants [kernel ...]``

``cupy_cases`` has the launches, ``mutation`` has the rest. Mutants of what CUDA's own mathematics
puts into a kernel (pow, exp2) are drawn with those of its own code, and judged like
them: the compiler gives both the same line of the source, so nothing tells them apart.
"""

from __future__ import annotations

from tools import cupy_launches
from tools.cupy_cases import CASES, cases
from tools.mutation import Kernels

KERNELS = Kernels(tuple(sorted(CASES)), cases, cupy_launches.compiled, cupy_launches.run)

main = KERNELS.command()

if __name__ == "__main__":
    main()
