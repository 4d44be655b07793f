"""What the kernels of numba:cuda do, as counts: ``python -m tools.numba_counts [--write]``.

Each is launched once, from its PTX, on arrays of a few tiles. Counts are the same on every machine;
a test compares them with the file, so that a kernel that gets worse shows in the history.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tools import counts
from tools import numba_launches as made
from tools.kernel_arrays import EVEN, Sizes, positive, random
from tools.numba_launches import Launch

FILE = Path(__file__).parents[1] / "tests" / "numba_cuda_counts.json"


def _spread(count: int, *, dtype: Any) -> Any:
    """Positive numbers of all magnitudes, subnormal ones among them, and a zero."""
    found = np.logspace(-42, 37, count).astype(dtype)
    found[count // 2] = 0
    return found


def _gram(dtype: Any, z: Sizes = EVEN) -> Launch:
    return made.gram(random(z.images, z.n, z.d, dtype=dtype))


def _step(dtype: Any, z: Sizes = EVEN) -> Launch:
    K = positive(z.images, z.n, z.n, dtype=dtype)
    targets = _spread(z.images * z.n, dtype=dtype).reshape(z.images, z.n) + dtype(1e-44)
    a = positive(z.images, z.n, dtype=dtype)
    a[:, 2:5] = 0
    return made.step(K, targets, a)


def _small_image(dtype: Any, z: Sizes = EVEN) -> Launch:
    n = min(z.n, 64)
    targets, a = (positive(z.images, n, dtype=dtype) for _ in range(2))
    return made.small_image(positive(z.images, n, n, dtype=dtype), targets, a)


def _row_forms(dtype: Any, z: Sizes = EVEN) -> Launch:
    M = random(z.images, z.d, z.d, dtype=dtype)
    return made.row_forms(random(z.images, z.n, z.d, dtype=dtype), M)


def _outer(dtype: Any, z: Sizes = EVEN) -> Launch:
    X, a = random(z.images, z.d, z.n, dtype=dtype), positive(z.images, z.d, dtype=dtype)
    return made.outer(X, a)


def _weighted_sum(dtype: Any, z: Sizes = EVEN) -> Launch:
    X, a = random(z.images, z.n, z.d, dtype=dtype), positive(z.images, z.n, dtype=dtype)
    return made.weighted_sum(X, a)


def _hashes(z: Sizes) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    bins = [rng.integers(0, z.k, z.d).astype(np.int32) for _ in range(2)]
    signs = [rng.choice([-1.0, 1.0], z.d).astype(np.float32) for _ in range(2)]
    return (*bins, *signs)


def _scatter(dtype: Any, z: Sizes = EVEN) -> Launch:
    return made.scatter(random(z.images, z.d, z.d, dtype=dtype), _hashes(z), z.k)


def _scatter_far(dtype: Any, z: Sizes = EVEN) -> Launch:
    return made.scatter_far(random(z.images, z.d, z.d, dtype=dtype), _hashes(z), z.k)


def _product(dtype: Any, z: Sizes = EVEN) -> Launch:
    P, Q = (random(z.images, z.n, z.n, dtype=dtype) for _ in range(2))
    return made.product(P, Q, P, (0.5, 0.25, 2.0))


def _largest(dtype: Any, z: Sizes = EVEN) -> Launch:
    return made.largest(random(z.images, 5000, dtype=dtype))


def _power_sums(dtype: Any, z: Sizes = EVEN) -> Launch:
    V, magnitude = random(z.images, 5000, dtype=dtype), positive(z.images, dtype=dtype)
    return made.power_sums(V, magnitude)


def _normalized(dtype: Any, z: Sizes = EVEN) -> Launch:
    V, magnitude = random(z.images, 10 * z.n, dtype=dtype), positive(z.images, dtype=dtype)
    return made.normalized(V, magnitude, positive(z.images, dtype=dtype))


def _normalized_at_once(dtype: Any, z: Sizes = EVEN) -> Launch:
    return made.normalized_at_once(random(z.images, 10 * z.n, dtype=dtype))


def _scaled(dtype: Any, z: Sizes = EVEN) -> Launch:
    X, magnitude = random(z.images, 10 * z.n, dtype=dtype), positive(z.images, dtype=dtype)
    return made.scaled(X, magnitude)


def _first_step(dtype: Any, z: Sizes = EVEN) -> Launch:
    return made.first_step(_spread(z.images * z.n, dtype=dtype))


def _exact_rows(dtype: Any, z: Sizes = EVEN) -> Launch:
    """Three of five rows are doubtful."""
    X, v = random(z.images, z.n, z.d, dtype=dtype), positive(z.images, z.n, dtype=dtype)
    forms = np.ones((2 * z.images, z.n), dtype)
    forms[: z.images] = (np.arange(z.images * z.n).reshape(z.images, z.n) % 5 >= 3).astype(dtype)
    return made.exact_rows(X, v, forms, 0.5)


def _update(dtype: Any, z: Sizes = EVEN) -> Launch:
    forms, a = _spread(z.images * z.n, dtype=dtype), positive(z.images * z.n, dtype=dtype)
    targets = a.copy()
    a[3:6] = 0
    return made.update(forms, targets, a)


def _restored(dtype: Any, z: Sizes = EVEN) -> Launch:
    a, exponents = positive(z.images, z.n, dtype=dtype), np.arange(z.images).astype(np.int32)
    return made.restored(a, exponents, 0.9)


def _moments(dtype: Any, z: Sizes = EVEN) -> Launch:
    return made.moments(random(z.images, z.n, z.n, dtype=dtype))


LAUNCHES: dict[str, Callable[..., Launch]] = {
    "gram": _gram,
    "step": _step,
    "small_image": _small_image,
    "row_forms": _row_forms,
    "outer": _outer,
    "weighted_sum": _weighted_sum,
    "scatter": _scatter,
    "scatter_far": _scatter_far,
    "product": _product,
    "largest": _largest,
    "power_sums": _power_sums,
    "normalized": _normalized,
    "normalized_at_once": _normalized_at_once,
    "scaled": _scaled,
    "first_step": _first_step,
    "exact_rows": _exact_rows,
    "update": _update,
    "restored": _restored,
    "moments": _moments,
}
"""A launch of every kernel, by its name, for a dtype."""


def counted() -> dict[str, dict[str, Any]]:
    """In float32, for sm_80."""
    found = {}
    for name, launched in LAUNCHES.items():
        kernel, shape, args = one = launched(np.float32)
        module = made.compiled(one)
        done = module.launch(kernel.__name__, shape.blocks, shape.threads, args, shape.shared)
        found[name] = done.as_dict()
    return found


main = counts.command(counted, FILE)

if __name__ == "__main__":
    main()
