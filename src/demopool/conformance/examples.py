"""What is run for each operation: features, parameters, the call, the answer, the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from .. import reference
from ..problem.hashing import Hashes, hashes
from ..problem.routes import Sizes, find
from ..problem.vocabulary import Dtype
from . import features, tolerance
from .features import Array


@dataclass(frozen=True)
class Example:
    """One line of the conformance suite: named features and the parameters that differ."""

    features: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """For people and for :func:`demopool.conformance.reproduce`."""
        changed = ", ".join(f"{key}={value}" for key, value in self.changes)
        return f"{self.features}; {changed}" if changed else self.features


@dataclass(frozen=True)
class Question:
    """An example in a dtype, ready to be put to an implementation, with the reference's answer.

    arrays     the array arguments in order (None where there is none)
    options    the other arguments, without the route
    allowed    route -> tolerance of each image
    axes       how many of the last axes are one image's result
    entrywise  every entry must be right relative to itself, not to the largest
    """

    arrays: dict[str, Array | None]
    options: dict[str, Any]
    expected: Array
    allowed: Callable[[str], Array]
    axes: int
    entrywise: bool = False


def examples(
    operation: str, route: str, *, quick: bool = False, emulated: bool = False
) -> Iterator[Example]:
    """All examples inside the route's domain; fewer and smaller ones if asked."""
    names = features.QUICK if quick else features.NAMES
    if emulated:
        names = features.emulated(operation)
    known = find(operation, route)
    assert not isinstance(known, str)
    for example in (*map(Example, names), *_VARIATIONS[operation]):
        if example.features not in names or operation not in features.ONLY_FOR.get(
            example.features, (operation,)
        ):
            continue
        n, d = features.make(example.features, "float32").shape[-2:]
        if operation == "matrix_power":
            n = d
        p = dict(example.changes).get("p", 0.5)
        if not known.domain.excludes(Sizes(n, d, p)):
            yield example


@lru_cache(maxsize=200)
def ask(example: Example, operation: str, order: int, dtype: str) -> Question:
    """The question an example puts. The reference is slow and the same for every route: kept."""
    X = features.make(example.features, dtype)
    asked = question(X, operation, order, dtype, **dict(example.changes))
    if not np.isfinite(asked.expected).all():
        raise AssertionError(f"the reference itself fails on {operation}: {example.name}")
    # Every array of the question lies in memory as the name of the features promises.
    for name, array in asked.arrays.items():
        if name == "A" and array is not None:
            asked.arrays[name] = features.laid_out(example.features, array)
        elif name == "a" and array is not None and array.size:
            asked.arrays[name] = features.laid_out(example.features, array[..., None])[..., 0]
    return asked


def question(X: Array, operation: str, order: int, dtype: str, **changes: Any) -> Question:
    """What features ask of an operation, with the reference's answer."""
    return _ASK[operation](X, dtype, order, **changes)


def _ask_weights(X: Array, dtype: str, order: int, **changed: Any) -> Question:
    options = {"gamma": 0.5, "tau": 0.5, "iterations": 10, **changed, "order": order}
    expected = reference.weights(X, **options)

    def allowed(route: str) -> Array:
        return tolerance.for_weights(X, dtype, **options, route=route)

    return Question({"X": X}, options, expected, cache(allowed), axes=1, entrywise=True)


def _ask_pool(X: Array, dtype: str, order: int, weights: str = "given") -> Question:
    a = _some_weights(X, dtype, weights)
    expected = reference.pool(X, a, order=order)

    def allowed(route: str) -> Array:
        return tolerance.for_pool(X, a, expected, dtype, order=order, route=route)

    return Question({"X": X, "a": a}, {"order": order}, expected, allowed, axes=order)


def _ask_sketch(X: Array, dtype: str, order: int, k: int = 32) -> Question:
    h = _some_hashes(X, k)
    expected = reference.sketch(X, h)
    # Each feature is pooled alone.
    allowed = tolerance.for_sketch(X[..., np.newaxis, :], None, expected, k, dtype)
    return Question({"X": X}, {"hashes": h}, expected, lambda route: allowed, axes=1)


def _ask_pool_sketch(
    X: Array, dtype: str, order: int, k: int = 32, weights: str = "given"
) -> Question:
    h = _some_hashes(X, k)
    a = _some_weights(X, dtype, weights)
    expected = reference.pool_sketch(X, h, a)
    allowed = tolerance.for_sketch(X, a, expected, k, dtype)
    return Question({"X": X, "a": a}, {"hashes": h}, expected, lambda route: allowed, axes=1)


def _ask_power(X: Array, dtype: str, order: int, p: float = 0.5) -> Question:
    n, spectrum, expected = X.shape[-2], reference.spectrum(X), reference.power(X, p=p)

    def allowed(route: str) -> Array:
        return tolerance.for_power(spectrum, n, expected, dtype, p=p, route=route)

    return Question({"X": X}, {"p": p}, expected, allowed, axes=2)


def _ask_matrix_power(X: Array, dtype: str, order: int, p: float = 0.5) -> Question:
    """A is what the dtype holds of X^T X, and is the exact input from there on."""
    A = features.representable(reference.pool(X), dtype)
    d, expected = A.shape[-1], reference.matrix_power(A, p=p)
    spectrum = np.linalg.eigvalsh(A.astype(np.float64))[..., ::-1]
    # As the reference does: what cannot be told from zero is no smallest eigenvalue.
    cut = d * np.finfo(np.float64).eps * spectrum[..., :1]
    spectrum = np.where(spectrum > cut, spectrum, 0.0)

    def allowed(route: str) -> Array:
        return tolerance.for_power(spectrum, d, expected, dtype, p=p, route=route, best="eigh")

    return Question({"A": A}, {"p": p}, expected, allowed, axes=2)


def _ask_power_sketch(X: Array, dtype: str, order: int, k: int = 32, p: float = 0.5) -> Question:
    h = _some_hashes(X, k)
    n, spectrum, expected = X.shape[-2], reference.spectrum(X), reference.power_sketch(X, h, p=p)

    def allowed(route: str) -> Array:
        return tolerance.for_power_sketch(spectrum, n, expected, k, dtype, p=p, route=route)

    return Question({"X": X}, {"hashes": h, "p": p}, expected, allowed, axes=1)


def _ask_normalize(X: Array, dtype: str, order: int, kind: str = "signed-sqrt-l2") -> Question:
    """Order 1 normalises each row, order 2 each whole matrix."""
    expected = reference.normalize(X, axes=order, kind=kind)
    allowed = tolerance.for_normalize(dtype, prod(X.shape[-order:]))
    options = {"axes": order, "kind": kind}
    return Question({"v": X}, options, expected, lambda route: allowed, axes=order)


_ASK: dict[str, Callable[..., Question]] = {
    "weights": _ask_weights,
    "pool": _ask_pool,
    "sketch": _ask_sketch,
    "pool_sketch": _ask_pool_sketch,
    "power": _ask_power,
    "matrix_power": _ask_matrix_power,
    "power_sketch": _ask_power_sketch,
    "normalize": _ask_normalize,
}


def _vary(names: tuple[str, ...], *changes: dict[str, Any]) -> tuple[Example, ...]:
    return tuple(Example(name, tuple(change.items())) for name in names for change in changes)


_SOME = ("n<d", "rectified")
_REAL = ("VGG-16 at 224 px",)
_SIZES_OF_SKETCHES = ({"k": 37}, {"k": 5}, {"k": 1}, {"k": 8}, {"k": 2048})
_POWERS = ({"p": 0.3}, {"p": 0.75}, {"p": 1.0})
_OF_POWERS = (
    *_vary((*_SOME, "n>d", "zero rows", "rank-deficient", "constant", *_REAL), *_POWERS),
    # In float32, p = 0.1 turns rounding errors of 1e-7 into 0.2.
    *_vary(("n>d", "rectified", "zero rows", "rank-deficient", "constant", *_REAL), {"p": 0.1}),
    *_vary(("n<d", "dead channels", "constant"), {"p": 0.01}),
)

_VARIATIONS: dict[str, tuple[Example, ...]] = {
    "weights": (
        *_vary(
            ("n>d", "mixed norms", *_REAL),
            {"gamma": 0.0},
            {"gamma": 0.3},
            {"gamma": 1.0},
            {"tau": 0.3},
            {"tau": 1.0},
            {"iterations": 0},
            {"iterations": 1},
            {"iterations": 40, "gamma": 0.0},
        ),
        *_vary(
            ("scaled by 1e-12", "scaled by 1e12"),
            {"gamma": 0.0},
            {"gamma": 0.0, "tau": 0.3},
            {"gamma": 0.2, "tau": 0.9, "iterations": 1},
        ),
        *_vary(("zero rows",), {"gamma": 0.0}, {"gamma": 1.0}, {"iterations": 0}),
        # Faint rows gain so much weight that in every second product the strong ones cancel.
        *_vary(
            features.CANCELLING,
            {"gamma": 0.0, "tau": 1.0},
            {"gamma": 0.0, "tau": 0.9, "iterations": 9},
            {"gamma": 0.1, "tau": 1.0, "iterations": 4},
        ),
    ),
    "pool": _vary((*_SOME, *_REAL), {"weights": "none"}, {"weights": "some zero"}),
    "sketch": _vary(_SOME, *_SIZES_OF_SKETCHES),
    "pool_sketch": (
        *_vary(_SOME, *_SIZES_OF_SKETCHES, {"weights": "none"}, {"weights": "some zero"}),
        *_vary(_REAL, {"k": 1000}),
    ),
    "power": _OF_POWERS,
    "matrix_power": _OF_POWERS,
    "power_sketch": (
        *_vary(_SOME, *_SIZES_OF_SKETCHES),
        *_vary(("n>d", "rank-deficient", *_REAL), *_POWERS),
        *_vary(_REAL, {"k": 1000}),
    ),
    "normalize": _vary(
        ("n>d", "zero rows", "scaled by 1e-12", "scaled by 1e12", *_REAL),
        {"kind": "l2"},
        {"kind": "none"},
    ),
}


def _some_hashes(X: Array, k: int) -> Hashes:
    """Another seed for every size, and every third time hashes that no seed makes."""
    d = X.shape[-1]
    made = hashes(d, k, seed=1000 * X.shape[-2] + d)
    if (X.shape[-2] + k) % 3:
        return made
    return Hashes(made.h2[::-1], made.s1, made.h1, made.s2[::-1], k)


def _some_weights(X: Array, dtype: str, how: str) -> Array | None:
    if how == "none":
        return None
    rng = np.random.default_rng(features.seed(how))
    a = rng.uniform(0.1, 2.0, size=X.shape[:-1])
    if how == "some zero":
        a[..., ::3] = 0.0
    return a.astype(Dtype(dtype).result)
