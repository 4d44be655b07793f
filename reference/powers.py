"""Matrix power normalisation (Section 3.2)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

EPS = np.finfo(np.float64).eps


def power(X: ArrayLike, *, p: float = 0.5) -> NDArray[Any]:
    r""":math:`A^p` of :math:`A = X^T X`, for 0 < p <= 1, from the thin SVD of X.

    With :math:`X = U \mathrm{diag}(s) V^T`: :math:`A^p = V \mathrm{diag}(s^{2p}) V^T`.

    A is not formed, because a matrix power is only Hoelder continuous,
    :math:`\|A^p - B^p\| \le \|A - B\|^p`: the rounding of A itself (relative size eps) would enter
    the result as eps^p. On rank-deficient conv features that is an error of 2e-2 at p = 0.1, even
    in float64.

    Shapes: ``(..., n, d) -> (..., d, d)``. Complexity: O(n d min(n, d) + d^2 min(n, d)).
    """
    singular, vectors = right_singular_vectors(X)
    return (vectors.swapaxes(-1, -2) * singular[..., np.newaxis, :] ** (2 * p)) @ vectors


def matrix_power(A: ArrayLike, *, p: float = 0.5) -> NDArray[Any]:
    r""":math:`A^p = U \mathrm{diag}(\lambda^p) U^T` of a symmetric positive semi-definite A.

    Eigenvalues at or below d eps lambda_1 are indistinguishable from zero and are set to zero:
    otherwise one that rounding made positive, of size eps, would enter the result as eps^p.

    Worked example (the paper's, :math:`x_1 = (1, 0), x_2 = (1, 1)`):
    ``matrix_power([[2, 1], [1, 1]])`` is ``[[1.3416, 0.4472], [0.4472, 0.8944]]``.

    Shapes: ``(..., d, d) -> (..., d, d)``. Complexity: O(d^3).
    """
    A = np.asarray(A, dtype=np.float64)
    values, vectors = np.linalg.eigh(A)
    cut = A.shape[-1] * EPS * values.max(axis=-1, keepdims=True)
    values = np.where(values > cut, values, 0.0)
    return (vectors * values[..., np.newaxis, :] ** p) @ vectors.swapaxes(-1, -2)


def right_singular_vectors(X: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Singular values (descending) and the right singular vectors as rows.

    Values at or below max(n, d) eps s_1 are rounded zeros and are set to zero.
    """
    X = np.asarray(X, dtype=np.float64)
    _, singular, vectors = np.linalg.svd(X, full_matrices=False)
    cut = max(X.shape[-2:]) * EPS * singular.max(axis=-1, keepdims=True)
    return np.where(singular > cut, singular, 0.0), vectors
