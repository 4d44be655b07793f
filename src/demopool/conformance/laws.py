"""What must hold whatever the reference says: each law a function of any features.

A law gets ``run``, which calls the route under test on NumPy arrays, one image ``X`` of shape
``(n, d)``, and the dtype; it returns how far the law is from holding and how far rounding may take
it. ``demopool check`` tries each on two sets of features, the tests on what Hypothesis finds.
Both sides of a law are rounded, so tolerances are twice those for one result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from .. import reference
from ..errors import Unsupported
from ..pooling import values
from ..problem.hashing import Hashes, hashes
from ..problem.vocabulary import Dtype
from . import tolerance
from .claims import BOTH_SIDES, Distance, Law, Run, distance, excess
from .features import Array
from .laws_of_norms import LAWS_OF_NORMALIZE, NORMALIZED, pooled_and_normalized

# --- weights ---


def _permuted_weights(run: Run, X: Array, dtype: str) -> Distance:
    order = np.random.default_rng(0).permutation(len(X))
    return distance(run(X[order]), run(X)[order], _weights_allowed(X, dtype), entrywise=True)


def _scaled_weights(run: Run, X: Array, dtype: str) -> Distance:
    """weights(cX) = c^(-order (1-gamma) (1-(1-2 tau)^T)) weights(X), c a power of two."""
    c, gamma, tau, iterations = 8.0, 0.25, 0.3, 5
    options: dict[str, Any] = {"gamma": gamma, "tau": tau, "iterations": iterations}
    factor = c ** (-run.order * (1 - gamma) * (1 - (1 - 2 * tau) ** iterations))
    scaled = run((X * c).astype(X.dtype), **options)
    plain = run(X, **options).astype(np.float64)
    allowed = tolerance.for_weights(X, dtype, **options, order=run.order)
    return distance(scaled, factor * plain, allowed, entrywise=True)


def _sum_pooling(run: Run, X: Array, dtype: str) -> Distance:
    present = (X != 0).any(axis=-1).astype(np.float64)
    return distance(run(X, gamma=1.0), present, _weights_allowed(X, dtype))


def _convergence(run: Run, X: Array, dtype: str) -> Distance:
    """``max |log s|`` never rises from one iteration to the next, rounding aside."""
    K = reference.kernel(X, order=run.order)
    present = K.sum(axis=-1) > 0
    if not present.any():
        return Distance(0.0, 0.0)
    target = K.sum(axis=-1)[present] ** 0.25
    rise, before = 0.0, np.inf
    options: dict[str, Any] = {"gamma": 0.25, "tau": 0.9}
    for iterations in range(6):
        a = run(X, **options, iterations=iterations).astype(np.float64)
        s = (a * (K @ a))[present] / target
        residual = float(np.abs(np.log(s)).max())
        rise, before = max(rise, residual - before), residual
    # log s moves by twice the relative error of a, in each of two steps.
    allowed = tolerance.for_weights(X, dtype, **options, iterations=6, order=run.order)
    return Distance(rise, 2 * BOTH_SIDES * float(allowed))


def _padded_weights(run: Run, X: Array, dtype: str) -> Distance:
    """Zero rows get weight 0 and change nobody else's."""
    found = run(_padded(X))
    wanted = np.concatenate([run(X), np.zeros(3)])
    if found[len(X) :].any():
        return Distance(float(np.abs(found[len(X) :]).max()), 0.0)
    return distance(found, wanted, _weights_allowed(X, dtype), entrywise=True)


def _ordinary_weights(run: Run, X: Array, dtype: str) -> Distance:
    """At both ends of the range, in two images and in one, and with rows of zeros: what the kernel
    is told of features changes nothing."""
    low, high = values.ordinary_range(*X.shape)
    wide = np.abs(X.astype(np.float64)).max(axis=-1, keepdims=True)
    unit_rows = X / np.where(wide > 0, wide, 1.0)
    upper = np.arange(len(X))[:, np.newaxis] % 2 == 0
    scales = [np.full_like(wide, low), np.full_like(wide, high), np.where(upper, high, low)]
    scales.append(np.where(np.arange(len(X))[:, np.newaxis] % 3 == 0, 0.0, scales[2]))
    images = (unit_rows * np.stack(scales)).astype(X.dtype)
    claims = []
    settings: tuple[dict[str, Any], ...] = (
        {"gamma": 0.3},
        {"gamma": 0.0, "tau": 0.9, "iterations": 5},
    )
    for options in settings:
        told, untold = run(images, ordinary=True, **options), run(images, **options)
        allowed = tolerance.for_weights(images, dtype, **options, order=run.order)
        each = zip(told, untold, allowed, strict=True)
        claims += [distance(*image, entrywise=True) for image in each]
    return max(claims, key=excess)


ON_ORDINARY = "ordinary features need no scale"
"""A law only of backends that have ``takes_ordinary``."""


def _weights_allowed(X: Array, dtype: str) -> Array:
    return tolerance.for_weights(X, dtype)


# --- pooling, sketches and powers: the same laws with other tolerances ---


def _permuted(allowed: Callable[..., Array], **options: Any) -> Law:
    def law(run: Run, X: Array, dtype: str) -> Distance:
        order = np.random.default_rng(0).permutation(len(X))
        made = _with_hashes(X, options)
        wanted = run(X, **made)
        return distance(run(X[order], **made), wanted, allowed(X, wanted, dtype))

    return law


def _zero_padded(allowed: Callable[..., Array], **options: Any) -> Law:
    def law(run: Run, X: Array, dtype: str) -> Distance:
        made = _with_hashes(X, options)
        wanted = run(X, **made)
        return distance(run(_padded(X), **made), wanted, allowed(_padded(X), wanted, dtype))

    return law


def _batch_equals_loop(allowed: Callable[..., Array], **options: Any) -> Law:
    def law(run: Run, X: Array, dtype: str) -> Distance:
        made = _with_hashes(X, options)
        batch = np.stack([X, X[::-1], (2 * X).astype(X.dtype)])
        one_by_one = np.stack([run(image, **made) for image in batch])
        claims = [
            distance(found, wanted, allowed(image, wanted, dtype))
            for image, found, wanted in zip(batch, run(batch, **made), one_by_one, strict=True)
        ]
        return max(claims, key=excess)

    return law


def _linear_in_weights(run: Run, X: Array, dtype: str) -> Distance:
    rng = np.random.default_rng(0)
    first, second = rng.uniform(0.5, 1.5, (2, len(X))).astype(_result_type(X))
    made = _with_hashes(X, {"k": 16})
    wanted = run(X, first, **made) + run(X, second, **made).astype(np.float64)
    found = run(X, first + second, **made)
    return distance(found, wanted, tolerance.for_sketch(X, first + second, wanted, 16, dtype))


def _kernel_estimate(run: Run, X: Array, dtype: str) -> Distance:
    """``E <ts(x), ts(y)> = (x . y)^2`` exactly, over all 256 hashes and signs at d=2, k=2."""
    pair = np.resize(X, (2, 2)).astype(X.dtype)
    total = 0.0
    bins, signs = list(product((0, 1), repeat=2)), list(product((-1, 1), repeat=2))
    for h1, h2, s1, s2 in product(bins, bins, signs, signs):
        x, y = run(pair, hashes=_own_hashes(h1, s1, h2, s2)).astype(np.float64)
        total += float(x @ y)
    wide = pair.astype(np.float64)
    wanted = float(wide[0] @ wide[1]) ** 2
    scale = float((wide**2).sum(axis=-1).prod()) or 1.0
    return Distance(abs(total / 256 - wanted) / scale, 4 * BOTH_SIDES * tolerance.unit(dtype) * 4)


def _own_hashes(h1: Any, s1: Any, h2: Any, s2: Any) -> Hashes:
    return Hashes(np.array(h1), np.array(s1), np.array(h2), np.array(s2), k=2)


def _symmetric(run: Run, X: Array, dtype: str) -> Distance:
    A = run(X)
    return distance(A, A.T, np.asarray(tolerance.unit(dtype)))


def _positive(allowed: Callable[..., Array]) -> Law:
    """No eigenvalue below zero by more than rounding: by d times that of the entries at most."""

    def law(run: Run, X: Array, dtype: str) -> Distance:
        A = run(X).astype(np.float64)
        values = np.linalg.eigvalsh((A + A.T) / 2)
        entries = float(np.max(allowed(X, A, dtype), initial=0.0)) * float(np.abs(A).max())
        return Distance(max(0.0, -float(values.min())), BOTH_SIDES * X.shape[-1] * entries)

    return law


def _powers_multiply(run: Run, X: Array, dtype: str) -> Distance:
    """``A^p A^(1-p) = A``, at p = 1/2 and, for routes that know other powers, at p = 0.3."""
    A, spectrum = reference.pool(X), reference.spectrum(X)
    claims = []
    for p in (0.5, 0.3):
        try:
            first, second = run(X, p=p).astype(np.float64), run(X, p=1 - p).astype(np.float64)
        except Unsupported:
            continue
        # |PQ - A| <= |A^(1-p)| |dP| + |A^p| |dQ|, and the product of the errors.
        errors = [_spectral_error(spectrum, len(X), X, dtype, q) for q in (p, 1 - p)]
        sizes = [float(spectrum[0]) ** q for q in (p, 1 - p)]
        allowed = errors[0] * sizes[1] + errors[1] * sizes[0] + errors[0] * errors[1]
        found = float(np.abs(first @ second - A).max())
        claims.append(Distance(found, BOTH_SIDES * allowed))
    return max(claims, key=excess)


def _spectral_error(spectrum: Array, n: int, X: Array, dtype: str, p: float) -> float:
    expected = reference.power(X, p=p)
    relative = tolerance.for_power(spectrum, n, expected, dtype, p=p, route="polar")
    return float(relative) * float(np.abs(expected).max())


@dataclass(frozen=True)
class _OnFeatures:
    """``matrix_power`` run as ``power``: A is made first, and rounded to the dtype."""

    run: Run
    dtype: str
    order: int = 2

    def __call__(self, X: Array, a: Array | None = None, **options: Any) -> Array:
        return self.run(reference.pool(X).astype(self.dtype), **options)

    def describe(self, *streams: Array, **options: Any) -> Array:
        return self.run.describe(*streams, **options)


def _given_the_matrix(law: Law) -> Law:
    """A law of ``power``, for ``matrix_power``."""
    return lambda run, X, dtype: law(_OnFeatures(run, dtype), X, dtype)


# --- tolerances by operation ---


def pool_allowed(X: Array, wanted: Array, dtype: str) -> Array:
    order = np.ndim(wanted)
    return tolerance.for_pool(X, None, wanted, dtype, order=order)


def sketch_allowed(X: Array, wanted: Array, dtype: str) -> Array:
    return tolerance.for_sketch(X, None, wanted, wanted.shape[-1], dtype)


def power_allowed(X: Array, wanted: Array, dtype: str) -> Array:
    return tolerance.for_power(reference.spectrum(X), len(X), wanted, dtype, p=0.5, route="polar")


def power_sketch_allowed(X: Array, wanted: Array, dtype: str) -> Array:
    k = wanted.shape[-1]
    return tolerance.for_power_sketch(
        reference.spectrum(X), len(X), wanted, k, dtype, p=0.5, route="polar"
    )


LAWS: dict[str, dict[str, Law]] = {
    "weights": {
        "row permutation": _permuted_weights,
        "exact scale law": _scaled_weights,
        "gamma=1 gives ones": _sum_pooling,
        "max |log s| never rises": _convergence,
        "zero padding": _padded_weights,
        ON_ORDINARY: _ordinary_weights,
        "batch equals loop": _batch_equals_loop(lambda X, w, t: _weights_allowed(X, t)),
    },
    "pool": {
        "row permutation": _permuted(pool_allowed),
        "zero padding": _zero_padded(pool_allowed),
        "batch equals loop": _batch_equals_loop(pool_allowed),
        "symmetric": _symmetric,
        "positive semi-definite": _positive(pool_allowed),
        NORMALIZED: pooled_and_normalized,
    },
    "sketch": {
        "unbiased kernel estimate": _kernel_estimate,
        "batch equals loop": _batch_equals_loop(sketch_allowed, k=16),
    },
    "pool_sketch": {
        "row permutation": _permuted(sketch_allowed, k=16),
        "zero padding": _zero_padded(sketch_allowed, k=16),
        "batch equals loop": _batch_equals_loop(sketch_allowed, k=16),
        "linear in the weights": _linear_in_weights,
    },
    "power": {
        "row permutation": _permuted(power_allowed),
        "zero padding": _zero_padded(power_allowed),
        "batch equals loop": _batch_equals_loop(power_allowed),
        "symmetric": _symmetric,
        "positive semi-definite": _positive(power_allowed),
        "powers multiply": _powers_multiply,
    },
    "matrix_power": {
        "batch equals loop": _given_the_matrix(_batch_equals_loop(power_allowed)),
        "symmetric": _given_the_matrix(_symmetric),
        "positive semi-definite": _given_the_matrix(_positive(power_allowed)),
        "powers multiply": _given_the_matrix(_powers_multiply),
    },
    "power_sketch": {
        "row permutation": _permuted(power_sketch_allowed, k=16),
        "zero padding": _zero_padded(power_sketch_allowed, k=16),
        "batch equals loop": _batch_equals_loop(power_sketch_allowed, k=16),
    },
    "normalize": LAWS_OF_NORMALIZE,
}


def _padded(X: Array) -> Array:
    return np.concatenate([X, np.zeros((3, X.shape[1]), dtype=X.dtype)])


def _with_hashes(X: Array, options: dict[str, Any]) -> dict[str, Any]:
    if "k" not in options:
        return options
    return {"hashes": hashes(X.shape[-1], options["k"], seed=1)}


def _result_type(X: Array) -> Any:
    return Dtype(X.dtype.name).result
