"""Matrix powers: from a spectrum, with the derivative of Daleckii and Krein, or by products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from demopool.implementations.shared import accuracy, roots

from . import sketch
from .kernels import in_range, pool, product
from .sketch import Bins


class Spectrum(NamedTuple):
    """Eigenvalues of A, eigenvectors as columns; values that are not kept count as zero."""

    values: Array
    vectors: Array
    kept: Array

    def powers(self, p: float) -> Array:
        return jnp.where(self.kept, jnp.where(self.kept, self.values, 1) ** p, 0)


def _by_eigh(X: Array) -> tuple[Array, Array]:
    """Largest min(n, d) eigenvalues of A, ascending, and their vectors."""
    values, vectors = jnp.linalg.eigh(pool(X, None, order=2))
    rank = min(X.shape[-2:])
    return values[..., -rank:], vectors[..., -rank:]


def _by_gram(X: Array) -> tuple[Array, Array]:
    """The same from the n x n Gram matrix: X^T u is an eigenvector of length sqrt(lambda)."""
    values, left = _by_eigh(X.mT)
    positive = values > 0
    lengths = jnp.sqrt(jnp.where(positive, values, 1))
    vectors = product(X.mT, left) / lengths[..., None, :]
    return values, jnp.where(positive[..., None, :], vectors, 0)


def _by_svd(X: Array) -> tuple[Array, Array]:
    """The same from singular values: A is never formed, so its rounding is never amplified."""
    _, singular, right = jnp.linalg.svd(X, full_matrices=False)
    return jnp.square(singular)[..., ::-1], right.mT[..., ::-1]


def _of_matrix(A: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(A)
    return values, vectors


_SOLVERS = {"eigh": _by_eigh, "gram": _by_gram, "svd": _by_svd, "matrix": _of_matrix}


def _spectrum(X: Array, p: float, route: str) -> Spectrum:
    """By the route in the dtype of X; where that is not accurate enough for A^p in float64, and
    then by singular values. Tracers have no values to look at, so XLA decides, with ``cond``."""
    has_float64 = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    work = jnp.dtype(X.dtype)
    best = jnp.dtype(jnp.float64) if has_float64 else work
    last = route if route == "matrix" else "svd"
    attempts = list(dict.fromkeys([(route, work), (route, best), (last, best)]))

    def climb(name: str, dtype: Any, *others: tuple[str, Any]) -> Spectrum:
        found, enough = _solved(name, X.astype(dtype), p)
        found = Spectrum(found.values.astype(X.dtype), found.vectors.astype(X.dtype), found.kept)
        if not others:
            return found
        following, *rest = others
        return lax.cond(enough, lambda: found, lambda: climb(*following, *rest))

    first, *others = attempts
    return climb(*first, *others)


def _solved(name: str, X: Array, p: float) -> tuple[Spectrum, Array]:
    """A spectrum, and whether every image's power is accurate enough."""
    solver = accuracy.BY_ROUTE.get(name, accuracy.EIGENVALUES)
    n, d = X.shape[-2:]
    single, eps = X.dtype == jnp.float32, float(jnp.finfo(X.dtype).eps)
    values, vectors = _SOLVERS[name](X)
    natural = values if solver.exponent == 1 else jnp.sqrt(values)
    largest = natural[..., -1:]
    # No more values than rows and channels that are not zero.
    present = X != 0
    live = [jnp.sum(jnp.any(present, axis=axis), axis=-1, keepdims=True) for axis in (-1, -2)]
    ranked = jnp.arange(values.shape[-1]) >= values.shape[-1] - jnp.minimum(*live)
    kept = ~(natural <= accuracy.cut(solver, (n, d), single) * eps * largest) & ranked
    found = Spectrum(values, vectors, kept)
    smallest = jnp.min(jnp.where(ranked, natural, largest), axis=-1)
    largest = largest[..., 0]
    error = accuracy.error(
        solver, smallest, largest, p, (n, d), eps=eps, single=single, maximum=jnp.maximum
    )
    entries = product(jnp.square(vectors), found.powers(p)[..., None])[..., 0]
    enough = (error <= accuracy.ACCURACY * jnp.max(entries, axis=-1)) | (largest == 0)
    return found, jnp.all(enough & jnp.isfinite(jnp.sum(vectors, axis=(-2, -1))))


def _finished(found: Spectrum, bins: Bins | None, p: float, how: str, k: int) -> Array:
    """A^p of its factor, or its sketch."""
    factor = found.vectors * found.powers(p / 2)[..., None, :]
    if how == "fft":
        assert bins is not None
        return sketch.pool_fft(factor.mT, bins, None, k=k)
    power = product(factor, factor.mT)
    return power if bins is None else sketch.of_matrices(power, bins, k)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def _from_spectrum(X: Array, bins: Bins | None, p: float, route: str, how: str, k: int) -> Array:
    return _finished(_spectrum(X, p, route), bins, p, how, k)


def _forward(
    X: Array, bins: Bins | None, p: float, route: str, how: str, k: int
) -> tuple[Array, Any]:
    found = _spectrum(X, p, route)
    return _finished(found, bins, p, how, k), (X, bins, found)


def _backward(p: float, route: str, how: str, k: int, kept: Any, by: Array) -> tuple[Any, ...]:
    """With quotients ``(l^p - m^p) / (l - m)`` of eigenvalues; JAX's own derivative of eigenvectors
    divides by zero where two of them are equal."""
    X, bins, found = kept
    G = by if bins is None else sketch.spread(by, bins, k)
    G = G + G.mT
    V = jnp.where(found.kept[..., None, :], found.vectors, 0)
    values = jnp.where(found.kept, found.values, 1)
    logs = jnp.log(values)
    t = logs[..., :, None] - logs[..., None, :]
    equal = t == 0
    quotients = jnp.where(equal, p, jnp.expm1(p * t) / jnp.expm1(jnp.where(equal, 1, t)))
    GV = product(G, V)
    inner = product(V.mT, GV)
    weighted = inner * quotients * (values ** (p - 1))[..., None, :]
    # Between range and null space the quotient is l^p / l.
    across = GV - product(V, inner)
    across = across * found.powers(p - 1)[..., None, :]
    by_A = product(product(V, weighted) + across, V.mT) + product(V, across.mT)
    return (by_A + by_A.mT) / 4 if route == "matrix" else product(X, by_A), None


_from_spectrum.defvjp(_forward, _backward)
_ROOTS: dict[str, Callable[[Array], Array]] = {
    "newton": partial(roots.newton, xp=jnp, inverse=jnp.linalg.inv, product=product),
    "newton-schulz": partial(roots.newton_schulz, xp=jnp, product=product),
    "polar": partial(roots.polar, xp=jnp, product=product, to_rounding=True),
}


def power(X: Array, *, p: float, route: str) -> Array:
    """``(X^T X)^p`` of images in range, which the scale is then given back."""
    scaled, scale = in_range(X)
    if route in _ROOTS:
        return _ROOTS[route](pool(scaled, None, order=2)) * scale
    return _from_spectrum(scaled, None, p, route, "matrix", 0) * scale ** (2 * p)


def matrix_power(A: Array, *, p: float, route: str) -> Array:
    if route in _ROOTS:
        return _ROOTS[route](A)
    scaled, scale = in_range(A)
    return _from_spectrum(scaled, None, p, "matrix", "matrix", 0) * scale**p


def power_sketch(X: Array, bins: Bins, *, p: float, k: int, route: str) -> Array:
    solver, _, how = route.partition("+")
    if solver in _ROOTS:
        return sketch.of_matrices(power(X, p=p, route=solver), bins, k)
    scaled, scale = in_range(X)
    return _from_spectrum(scaled, bins, p, solver, how, k) * scale[..., 0] ** (2 * p)
