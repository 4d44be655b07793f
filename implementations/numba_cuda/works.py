"""What each route does on images, by operation and route."""

from __future__ import annotations

from demopool.implementations.shared import images
from demopool.implementations.shared.prepared import PreparedHashes

from . import pool, power, sketch, weights
from .launcher import Array, Launcher


def _root(route: str) -> dict[tuple[str, str], images.Work]:
    """A square root of the moment of features, of given matrices, and its sketch."""

    def of_features(on: Launcher, X: Array, *, p: float) -> Array:
        return power.of_features(on, X, route)

    def of_matrices(on: Launcher, A: Array, *, p: float) -> Array:
        return power.ROOTS[route](on, A)

    def sketched(on: Launcher, X: Array, hashes: PreparedHashes, *, p: float) -> Array:
        return sketch.of_matrices(on, power.of_features(on, X, route), hashes)

    return {
        ("power", route): of_features,
        ("matrix_power", route): of_matrices,
        ("power_sketch", f"{route}+moment"): sketched,
    }


WORKS: dict[tuple[str, str], images.Work] = {
    ("weights", "dense"): weights.dense,
    ("weights", "matrix-free"): weights.matrix_free,
    ("pool", "direct"): pool.direct,
    ("pool_sketch", "moment"): sketch.pool_moment,
    ("normalize", "direct"): pool.normalize,
    **_root("newton-schulz"),
    **_root("polar"),
}
