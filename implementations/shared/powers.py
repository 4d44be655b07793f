"""Matrix powers on NumPy arrays, for the backends that use SciPy's LAPACK.

Every route by eigenvectors gives a *factor* F of few rows with ``A^p = F^T F``. The power is then
one symmetric product, and its Tensor Sketch is the plain sum of the sketches of F's rows, because a
sketch is quadratic in its vector. Backends pass their own functions for filling the upper triangle
and for sketching to :func:`kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import numpy as xp
from scipy import linalg

from demopool.contract import signatures
from demopool.errors import Unsupported

from . import accuracy, blas, roots, scaling
from .accuracy import ACCURACY, EIGENVALUES, SINGULAR_VALUES, Solver
from .blas import Array

Root = Callable[[Array], Array]

# Values whose squares, and sums of squares, stay well within the range of float32.
_MILD_LOW, _MILD_HIGH = 2.0**-32, 2.0**32
_EPS = {"f": float(np.finfo(np.float32).eps), "d": float(np.finfo(np.float64).eps)}


class _Spectrum(NamedTuple):
    """Values, largest first, and a row for each: A^p = F^T F with F = values ** exponent * rows."""

    solver: Solver
    values: Array
    rows: Array
    exponent: float


def _by_eigh(image: Array, p: float) -> _Spectrum:
    """Eigenvectors of the d x d matrix A."""
    d = image.shape[1]
    return _of_matrix(blas.outer(image, np.empty((d, d), dtype=image.dtype)), p)


def _of_matrix(A: Array, p: float) -> _Spectrum:
    """Eigenvectors of A from its lower triangle, which is overwritten."""
    values, vectors = _eigh(A)
    return _Spectrum(EIGENVALUES, values[::-1], vectors.T[::-1], p / 2)


def _by_gram(image: Array, p: float) -> _Spectrum:
    """Eigenvectors of the n x n Gram matrix: ``A^p = X^T U diag(l^(p-1)) U^T X``."""
    n = len(image)
    values, vectors = _eigh(blas.gram(image, np.empty((n, n), dtype=image.dtype)))
    rows = blas.product(np.ascontiguousarray(vectors.T), image)
    return _Spectrum(EIGENVALUES, values[::-1], rows[::-1], (p - 1) / 2)


def _by_svd(image: Array, p: float) -> _Spectrum:
    """Right singular vectors of X: A is never formed, so its rounding is never amplified."""
    # X^T is the same memory column by column; its left vectors are X's right ones.
    vectors, singular, _ = linalg.svd(image.T, full_matrices=False, check_finite=False)
    return _Spectrum(SINGULAR_VALUES, singular, vectors.T, p)


_SOLVERS: dict[str, Callable[[Array, float], _Spectrum]] = {
    "eigh": _by_eigh,
    "gram": _by_gram,
    "svd": _by_svd,
}


def _factor(route: str, image: Array, p: float) -> Array:
    """The factor by the route in the precision of the features; where that is not accurate enough,
    in float64, and finally by the singular values, as in the reference."""
    image, c = _in_range(image)
    if c is None:
        return _nothing(image)
    attempts = [(route, image.dtype), (route, np.dtype(np.float64)), ("svd", np.dtype(np.float64))]

    def spectra() -> Iterator[_Spectrum]:
        for name, dtype in dict.fromkeys(attempts):
            with suppress(linalg.LinAlgError):
                yield _SOLVERS[name](image.astype(dtype, copy=False), p)

    factor = _first_accurate(spectra(), image, p, lambda: _live(image))
    return factor if c == 1.0 else factor * factor.dtype.type(c**-p)


def _factor_of_matrix(A: Array, p: float) -> Array:
    """The factor in the precision of A; where that is not accurate enough, in float64."""
    A, c = _in_range(A)
    if c is None:
        return _nothing(A)

    def spectra() -> Iterator[_Spectrum]:
        for dtype in dict.fromkeys((A.dtype, np.dtype(np.float64))):
            with suppress(linalg.LinAlgError):
                yield _of_matrix(A.astype(dtype), p)

    factor = _first_accurate(spectra(), A, p, lambda: int(np.count_nonzero(A.diagonal())))
    return factor if c == 1.0 else factor * factor.dtype.type(c ** (-p / 2))


def _first_accurate(
    spectra: Iterator[_Spectrum], given: Array, p: float, live: Callable[[], int]
) -> Array:
    """The factor from the first spectrum that is accurate enough, else from the last one."""
    rank, counted, factor, error = min(given.shape), False, None, nan
    for spectrum in spectra:
        factor, error = _scaled_rows(spectrum, p, rank, given.shape)
        if error > ACCURACY and not counted:
            rank, counted = live(), True  # only now: few features have rows or channels of zeros
            factor, error = _scaled_rows(spectrum, p, rank, given.shape)
        if error <= ACCURACY:
            break
    if factor is None or not isfinite(error):
        raise Unsupported(
            "a matrix power of these features", "LAPACK finds no eigenvectors of them"
        )
    return factor.astype(given.dtype, copy=False)


def _scaled_rows(
    spectrum: _Spectrum, p: float, rank: int, sizes: tuple[int, ...]
) -> tuple[Array, float]:
    """The factor without rows whose value is indistinguishable from zero, and A^p's error bound.

    If such a value were kept, a rounding error of size eps would enter A^p as eps^p, and in the
    gram route as a division by almost zero. At most ``rank`` values can be nonzero.
    """
    solver, values, rows, exponent = spectrum
    values, rows = values[:rank], rows[:rank]
    if rank == 0:
        return np.zeros((0, sizes[1]), dtype=rows.dtype), 0.0
    eps, single = _EPS[values.dtype.char], values.dtype.char == "f"
    largest = float(values[0])
    kept = int(np.count_nonzero(values > accuracy.cut(solver, sizes, single) * eps * largest))
    factor = np.multiply(rows[:kept], (values[:kept] ** exponent)[:, np.newaxis], order="C")
    if kept == 0:
        return factor, 0.0
    smallest = float(values[-1])
    spectral = accuracy.error(solver, smallest, largest, p, sizes, eps=eps, single=single)
    mean_entry = blas.norm(factor) ** 2 / sizes[1]  # of the diagonal, which has the largest entry
    if spectral <= ACCURACY * mean_entry:
        return factor, spectral / mean_entry
    return factor, spectral / float(np.einsum("ij,ij->j", factor, factor).max())


def _live(image: Array) -> int:
    """The maximum rank of an image, given its rows and channels of zeros."""
    present = image != 0
    return int(min(present.any(axis=0).sum(), present.any(axis=1).sum()))


def _in_range(image: Array) -> tuple[Array, float | None]:
    """The image and 1, or a copy scaled to about 1 and its factor if squares could leave the range.
    The factor is None for an image that is not finite: LAPACK rejects it or never returns."""
    largest = max(float(image.max()), -float(image.min()))
    if not isfinite(largest):
        return image, None
    c = scaling.near_one(largest, image.dtype)
    return (image, 1.0) if _MILD_LOW < c < _MILD_HIGH else (image * image.dtype.type(c), c)


def _nothing(image: Array) -> Array:
    """A factor of NaN, the result for an image that is not finite."""
    return np.full((1, image.shape[1]), np.nan, dtype=image.dtype)


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
    # The computed inverse of an exactly singular M is infinite or NaN, without a warning.
    inverse: Array = getri(factors, pivots, overwrite_lu=True)[0].T
    return inverse


def _newton(A: Array) -> Array:
    return roots.newton(A, xp=xp, inverse=_inverse, product=blas.product)


def _newton_schulz(A: Array) -> Array:
    return roots.newton_schulz(A, xp=xp, product=blas.product)


def _polar(A: Array) -> Array:
    return roots.polar(A, xp=xp, product=blas.product, to_rounding=True)


_ROOTS: dict[str, Root] = {"newton": _newton, "newton-schulz": _newton_schulz, "polar": _polar}


class Powers(NamedTuple):
    """Kernels by route."""

    of_features: dict[str, signatures.Power]
    of_matrices: dict[str, signatures.MatrixPower]
    sketched: dict[str, signatures.PowerSketch]


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
        if route in _SOLVERS:
            return mirror(blas.outer(_factor(route, image, p), out))
        image, c = _in_range(image)
        out[:] = _ROOTS[route](mirror(blas.outer(image, out)))
        if c is not None and c != 1.0:
            out /= out.dtype.type(c)
        return out

    def power(route: str) -> signatures.Power:
        def power(X: Array, *, p: float) -> Array:
            d = X.shape[-1]
            powers = np.empty((*X.shape[:-2], d, d), dtype=blas.working_dtype(X))
            for index, image in blas.images(X):
                of_features(route, blas.working(image), p, powers[index])
            return powers

        return power

    def matrix_power(route: str) -> signatures.MatrixPower:
        def matrix_power(A: Array, *, p: float) -> Array:
            powers = np.empty(A.shape, dtype=blas.working_dtype(A))
            for index, matrix in blas.images(A):
                if route == "eigh":
                    factor = _factor_of_matrix(matrix, p)
                    mirror(blas.outer(factor, powers[index]))
                else:
                    powers[index] = _ROOTS[route](matrix)
            return powers

        return matrix_power

    def power_sketch(route: str) -> signatures.PowerSketch:
        vectors, _, how = route.partition("+")

        def power_sketch(X: Array, prepared: Any, *, p: float) -> Array:
            d, dtype = X.shape[-1], blas.working_dtype(X)
            sketches = np.empty((*X.shape[:-2], prepared.hashes.k), dtype=dtype)
            whole = np.empty((d, d) if how == "moment" else 0, dtype=dtype)
            for index, given in blas.images(X):
                image = blas.working(given)
                if how == "fft":
                    sketches[index] = sketch_of_rows(_factor(vectors, image, p), prepared)
                else:
                    matrix = of_features(vectors, image, p, whole)
                    sketches[index] = sketch_of_matrices(matrix, prepared)
            return sketches

        return power_sketch

    everywhere = (*_SOLVERS, *_ROOTS)
    sketched = [f"{route}+fft" for route in _SOLVERS] + [f"{route}+moment" for route in everywhere]
    return Powers(
        {route: power(route) for route in everywhere},
        {route: matrix_power(route) for route in ("eigh", *_ROOTS)},
        {route: power_sketch(route) for route in sketched},
    )
