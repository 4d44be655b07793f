"""SciPy's BLAS on row-major arrays, without copies and with a single thread pool.

NumPy's ``@`` and SciPy's BLAS are two copies of OpenBLAS whose threads spin against each other, so
every product of this backend uses this module. BLAS is column-major: the transpose of a row-major
array is the same memory in BLAS's order, and SciPy's wrappers then copy nothing. Symmetric results
fill only the lower triangle (of the row-major array); :func:`mirror` fills the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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

# Number of columns mirrored at a time.
_STRIP = 64
_ABOVE = np.triu(np.ones((_STRIP, _STRIP), dtype=bool), 1)


def images(X: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Each image with its index, row-major and in working precision; a view where possible."""
    dtype = working_dtype(X)
    for index in itertools.product(*map(range, X.shape[:-2])):
        yield index, np.ascontiguousarray(X[index], dtype=dtype)


def working_dtype(X: Array) -> Any:
    """The dtype to compute in: float32 for half precision, else that of X."""
    return np.float32 if X.dtype.type is np.float16 else X.dtype.type


def row_chunks(rows: int, bytes_per_row: int, budget: int) -> Iterator[slice]:
    """Slices of rows whose intermediate results stay within ``budget`` bytes."""
    step = max(1, budget // bytes_per_row)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def gram(X: Array, out: Array, *, scale: float = 1.0) -> Array:
    """Lower triangle of ``scale * X X^T`` into ``out``; the rest of ``out`` is left as it is."""
    syrk = _FUNCTIONS["syrk", X.dtype.char]
    syrk(scale, X.T, trans=1, c=out.T, overwrite_c=1)
    return out


def outer(X: Array, out: Array, *, add: bool = False) -> Array:
    """Lower triangle of ``X^T X`` into ``out``, or added to it."""
    syrk = _FUNCTIONS["syrk", X.dtype.char]
    syrk(1.0, X.T, beta=float(add), c=out.T, overwrite_c=1)
    return out


def times_symmetric(X: Array, S: Array) -> Array:
    """``X S`` for a symmetric S of which the lower triangle is read."""
    symm = _FUNCTIONS["symm", X.dtype.char]
    return symm(1.0, S.T, X.T).T


def symmetric_times_vector(S: Array, v: Array) -> Array:
    """``S v`` for a symmetric S of which the lower triangle is read."""
    return _FUNCTIONS["symv", S.dtype.char](1.0, S.T, v)


def product(A: Array, B: Array) -> Array:
    """``A B``."""
    return _FUNCTIONS["gemm", A.dtype.char](1.0, B.T, A.T).T


def product_transposed(A: Array, B: Array) -> Array:
    """``A B^T`` for row-major A and B."""
    return _FUNCTIONS["gemm", A.dtype.char](1.0, B.T, A.T, trans_a=1).T


def transposed_product(A: Array, B: Array) -> Array:
    """``A^T B`` for row-major A and B."""
    return _FUNCTIONS["gemm", A.dtype.char](1.0, B.T, A.T, trans_b=1).T


def matrix_times_vector(X: Array, v: Array) -> Array:
    """``X v``."""
    return _FUNCTIONS["gemv", X.dtype.char](1.0, X.T, v, trans=1)


def vector_times(v: Array, X: Array) -> Array:
    """``v^T X``."""
    return _FUNCTIONS["gemv", X.dtype.char](1.0, X.T, v)


def norm(v: Array) -> float:
    """l2 norm of all elements, safe from overflow and underflow."""
    return float(_FUNCTIONS["nrm2", v.dtype.char](v.ravel()))


def mirror(S: Array) -> Array:
    """Copy the lower triangle onto the upper, strip by strip, in place.

    Each strip of columns is copied first: read in place, its elements lie one row length apart,
    which for d = 512 or 2048 puts them all into the same few lines of the cache.
    """
    size = len(S)
    for start in range(0, size, _STRIP):
        stop = min(start + _STRIP, size)
        width = stop - start
        strip = S[start:, start:stop].copy()
        S[start:stop, stop:] = strip[width:].T
        np.copyto(S[start:stop, start:stop], strip[:width].T, where=_ABOVE[:width, :width])
    return S
