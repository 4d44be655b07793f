"""What the kernels of cupy:cuda do, as counts: ``python -m tools.cupy_counts [--write]``.

Each is launched once, from its PTX, in float32 for sm_80, on arrays of whole tiles. Counts are the
same on every machine; a test compares them with the file, so that a kernel that gets worse shows in
the history.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demopool import hashes, ptx
from demopool.implementations.cupy_cuda import sketch
from demopool.implementations.cupy_cuda.launch import Launch
from tools import counts
from tools import cupy_launches as made
from tools.kernel_arrays import EVEN, Sizes, positive, random

FILE = Path(__file__).parents[1] / "tests" / "cupy_cuda_counts.json"

Array = Any
f32, i32 = np.float32, np.int32


def _hashes(z: Sizes) -> sketch.PreparedHashes:
    return sketch.prepare(hashes(z.d, z.k), np.asarray)


def _largest(z: Sizes) -> Launch:
    return made.largest(random(z.images, z.n * z.d))


def _scaled(z: Sizes) -> Launch:
    return made.scaled(random(z.images, z.n * z.d), positive(z.images))


def _restored(z: Sizes) -> Launch:
    return made.restored(positive(z.images, z.n), np.arange(z.images, dtype=i32), 0.9)


def _gram(z: Sizes) -> Launch:
    return made.gram(random(z.images, z.n, z.d))


def _outer(z: Sizes) -> Launch:
    return made.outer(random(z.images, z.d, z.n), positive(z.images, z.d))


def _from_triangle(z: Sizes) -> Launch:
    return made.from_triangle(random(z.n, z.n))


def _first_step(z: Sizes) -> Launch:
    return made.first_step(positive(z.images * z.n))


def _vectors(z: Sizes) -> tuple[Array, Array]:
    """Targets, and weights of which some are zero."""
    targets, a = positive(z.images, z.n), positive(z.images, z.n)
    a[:, 2:5] = 0
    return targets, a


def _step(z: Sizes) -> Launch:
    return made.step(positive(z.images, z.n, z.n), *_vectors(z))


def _small_image(z: Sizes) -> Launch:
    return made.small_image(positive(z.images, z.n, z.n), *_vectors(z))


def _free(z: Sizes, doubtful: bool) -> tuple[Array, Array, Array]:
    """X, X M and the diagonal of M; every eighth row is doubtful, or none, as of most images."""
    X = random(z.images, z.n, z.d)
    XM = X.copy()
    if doubtful:
        XM[:, ::8] *= -1
    return X, XM, np.ones((z.images, z.d), f32)


def _free_sums(z: Sizes) -> Launch:
    return made.free_sums(*_free(z, doubtful=True), 0.25)


def _free_step(z: Sizes) -> Launch:
    return made.free_step(*_free(z, doubtful=False), *_vectors(z))


def _doubtful_step(z: Sizes) -> Launch:
    return made.free_step(*_free(z, doubtful=True), *_vectors(z))


def _power_sums(z: Sizes) -> Launch:
    return made.power_sums(random(z.images, z.n * z.d), positive(z.images))


def _normalized(z: Sizes) -> Launch:
    V = random(z.images, z.n * z.d)
    return made.normalized(V, positive(z.images), positive(z.images))


def _normalized_at_once(z: Sizes) -> Launch:
    return made.normalized_at_once(random(z.images, z.n * z.d))


def _count_sketch(z: Sizes) -> Launch:
    X, a = random(z.images, z.n, z.d), positive(z.images, z.n)
    return made.count_sketch(X, a, _hashes(z).first)


def _scatter(z: Sizes) -> Launch:
    return made.scatter(random(z.images, z.d, z.d), _hashes(z))


def _scatter_far(z: Sizes) -> Launch:
    return made.scatter_far(random(z.images, z.d, z.d), _hashes(z))


LAUNCHES: dict[str, Callable[[Sizes], Launch]] = {
    "count_sketch": _count_sketch,
    "first_step": _first_step,
    "free_step": _free_step,
    "free_step, doubtful": _doubtful_step,
    "free_sums": _free_sums,
    "from_triangle": _from_triangle,
    "gram": _gram,
    "largest": _largest,
    "normalized": _normalized,
    "normalized_at_once": _normalized_at_once,
    "outer": _outer,
    "power_sums": _power_sums,
    "restored": _restored,
    "scaled": _scaled,
    "scatter": _scatter,
    "scatter_far": _scatter_far,
    "small_image": _small_image,
    "step": _step,
}
"""A launch of every kernel, by its name."""


def count(launched: Launch) -> ptx.Counts:
    """What one launch does."""
    return made.started(made.compiled(launched), launched)


def counted() -> dict[str, dict[str, Any]]:
    return {name: count(of(EVEN)).as_dict() for name, of in LAUNCHES.items()}


main = counts.command(counted, FILE)

if __name__ == "__main__":
    main()
