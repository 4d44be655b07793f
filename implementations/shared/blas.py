"""SciPy's BLAS without copies and with a single thread pool.

NumPy's ``@`` and SciPy's BLAS are two copies of OpenBLAS whose threads spin against each other, so
every product of this backend uses this module. BLAS is column-major: the transpose of a row-major
array is the same memory in BLAS's order, and SciPy's wrappers then copy nothing. Features of a conv
map, ``(C, H, W)``, are column-major as they are. Symmetric results are row-major and fill only the
lower triangle; :func:`mirror` fills the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

Array = NDArray[Any]

_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    (name, character): getattr(blas, prefix + name)
    for name in ("syrk", "symm", "symv", "gemm", "gemv", "nrm2")
    for character, prefix in (("f", "s"), ("d", "d"))
}

CHUNK_BYTES = 2 * 2**20
"""Features are copied, weighted and converted in chunks of this size, never as a whole."""

STRIP = 64
"""Number of columns mirrored at a time."""

_ABOVE = np.triu(np.ones((STRIP, STRIP), dtype=bool), 1)


def images(X: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Each image with its index, row-major or column-major: a view, unless it is neither."""
    for index in itertools.product(*map(range, X.shape[:-2])):
        image = X[index]
        yield index, image if image.flags.forc else np.ascontiguousarray(image)


def working_dtype(X: Array) -> Any:
    """The dtype to compute in: float32 for half precision, else that of X."""
    return np.float32 if X.dtype.type is np.float16 else X.dtype.type


def working(X: Array) -> Array:
    """The array in the dtype to compute in; itself unless it is half precision."""
    return X.astype(working_dtype(X), copy=False)


def working_rows(image: Array) -> Iterator[tuple[slice, Array]]:
    """All rows at once, or, in half precision, as many as are converted at a time."""
    if image.dtype.type is not np.float16:
        yield slice(0, len(image)), image
        return
    for rows in row_chunks(len(image), 4 * image.shape[1], CHUNK_BYTES):
        yield rows, working(image[rows])


def block(image: Array, rows: slice) -> Array:
    """Rows row-major and in working precision: a view of such an image, else a small copy."""
    return np.ascontiguousarray(image[rows], dtype=working_dtype(image))


def row_chunks(rows: int, bytes_per_row: int, budget: int) -> Iterator[slice]:
    """Slices of rows whose intermediate results stay within ``budget`` bytes."""
    step = max(1, budget // bytes_per_row)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _in_order(X: Array) -> tuple[Array, int]:
    """The matrix in BLAS's order, and whether that is the transpose of what was given. Blocks of a
    column-major image are in neither order and are copied."""
    if X.flags.f_contiguous and not X.flags.c_contiguous:
        return X, 0
    return np.ascontiguousarray(X).T, 1


def gram(X: Array, out: Array, *, scale: float = 1.0) -> Array:
    """Lower triangle of ``scale * X X^T`` into ``out``; the rest of ``out`` is left as it is."""
    x, transposed = _in_order(X)
    syrk = _FUNCTIONS["syrk", X.dtype.char]
    syrk(scale, x, trans=transposed, c=out.T, overwrite_c=1)
    return out


def outer(X: Array, out: Array, *, add: bool = False) -> Array:
    """Lower triangle of ``X^T X`` into ``out``, or added to it."""
    x, transposed = _in_order(X)
    syrk = _FUNCTIONS["syrk", X.dtype.char]
    syrk(1.0, x, trans=1 - transposed, beta=float(add), c=out.T, overwrite_c=1)
    return out


def weighted_outer(image: Array, weights: Array | None, out: Array) -> Array:
    """Lower triangle of ``X^T diag(a) X`` of one image into ``out``, of ``sqrt(a) X``."""
    if weights is None:
        for rows, some in working_rows(image):
            outer(some, out, add=rows.start > 0)
        return out
    root = np.sqrt(weights)[:, np.newaxis]
    for rows in row_chunks(len(image), image.shape[1] * root.itemsize, CHUNK_BYTES):
        outer(image[rows] * root[rows], out, add=rows.start > 0)
    return out


def weighted_sum(image: Array, weights: Array | None) -> Array:
    """``a^T X`` of one image."""
    a = np.ones(len(image), working_dtype(image)) if weights is None else weights
    return reduce(np.add, (vector_times(a[rows], some) for rows, some in working_rows(image)))


def times_symmetric(X: Array, S: Array) -> Array:
    """``X S`` for row-major X and a symmetric S of which the lower triangle is read."""
    symm = _FUNCTIONS["symm", X.dtype.char]
    return symm(1.0, S.T, X.T).T


def symmetric_times_vector(S: Array, v: Array) -> Array:
    """``S v`` for a symmetric S of which the lower triangle is read."""
    return _FUNCTIONS["symv", S.dtype.char](1.0, S.T, v)


def product(A: Array, B: Array) -> Array:
    """``A B``."""
    return _gemm(A, B, 0, 0)


def product_transposed(A: Array, B: Array) -> Array:
    """``A B^T``."""
    return _gemm(A, B, 0, 1)


def transposed_product(A: Array, B: Array) -> Array:
    """``A^T B``."""
    return _gemm(A, B, 1, 0)


def _gemm(A: Array, B: Array, flip_a: int, flip_b: int) -> Array:
    """The product of A and B, each or its transpose: row-major, as the transpose of BLAS's."""
    (a, is_a), (b, is_b) = _in_order(A), _in_order(B)
    gemm = _FUNCTIONS["gemm", A.dtype.char]
    return gemm(1.0, b, a, trans_a=is_b ^ flip_b ^ 1, trans_b=is_a ^ flip_a ^ 1).T


def matrix_times_vector(X: Array, v: Array) -> Array:
    """``X v``."""
    x, transposed = _in_order(X)
    return _FUNCTIONS["gemv", X.dtype.char](1.0, x, v, trans=transposed)


def vector_times(v: Array, X: Array) -> Array:
    """``v^T X``."""
    x, transposed = _in_order(X)
    return _FUNCTIONS["gemv", X.dtype.char](1.0, x, v, trans=1 - transposed)


def norm(v: Array) -> float:
    """l2 norm of all elements, safe from overflow and underflow."""
    return float(_FUNCTIONS["nrm2", v.dtype.char](v.ravel(order="K")))


def mirror(S: Array) -> Array:
    """Copy the lower triangle onto the upper, strip by strip, in place.

    Each strip of columns is copied first: read in place, its elements lie one row length apart,
    which for d = 512 or 2048 puts them all into the same few lines of the cache.
    """
    size = len(S)
    for start in range(0, size, STRIP):
        stop = min(start + STRIP, size)
        width = stop - start
        strip = S[start:, start:stop].copy()
        S[start:stop, stop:] = strip[width:].T
        np.copyto(S[start:stop, start:stop], strip[:width].T, where=_ABOVE[:width, :width])
    return S
