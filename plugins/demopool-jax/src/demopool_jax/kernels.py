"""Weights, pooling and the final norm. Every function can be traced: by jit, vmap and grad."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from demopool.implementations.shared import cancellation, ranges

# GPUs and TPUs would compute products of float32 in less than float32.
product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

# Rows whose entries of K are computed together where the moment is not accurate enough.
_ROWS = 256


def in_range(X: Array) -> tuple[Array, Array]:
    """Images divided by a power of two, which is exact, so that their largest value is between 1
    and 2; and that power, a constant for derivatives.

    Divided by the largest value itself, a matrix would be rounded, and its smallest eigenvalues
    with it."""
    _, exponent = jnp.frexp(lax.stop_gradient(ranges.magnitude(X, jnp)))
    exponent = jnp.maximum(exponent - 1, jnp.finfo(X.dtype).minexp)
    scale = jnp.ldexp(jnp.ones(exponent.shape, X.dtype), exponent)
    return X / scale, scale


def dense(X: Array, *, gamma: float, tau: float, iterations: int, order: int) -> Array:
    """Weights by the n x n matrix K."""
    scaled, scale = in_range(X)
    gram = product(scaled, scaled.mT)
    K = gram * gram if order == 2 else jax.nn.relu(gram)
    factor = partial(ranges.weights_factor, scale[..., 0], jnp, order=order)
    return _sinkhorn(X, lambda a: _times(K, a), factor, gamma, tau, iterations)


def matrix_free(X: Array, *, gamma: float, tau: float, iterations: int, order: int) -> Array:
    """Weights by ``(K a)_i = x_i^T (X^T diag(a) X) x_i``; rows where that cancels by entries of K,
    some at a time (``shared/cancellation.py`` has the rule)."""
    scaled, scale = in_range(X)
    limit = cancellation.doubt_limit(*X.shape[-2:])

    def product_with_K(a: Array) -> Array:
        moment = pool(scaled, a, order=2)
        forms = jnp.sum(product(scaled, moment) * scaled, axis=-1)
        terms = _times(scaled * scaled, jnp.diagonal(moment, axis1=-2, axis2=-1))
        doubtful = ~(forms * limit >= terms)
        again = partial(_by_entries, scaled)
        exact = lax.cond(jnp.any(doubtful), again, lambda a: jnp.zeros_like(a), a)
        return jnp.where(doubtful, exact, forms)

    factor = partial(ranges.weights_factor, scale[..., 0], jnp, order=order)
    return _sinkhorn(X, product_with_K, factor, gamma, tau, iterations)


def _by_entries(X: Array, a: Array) -> Array:
    """``sum_j (x_i . x_j)^2 a_j`` without the whole of K in memory."""

    @jax.checkpoint  # for derivatives the entries are computed again, not kept
    def of_row(x: Array) -> Array:
        return jnp.sum(jnp.square(_times(X, x)) * a, axis=-1)

    rows = lax.map(of_row, jnp.moveaxis(X, -2, 0), batch_size=_ROWS)
    return jnp.moveaxis(rows, 0, -1)


def _times(M: Array, v: Array) -> Array:
    return product(M, v[..., None])[..., 0]


def _sinkhorn(
    X: Array,
    times: Callable[[Array], Array],
    factor: Callable[..., Array],
    gamma: float,
    tau: float,
    iterations: int,
) -> Array:
    """The iteration on images in range, and the way back to the scale of X."""
    ones = jnp.ones(X.shape[:-1], X.dtype)
    row_sums = times(ones)
    # A row of zeros has an empty row in K. A sum of 1 keeps its weight finite until the end.
    empty = row_sums == 0
    row_sums = jnp.where(empty, 1, row_sums)
    target = row_sums**gamma

    def damped(a: Array, Ka: Array) -> Array:
        return a / (a * Ka / target) ** tau

    def step(a: Array, _: None) -> tuple[Array, None]:
        return damped(a, jnp.where(empty, 1, times(a))), None

    a = ones
    if iterations:
        a, _ = lax.scan(step, damped(ones, row_sums), length=iterations - 1)
    a = a * factor(gamma=gamma, tau=tau, iterations=iterations)
    return jnp.where(jnp.any(X != 0, axis=-1), a, 0)


def pool(X: Array, a: Array | None, *, order: int) -> Array:
    """``X^T diag(a) X``, or ``a^T X`` for order 1."""
    weighted = X if a is None else X * a[..., None]
    return jnp.sum(weighted, axis=-2) if order == 1 else product(X.mT, weighted)


def normalize(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
    """Signed square root and l2 norm. Zeros stay zeros, with a derivative of zero."""
    if kind == "none":
        return v + 0
    last = tuple(range(-axes, 0))
    if kind == "signed-sqrt-l2":
        v = jnp.where(v == 0, 0, jnp.sign(v) * jnp.sqrt(jnp.where(v == 0, 1, jnp.abs(v))))
    largest = lax.stop_gradient(jnp.max(jnp.abs(v), axis=last, keepdims=True))
    v = v / jnp.where(largest > 0, largest, 1)
    squares = jnp.sum(v * v, axis=last, keepdims=True)
    return v / jnp.sqrt(jnp.where(squares > 0, squares, 1))
