"""A launch of each kernel to be counted, and the files of counts.

Counts are the same on every machine; a test compares them with the files, so that a kernel that
gets worse shows in the history: ``python -m tools.gpu counts --write``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demopool.problem.hashing import Hashes

from . import made
from .arrays import EVEN, Array, KernelSizes, positive, random
from .backends import BACKENDS, Backend, Launch

f32, i32 = np.float32, np.int32


def file(backend: str) -> Path:
    return Path(__file__).with_name(f"{backend}_counts.json")


def launch(b: Backend, name: str, z: KernelSizes = EVEN, dtype: Any = f32) -> Launch:
    return LAUNCHES[name](b, z, dtype)


def names(b: Backend) -> list[str]:
    """Of the launches that are counted."""
    return [name for name in LAUNCHES if name.partition(",")[0] in b.kernels]


def counts(backend: str) -> dict[str, Any]:
    """In float32, on whole tiles, for sm_80."""
    b = BACKENDS[backend]
    return {name: b.start(launch(b, name)).as_dict() for name in names(b)}


# --- arrays; those of the libraries differ where their files were begun with different ones ---


def _images(z: KernelSizes, T: Any) -> Array:
    return random(z.images, z.n, z.d, dtype=T)


def _moment(z: KernelSizes, T: Any) -> Array:
    return random(z.images, z.d, z.d, dtype=T)


def _rows(b: Backend, z: KernelSizes, T: Any, numba: int) -> Array:
    return random(z.images, z.n * z.d if b.name == "cupy" else numba, dtype=T)


def _sizes(z: KernelSizes, T: Any) -> Array:
    return positive(z.images, dtype=T)


def _sums(b: Backend, z: KernelSizes, T: Any) -> Array:
    """Numba's are of all magnitudes, subnormal ones among them, and a zero."""
    if b.name == "cupy":
        return positive(z.images * z.n, dtype=T)
    found = np.logspace(-42, 37, z.images * z.n).astype(T)
    found[z.images * z.n // 2] = 0
    return found


def _vectors(b: Backend, z: KernelSizes, T: Any) -> tuple[Array, Array]:
    """Targets, and weights of which some are zero."""
    targets, a = positive(z.images, z.n, dtype=T), positive(z.images, z.n, dtype=T)
    if b.name == "numba":
        targets = _sums(b, z, T).reshape(z.images, z.n) + T(1e-44)
    a[:, 2:5] = 0
    return targets, a


def _small_image(b: Backend, z: KernelSizes, T: Any) -> Launch:
    if b.name == "cupy":
        return made.small_image(b, positive(z.images, z.n, z.n, dtype=T), *_vectors(b, z, T))
    n = min(z.n, 64)
    vectors = [positive(z.images, n, dtype=T) for _ in range(2)]
    return made.small_image(b, positive(z.images, n, n, dtype=T), *vectors)


def _free(z: KernelSizes, T: Any, *, doubtful: bool) -> tuple[Array, Array, Array]:
    """X, X M and the diagonal of M; every eighth row is doubtful, or none, as of most images."""
    X = _images(z, T)
    XM = X.copy()
    if doubtful:
        XM[:, ::8] *= -1
    return X, XM, np.ones((z.images, z.d), T)


def _exact_rows(b: Backend, z: KernelSizes, T: Any) -> Launch:
    """Three of five rows are doubtful."""
    forms = np.ones((2 * z.images, z.n), T)
    forms[: z.images] = (np.arange(z.images * z.n).reshape(z.images, z.n) % 5 >= 3).astype(T)
    return made.exact_rows(b, _images(z, T), positive(z.images, z.n, dtype=T), forms, 0.5)


def _update(b: Backend, z: KernelSizes, T: Any) -> Launch:
    a = positive(z.images * z.n, dtype=T)
    targets = a.copy()
    a[3:6] = 0
    return made.update(b, _sums(b, z, T), targets, a)


def _product(b: Backend, z: KernelSizes, T: Any) -> Launch:
    P, Q = (random(z.images, z.n, z.n, dtype=T) for _ in range(2))
    return made.product(b, P, Q, P, (0.5, 0.25, 2.0))


def _hashes(b: Backend, z: KernelSizes) -> Any:
    if b.name == "cupy":
        return b.prepared(z.d, z.k)
    rng = np.random.default_rng(0)
    bins = [rng.integers(0, z.k, z.d) for _ in range(2)]
    signs = [rng.choice([-1, 1], z.d).astype(np.int8) for _ in range(2)]
    return b.emulated.prepare(Hashes(bins[0], signs[0], bins[1], signs[1], z.k), np.asarray)


LAUNCHES: dict[str, Callable[[Backend, KernelSizes, Any], Launch]] = {
    "largest": lambda b, z, T: made.largest(b, _rows(b, z, T, 5000)),
    "scaled": lambda b, z, T: made.scaled(b, _rows(b, z, T, 10 * z.n), _sizes(z, T)),
    "restored": lambda b, z, T: made.restored(
        b, positive(z.images, z.n, dtype=T), np.arange(z.images, dtype=i32), 0.9
    ),
    "gram": lambda b, z, T: made.gram(b, _images(z, T)),
    "from_triangle": lambda b, z, T: made.from_triangle(b, random(z.n, z.n, dtype=T)),
    "first_step": lambda b, z, T: made.first_step(b, _sums(b, z, T)),
    "step": lambda b, z, T: made.step(b, positive(z.images, z.n, z.n, dtype=T), *_vectors(b, z, T)),
    "small_image": _small_image,
    "free_sums": lambda b, z, T: made.free_sums(b, *_free(z, T, doubtful=True), 0.25),
    "free_step": lambda b, z, T: made.free_step(
        b, *_free(z, T, doubtful=False), *_vectors(b, z, T)
    ),
    "free_step, doubtful": lambda b, z, T: made.free_step(
        b, *_free(z, T, doubtful=True), *_vectors(b, z, T)
    ),
    "row_forms": lambda b, z, T: made.row_forms(b, _images(z, T), _moment(z, T)),
    "exact_rows": _exact_rows,
    "update": _update,
    "outer": lambda b, z, T: made.outer(
        b, random(z.images, z.d, z.n, dtype=T), positive(z.images, z.d, dtype=T)
    ),
    "weighted_sum": lambda b, z, T: made.weighted_sum(
        b, _images(z, T), positive(z.images, z.n, dtype=T)
    ),
    "power_sums": lambda b, z, T: made.power_sums(b, _rows(b, z, T, 5000), _sizes(z, T)),
    "normalized": lambda b, z, T: made.normalized(
        b, _rows(b, z, T, 10 * z.n), _sizes(z, T), _sizes(z, T)
    ),
    "normalized_at_once": lambda b, z, T: made.normalized_at_once(b, _rows(b, z, T, 10 * z.n)),
    "count_sketch": lambda b, z, T: made.count_sketch(
        b, _images(z, T), positive(z.images, z.n, dtype=T), _hashes(b, z).first
    ),
    "scatter": lambda b, z, T: made.scatter(b, _moment(z, T), _hashes(b, z)),
    "scatter_far": lambda b, z, T: made.scatter_far(b, _moment(z, T), _hashes(b, z)),
    "product": _product,
    "moments": lambda b, z, T: made.moments(b, random(z.images, z.n, z.n, dtype=T)),
}
"""By kernel, for arrays of some sizes and a dtype; a second launch of a kernel has a word more."""
