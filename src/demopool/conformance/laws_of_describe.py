"""Laws of what ``describe`` does before an operation and after it: padding, centre, triangle, two
streams. It happens in the library of the arrays, so every backend must be asked.

Each says what the operation itself gives, by the same route, once the features are made ready by
hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import reference
from ..problem.hashing import hashes
from . import tolerance
from .claims import Distance, Law, Run, distance, excess
from .features import Array
from .laws import pool_allowed, power_allowed, power_sketch_allowed, sketch_allowed

ROWS = 8
"""A power of two: the mean of so many small whole numbers is exact in every dtype."""

LARGEST = 7
"""Such numbers without their mean have seven bits, and bfloat16 has eight."""

WIDE = 72
"""Columns: matrices of more than 64 are pooled as triangles, which their norm makes whole."""

K, SEED = 16, 1


def _ready(wanted: Callable[[Run, Array, str], tuple[Array, Array]]) -> Law:
    """Rows after an image's length are as if not there, whatever they hold, and in its mean.

    ``wanted``: from features that are ready, the descriptor and its tolerance.
    """

    def law(run: Run, X: Array, dtype: str) -> Distance:
        whole = _whole_numbers(X)
        lengths = [len(whole), max(1, len(whole) // 2)]
        padded = np.full((2, len(whole) + 3, X.shape[-1]), np.nan, X.dtype)
        center = run.order == 2
        claims, parts = [], []
        for image, length in zip(padded, lengths, strict=True):
            image[:length] = whole[:length]
            part = whole[:length] - whole[:length].mean(axis=0) if center else whole[:length]
            parts.append(part.astype(X.dtype))
        found = run.describe(padded, lengths=lengths, center=center, k=K, seed=SEED)
        for part, one in zip(parts, found, strict=True):
            expected, allowed = wanted(run, part, dtype)
            claims.append(distance(one, expected.reshape(-1), allowed))
        return max(claims, key=excess)

    return law


def _whole_numbers(X: Array) -> Array:
    """Some of the features as numbers whose mean, and all without it, are exact."""
    largest = float(np.abs(X).max(initial=0.0)) or 1.0
    rows = 2 ** int(np.log2(min(len(X), ROWS)))
    return np.rint(X[:rows].astype(np.float64) * (LARGEST / largest))


def _by(allowed: Callable[[Array, Array, str], Array], *, is_sketched: bool = False) -> Law:
    """What the operation itself gives, and its tolerance."""

    def wanted(run: Run, X: Array, dtype: str) -> tuple[Array, Array]:
        made: dict[str, Any] = {"hashes": hashes(X.shape[-1], K, SEED)} if is_sketched else {}
        found = run(X, **made)
        return found, allowed(X, found, dtype)

    return _ready(wanted)


def _weighted_pool(run: Run, X: Array, dtype: str) -> tuple[Array, Array]:
    a = run(X)
    wanted = reference.pool(X, a, order=run.order)
    of_weights = tolerance.for_weights(X, dtype, order=run.order)
    return wanted, tolerance.for_pool(X, a, wanted, dtype, order=run.order, of_weights=of_weights)


def _triangle(run: Run, X: Array, dtype: str) -> Distance:
    """The upper triangle, its entries beside the diagonal times the square root of two."""
    X = np.tile(X, -(-WIDE // X.shape[-1]))[:, :WIDE]
    A = run(X).astype(np.float64)
    v = (A / (np.linalg.norm(A) or 1.0)) * np.where(np.eye(WIDE), 1.0, np.sqrt(2.0))
    found = run.describe(X, vectorize="upper", normalize="l2")
    allowed = pool_allowed(X, A, dtype) + tolerance.for_normalize(dtype, A.size)
    return distance(found, v[np.triu_indices(WIDE)], allowed)


def _two_halves(run: Run, X: Array, dtype: str) -> Distance:
    """The product of two streams is a block of the second moment of both together."""
    A, half = run(X).astype(np.float64), (X.shape[-1] + 1) // 2
    found = A.copy()
    second = X[:, half:] if half < X.shape[-1] else X
    block = run.describe(X[:, :half], second)
    found[:half, -second.shape[-1] :] = block.reshape(half, -1)
    return distance(found, A, pool_allowed(X, A, dtype))


def _two_sketched(run: Run, X: Array, dtype: str) -> Distance:
    """Of streams of unlike length, with the first hash of one and the second of the other."""
    streams = X, X[:, ::-1][:, : (X.shape[-1] + 1) // 2]
    made = [hashes(stream.shape[-1], K, SEED) for stream in streams]
    wanted = reference.bilinear_sketch(*streams, *made)
    found = run.describe(*streams, k=K, seed=SEED)
    return distance(found, wanted, sketch_allowed(np.concatenate(streams, axis=-1), wanted, dtype))


READY, UPPER, TWO_STREAMS = "lengths and center", "upper triangle", "two streams"
LAWS_OF_DESCRIBE: dict[str, dict[str, Law]] = {
    "weights": {READY: _ready(_weighted_pool)},
    "pool": {READY: _by(pool_allowed), UPPER: _triangle, TWO_STREAMS: _two_halves},
    "pool_sketch": {READY: _by(sketch_allowed, is_sketched=True), TWO_STREAMS: _two_sketched},
    "power": {READY: _by(power_allowed)},
    "power_sketch": {READY: _by(power_sketch_allowed, is_sketched=True)},
}
