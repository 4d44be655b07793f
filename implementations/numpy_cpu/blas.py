"""SciPy's BLAS on row-major arrays, without copies, and only its thread pool.

NumPy's ``@`` and SciPy's BLAS are two copies of OpenBLAS whose threads spin against each other, so
every product of this backend goes through here. BLAS is column-major: the transpose of a row-major
array is the same memory in the order BLAS wants, and SciPy's wrappers then copy nothing. Symmetric
results fill the lower triangle (of the row-major array) only; :func:`mirror` fills the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

Array = NDArray[Any]

_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    (name, dtype): getattr(blas, prefix + name)
    for name in ("syrk", "symm", "symv", "gemm", "gemv", "nrm2")
    for dtype, prefix in (("float32", "s"), ("float64", "d"))
}

# Blocks of the mirrored triangle that fit the first-level cache together with their transpose.
_MIRROR = 32


def images(X: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Each image with its index, row-major and in working precision; a view where it can be."""
    dtype = working_dtype(X)
    for index in np.ndindex(X.shape[:-2]):
        yield index, np.ascontiguousarray(X[index], dtype=dtype)


def working_dtype(X: Array) -> Any:
    """Half precision is worked in float32."""
    return np.float32 if X.dtype == np.float16 else X.dtype.type


def row_chunks(rows: int, bytes_per_row: int, budget: int) -> Iterator[slice]:
    """Slices of rows whose intermediate results stay within ``budget`` bytes."""
    step = max(1, budget // bytes_per_row)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def gram(X: Array, out: Array, *, scale: float = 1.0) -> Array:
    """Lower triangle of ``scale * X X^T`` into ``out``; the rest of ``out`` is left as it is."""
    syrk = _FUNCTIONS["syrk", X.dtype.name]
    syrk(scale, X.T, trans=1, c=out.T, overwrite_c=1)
    return out


def outer(X: Array, out: Array, *, add: bool = False) -> Array:
    """Lower triangle of ``X^T X`` into ``out``, or added to it."""
    syrk = _FUNCTIONS["syrk", X.dtype.name]
    syrk(1.0, X.T, beta=float(add), c=out.T, overwrite_c=1)
    return out


def times_symmetric(X: Array, S: Array) -> Array:
    """``X S`` for a symmetric S of which the lower triangle is read."""
    symm = _FUNCTIONS["symm", X.dtype.name]
    return symm(1.0, S.T, X.T).T


def symmetric_times_vector(S: Array, v: Array) -> Array:
    """``S v`` for a symmetric S of which the lower triangle is read."""
    return _FUNCTIONS["symv", S.dtype.name](1.0, S.T, v)


def product(A: Array, B: Array) -> Array:
    """``A B``, for matrices or batches of them."""
    if A.ndim > 2:
        return np.stack([product(a, b) for a, b in zip(A, B, strict=True)]) if len(A) else A * B
    return _FUNCTIONS["gemm", A.dtype.name](1.0, B.T, A.T).T


def transposed_product(A: Array, B: Array) -> Array:
    """``A^T B`` for row-major A and B."""
    return _FUNCTIONS["gemm", A.dtype.name](1.0, B.T, A.T, trans_b=1).T


def vector_times(v: Array, X: Array) -> Array:
    """``v^T X``."""
    return _FUNCTIONS["gemv", X.dtype.name](1.0, X.T, v)


def norm(v: Array) -> float:
    """l2 norm of all elements, safe from overflow and underflow."""
    return float(_FUNCTIONS["nrm2", v.dtype.name](v.ravel()))


def mirror(S: Array) -> Array:
    """Copy the lower triangle onto the upper, block by block, in place."""
    size = S.shape[0]
    for start in range(0, size, _MIRROR):
        stop = min(start + _MIRROR, size)
        S[start:stop, stop:] = S[stop:, start:stop].T
        block = S[start:stop, start:stop]
        upper = np.triu_indices(stop - start, 1)
        block[upper] = block.T[upper]
    return S
