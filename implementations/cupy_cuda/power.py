"""Matrix powers.

Every route through eigenvectors gives a *factor* F of few rows with ``A^p = F^T F``; its Tensor
Sketch is the plain sum of the sketches of F's rows. The routes by matrix products are in
``shared/roots.py``.

CUDA's libraries, through CuPy: ``eigh`` of a matrix divides and conquers, of a batch (an array of
three axes, be it of one matrix) it is a Jacobi method, and ``inv`` of a batch is made for small
matrices too: larger ones go one by one. ``svd`` of a batch beyond 32 x 32 is a loop in CuPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from demopool.implementations.shared import accuracy, roots
from demopool.implementations.shared.accuracy import ACCURACY, EIGENVALUES, SINGULAR_VALUES, Solver
from demopool.implementations.shared.prepared import PreparedHashes

from . import pool, sketch
from .launcher import Array, Launcher

# Up to here a whole batch is given to the solvers for many small matrices.
_SMALL = 32

Solve = Callable[[Launcher, Array, float], "_Found"]
Root = Callable[[Launcher, Array], Array]


class _Found(NamedTuple):
    """The factors of images, and how far A^p can be off in spectral norm, ``(images,)``."""

    factors: Array
    errors: Array


def _by_eigh(on: Launcher, X: Array, p: float) -> _Found:
    """Eigenvectors of the d x d matrix A."""
    return _by_matrix(on, pool.second_moment(on, X, None), p, tuple(X.shape[-2:]))


def _by_matrix(on: Launcher, A: Array, p: float, sizes: tuple[int, ...]) -> _Found:
    """At most min(sizes) eigenvalues are not zero."""
    values, vectors = _eigh(on, A)
    rank = min(sizes)
    values, vectors = values[:, -rank:], vectors[:, :, -rank:]
    scales = _powers(on, values, p / 2, sizes, EIGENVALUES)
    factors = on.xp.matrix_transpose(vectors * scales[:, None, :])
    return _Found(factors, _errors(on, values, p, sizes, EIGENVALUES))


def _by_gram(on: Launcher, X: Array, p: float) -> _Found:
    """Eigenvectors of the n x n Gram matrix: ``A^p = X^T U diag(l^(p-1)) U^T X``."""
    _, n, d = X.shape
    values, left = _eigh(on, pool.second_moment(on, on.contiguous(on.xp.matrix_transpose(X)), None))
    rank = min(n, d)
    values, left = values[:, -rank:], left[:, :, -rank:]
    scales = _powers(on, values, (p - 1) / 2, (n, d), EIGENVALUES)
    factors = on.xp.matmul(on.xp.matrix_transpose(left), X) * scales[:, :, None]
    return _Found(factors, _errors(on, values, p, (n, d), EIGENVALUES))


def _by_svd(on: Launcher, X: Array, p: float) -> _Found:
    """Right singular vectors of X: A is never formed, so its rounding is never amplified."""
    finite = _is_finite(on, X)
    zero = on.xp.zeros_like(X)
    _, singular, right = on.xp.linalg.svd(on.xp.where(finite, X, zero), full_matrices=False)
    singular, sizes = _or_nan(on, finite, singular), tuple(X.shape[-2:])
    factors = right * _powers(on, singular, p, sizes, SINGULAR_VALUES)[:, :, None]
    return _Found(factors, _errors(on, singular, p, sizes, SINGULAR_VALUES))


def _factor(on: Launcher, X: Array, p: float, route: str) -> Array:
    """By the route in the precision of the features; images for which that cannot be accurate in
    float64, and at last by the singular values (``shared/accuracy.py`` has the law)."""
    double = on.xp.float64
    attempts = dict.fromkeys(((route, X.dtype), (route, double), ("svd", double)))
    return _first_accurate(on, X, p, [(_SOLVERS[name], dtype) for name, dtype in attempts])


def _factor_of_matrices(on: Launcher, A: Array, p: float) -> Array:
    def solve(on: Launcher, A: Array, p: float) -> _Found:
        return _by_matrix(on, A, p, tuple(A.shape[-2:]))

    dtypes = dict.fromkeys((A.dtype, on.xp.float64))
    return _first_accurate(on, A, p, [(solve, dtype) for dtype in dtypes])


def _first_accurate(on: Launcher, X: Array, p: float, attempts: list[tuple[Solve, Any]]) -> Array:
    """Asks a device for one value of each image: solvers that are off by 70 times the result on
    an ordinary constant image are not worth the time they save."""
    xp = on.xp
    (solve, dtype), *others = attempts
    found = solve(on, xp.astype(X, dtype, copy=False), p)
    factors = xp.astype(found.factors, X.dtype, copy=False)
    if not others:
        return factors
    # The largest entry of A^p is on its diagonal. What is not finite has no better.
    entries = xp.max(xp.sum(found.factors * found.factors, axis=1), axis=-1)
    enough = (found.errors <= ACCURACY * entries) | ~_is_finite(on, X)[:, 0, 0] | (entries == 0)
    good = on.read(enough)
    if good.all():
        return factors
    each = [
        factors[i, ...] if good[i] else _first_accurate(on, X[i : i + 1, ...], p, others)[0, ...]
        for i in range(len(good))
    ]
    return xp.stack(each)


def _errors(on: Launcher, values: Array, p: float, sizes: tuple[int, ...], solver: Solver) -> Array:
    xp = on.xp
    largest = xp.max(values, axis=-1)
    return accuracy.error(
        solver,
        xp.min(values, axis=-1),
        xp.where(largest > 0, largest, xp.ones_like(largest)),
        p,
        sizes,
        eps=float(xp.finfo(values.dtype).eps),
        single=values.dtype == xp.float32,
        maximum=xp.maximum,
    )


def _eigh(on: Launcher, A: Array) -> tuple[Array, Array]:
    """NaN in is NaN out: solvers refuse NaN and infinities, and with them the whole batch."""
    finite = _is_finite(on, A)
    A = on.xp.where(finite, A, on.xp.zeros_like(A))
    if A.shape[-1] <= _SMALL:
        values, vectors = on.xp.linalg.eigh(A)
    else:
        found = [on.xp.linalg.eigh(A[i, ...]) for i in range(A.shape[0])]
        values = on.xp.stack([one[0] for one in found])
        vectors = on.xp.stack([one[1] for one in found])
    return _or_nan(on, finite, values), vectors


def _is_finite(on: Launcher, matrices: Array) -> Array:
    """Of each as a whole, ``(images, 1, 1)``: a NaN or an infinity makes the sum not finite."""
    return on.xp.isfinite(on.xp.sum(on.xp.abs(matrices), axis=(-2, -1), keepdims=True))


def _or_nan(on: Launcher, finite: Array, values: Array) -> Array:
    return on.xp.where(finite[..., 0], values, on.xp.full_like(values, on.xp.nan))


def _powers(
    on: Launcher, values: Array, exponent: float, sizes: tuple[int, ...], solver: Solver
) -> Array:
    """``values ** exponent`` of those that can be told from zero, 0 for the others: kept, a
    rounding error of eps would enter A^p as eps^p."""
    xp = on.xp
    units = accuracy.cut(solver, sizes, values.dtype == xp.float32)
    limit = units * xp.finfo(values.dtype).eps * xp.max(values, axis=-1, keepdims=True)
    # Not ``>``: NaN is kept, and makes the result NaN.
    kept = ~(values <= limit)
    ones, zeros = xp.ones_like(values), xp.zeros_like(values)
    return xp.where(kept, xp.where(kept, values, ones) ** exponent, zeros)


def _newton(on: Launcher, A: Array) -> Array:
    def inverse(M: Array) -> Array:
        if M.shape[-1] <= _SMALL:
            return on.xp.linalg.inv(M)
        return on.xp.stack([on.xp.linalg.inv(M[i, ...]) for i in range(M.shape[0])])

    return roots.newton(A, xp=on.xp, inverse=inverse, product=on.xp.matmul)


def _newton_schulz(on: Launcher, A: Array) -> Array:
    return roots.newton_schulz(A, xp=on.xp, product=on.xp.matmul)


def _polar(on: Launcher, A: Array) -> Array:
    return roots.polar(A, xp=on.xp, product=on.xp.matmul, to_rounding=True)


_SOLVERS: dict[str, Solve] = {"eigh": _by_eigh, "gram": _by_gram, "svd": _by_svd}
_ROOTS: dict[str, Root] = {"newton": _newton, "newton-schulz": _newton_schulz, "polar": _polar}


def _none(on: Launcher, X: Array, *shape: int) -> Array | None:
    """The result for a batch of no images, which solvers refuse; None if there are some."""
    return None if X.shape[0] else on.zeros((0, *shape), X)


def _of_features(route: str) -> Callable[..., Array]:
    def power(on: Launcher, X: Array, *, p: float) -> Array:
        d = X.shape[-1]
        if (nothing := _none(on, X, d, d)) is not None:
            return nothing
        if route in _ROOTS:
            return _ROOTS[route](on, pool.second_moment(on, X, None))
        return pool.second_moment(on, on.contiguous(_factor(on, X, p, route)), None)

    return power


def _of_matrices(route: str) -> Callable[..., Array]:
    def matrix_power(on: Launcher, A: Array, *, p: float) -> Array:
        d = A.shape[-1]
        if (nothing := _none(on, A, d, d)) is not None:
            return nothing
        if route in _ROOTS:
            return _ROOTS[route](on, A)
        return pool.second_moment(on, on.contiguous(_factor_of_matrices(on, A, p)), None)

    return matrix_power


def _sketched(route: str) -> Callable[..., Array]:
    vectors, _, how = route.partition("+")

    def power_sketch(on: Launcher, X: Array, prepared: PreparedHashes, *, p: float) -> Array:
        if (nothing := _none(on, X, prepared.hashes.k)) is not None:
            return nothing
        if how == "fft":
            return sketch.pool_fft(on, _factor(on, X, p, vectors), prepared, None)
        matrices = OF_FEATURES[vectors](on, X, p=p)
        return sketch.of_matrices(on, on.contiguous(matrices), prepared)

    return power_sketch


OF_FEATURES = {route: _of_features(route) for route in (*_SOLVERS, *_ROOTS)}
OF_MATRICES = {route: _of_matrices(route) for route in ("eigh", *_ROOTS)}
SKETCHED = {
    **{f"{route}+fft": _sketched(f"{route}+fft") for route in _SOLVERS},
    **{f"{route}+moment": _sketched(f"{route}+moment") for route in OF_FEATURES},
}
