"""Matrix powers on NumPy arrays, for the backends that take LAPACK from SciPy.

Every route through eigenvectors gives a *factor* F of few rows with ``A^p = F^T F``. The power is
then one symmetric product, and its Tensor Sketch is the plain sum of the sketches of F's rows,
because a sketch is quadratic in its vector. What a backend does its own way (filling the upper
triangle, sketching) it passes to :func:`kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import numpy as xp
from scipy import linalg

from demopool.contract import Kernel

from . import blas, roots
from .blas import Array

# What counts as zero in float32, in units of eps times the largest value. Measured on real VGG-16
# features (n = 196 and 784, d = 512, p = 0.1, 0.3, 0.5; the true rank is known from float64):
# rounded zeros come out at up to 1 for eigenvalues and 3 for singular values. The usual rule,
# max(n, d), throws away a third of the true spectrum of such features and costs 10 to 30 times the
# error. In float64 their spectrum ends far above that rule, which then catches every rounded zero.
EIGENVALUE_CUT = 1.0
SINGULAR_VALUE_CUT = 3.0

Factor = Callable[[Array, float], Array]
Root = Callable[[Array], Array]


def _eigh_factor(image: Array, p: float) -> Array:
    """Eigenvectors of the d x d matrix A."""
    n, d = image.shape
    A = blas.outer(image, np.empty((d, d), dtype=image.dtype))
    return _factor_of_matrix(A, p, min(n, d))


def _factor_of_matrix(A: Array, p: float, rank: int) -> Array:
    """From the lower triangle of A, which is overwritten."""
    values, vectors = _eigh(A)
    return _scaled_rows(vectors.T, values, p / 2, rank, EIGENVALUE_CUT)


def _gram_factor(image: Array, p: float) -> Array:
    """Eigenvectors of the n x n Gram matrix: ``A^p = X^T U diag(l^(p-1)) U^T X``."""
    n, d = image.shape
    G = blas.gram(image, np.empty((n, n), dtype=image.dtype))
    values, vectors = _eigh(G)
    rows = blas.product(np.ascontiguousarray(vectors.T), image)
    return _scaled_rows(rows, values, (p - 1) / 2, min(n, d), EIGENVALUE_CUT)


def _svd_factor(image: Array, p: float) -> Array:
    """Right singular vectors of X: A is never formed, so its rounding is never amplified."""
    n, d = image.shape
    # X^T is the same memory column by column; its left vectors are X's right ones.
    vectors, singular, _ = linalg.svd(image.T, full_matrices=False, check_finite=False)
    return _scaled_rows(vectors.T, singular, p, min(n, d), SINGULAR_VALUE_CUT)


def _scaled_rows(rows: Array, values: Array, exponent: float, rank: int, cut: float) -> Array:
    """``values ** exponent * rows`` without the rows whose value cannot be told from zero.

    Kept, a rounding error of size eps would enter A^p as eps^p, and in the gram route as a
    division by almost zero. At most ``rank`` values can be real; of those, one at or below
    ``cut * eps`` times the largest is taken for zero.
    """
    largest_first = np.argsort(values)[::-1][:rank]
    units = cut if values.dtype == np.float32 else max(rows.shape)
    threshold = units * np.finfo(values.dtype).eps * values.max()
    kept = largest_first[values[largest_first] > threshold]
    factor = np.ascontiguousarray(rows[kept])
    factor *= (values[kept] ** exponent)[:, np.newaxis]
    return factor


def _eigh(S: Array) -> tuple[Array, Array]:
    """Ascending eigenvalues and eigenvectors (as columns) from the lower triangle, overwritten.

    SciPy works in the dtype given; NumPy's ``eigh`` would compute float32 in float64.
    """
    found: tuple[Array, Array] = linalg.eigh(
        S.T, lower=False, overwrite_a=True, check_finite=False, driver="evd"
    )
    return found


def _inverse(M: Array) -> Array:
    getrf, getri = linalg.get_lapack_funcs(("getrf", "getri"), (M,))
    factors, pivots, _ = getrf(M.T)
    # An exactly singular M has no inverse: its entries come out infinite or NaN, without a warning.
    inverse: Array = getri(factors, pivots, overwrite_lu=True)[0].T
    return inverse


def _newton(A: Array) -> Array:
    return roots.newton(A, xp=xp, inverse=_inverse, product=blas.product)


def _newton_schulz(A: Array) -> Array:
    return roots.newton_schulz(A, xp=xp, product=blas.product)


def _polar(A: Array) -> Array:
    return roots.polar(A, xp=xp, product=blas.product, to_rounding=True)


_FACTORS: dict[str, Factor] = {"eigh": _eigh_factor, "gram": _gram_factor, "svd": _svd_factor}
_ROOTS: dict[str, Root] = {"newton": _newton, "newton-schulz": _newton_schulz, "polar": _polar}


class Powers(NamedTuple):
    """Kernels by route."""

    of_features: dict[str, Kernel]
    of_matrices: dict[str, Kernel]
    sketched: dict[str, Kernel]


def kernels(
    mirror: Callable[[Array], Array],
    sketch_of_rows: Callable[[Array, Any], Array],
    sketch_of_matrices: Callable[[Array, Any], Array],
) -> Powers:
    """``power``, ``matrix_power`` and ``power_sketch`` by every route.

    mirror               copies the lower triangle of a matrix onto the upper, in place
    sketch_of_rows       (n, d) and prepared hashes -> the sum of the rows' sketches, (k,)
    sketch_of_matrices   (d, d) and prepared hashes -> the sketch of the matrix, (k,)
    """

    def of_features(route: str, image: Array, p: float, out: Array) -> Array:
        if route in _FACTORS:
            return mirror(blas.outer(_factor(route, image, p), out))
        out[:] = _ROOTS[route](mirror(blas.outer(image, out)))
        return out

    def power(route: str) -> Kernel:
        def power(X: Array, *, p: float) -> Array:
            d = X.shape[-1]
            powers = np.empty((*X.shape[:-2], d, d), dtype=blas.working_dtype(X))
            for index, image in blas.images(X):
                of_features(route, image, p, powers[index])
            return powers

        return power

    def matrix_power(route: str) -> Kernel:
        def matrix_power(A: Array, *, p: float) -> Array:
            powers = np.empty(A.shape, dtype=blas.working_dtype(A))
            for index, matrix in blas.images(A):
                if route == "eigh":
                    factor = _or_nan(_factor_of_matrix, np.array(matrix), p, len(matrix))
                    mirror(blas.outer(factor, powers[index]))
                else:
                    powers[index] = _ROOTS[route](matrix)
            return powers

        return matrix_power

    def power_sketch(route: str) -> Kernel:
        vectors, _, how = route.partition("+")

        def power_sketch(X: Array, prepared: Any, *, p: float) -> Array:
            d, dtype = X.shape[-1], blas.working_dtype(X)
            sketches = np.empty((*X.shape[:-2], prepared.hashes.k), dtype=dtype)
            whole = np.empty((d, d) if how == "moment" else 0, dtype=dtype)
            for index, image in blas.images(X):
                if how == "fft":
                    sketches[index] = sketch_of_rows(_factor(vectors, image, p), prepared)
                else:
                    matrix = of_features(vectors, image, p, whole)
                    sketches[index] = sketch_of_matrices(matrix, prepared)
            return sketches

        return power_sketch

    everywhere = (*_FACTORS, *_ROOTS)
    sketched = [f"{route}+fft" for route in _FACTORS] + [f"{route}+moment" for route in everywhere]
    return Powers(
        {route: power(route) for route in everywhere},
        {route: matrix_power(route) for route in ("eigh", *_ROOTS)},
        {route: power_sketch(route) for route in sketched},
    )


def _factor(route: str, image: Array, p: float) -> Array:
    return _or_nan(_FACTORS[route], image, p)


def _or_nan(factor: Callable[..., Array], matrix: Array, *arguments: Any) -> Array:
    """NaN in is NaN out: LAPACK refuses NaN and infinities, or never comes back from them."""
    if np.isfinite(matrix).all():
        try:
            return factor(matrix, *arguments)
        except linalg.LinAlgError:
            pass
    return np.full((1, matrix.shape[1]), np.nan, dtype=matrix.dtype)
