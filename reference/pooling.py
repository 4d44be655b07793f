"""Weighted pooling (Section 3) and the final normalisation (Section 4.1)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pool(X: ArrayLike, a: ArrayLike | None = None, *, order: int = 2) -> NDArray[Any]:
    r"""Weighted aggregation of the features; ``a=None`` is sum pooling.

    Second order: :math:`A = \sum_i a_i x_i x_i^T = X^T \mathrm{diag}(a) X`, symmetric.
    First order: :math:`v = \sum_i a_i x_i`.

    Shapes: ``(..., n, d), (..., n) -> (..., d, d)``, or ``(..., d)`` for order 1.
    Complexity: O(n d^2) time and O(d^2) memory beyond the input, or O(n d) and O(d).
    """
    X = np.asarray(X, dtype=np.float64)
    a = np.ones(X.shape[:-1]) if a is None else np.asarray(a, dtype=np.float64)
    weighted = a[..., np.newaxis] * X
    if order == 1:
        return weighted.sum(axis=-2)
    return X.swapaxes(-1, -2) @ weighted


def bilinear(X: ArrayLike, Y: ArrayLike) -> NDArray[Any]:
    r"""Sum pooling of two streams, :math:`\sum_i x_i y_i^T = X^T Y` (Lin et al., ICCV 2015).

    Shapes: ``(..., n, d1), (..., n, d2) -> (..., d1, d2)``. Complexity: O(n d1 d2).
    """
    return np.asarray(X, dtype=np.float64).swapaxes(-1, -2) @ np.asarray(Y, dtype=np.float64)


def center(X: ArrayLike) -> NDArray[Any]:
    r"""Subtract from each image the mean of its rows, :math:`x_i - \frac{1}{n}\sum_j x_j`.

    Sum pooling then gives n times the covariance of the features, which MPN-COV (Li et al., ICCV
    2017) and iSQRT-COV (Li et al., CVPR 2018) pool. The first row is subtracted before the mean is
    taken, so that channels that are constant in an image become zero, not their rounding errors.

    Shapes: ``(..., n, d) -> (..., n, d)``. Complexity: O(n d).
    """
    X = np.asarray(X, dtype=np.float64)
    shifted = X - X[..., :1, :]
    return shifted - shifted.mean(axis=-2, keepdims=True)


def upper(A: ArrayLike) -> NDArray[Any]:
    r"""The upper triangle of symmetric matrices, row by row, off-diagonal entries times
    :math:`\sqrt 2`: half the length, with the dot products and norms of the whole matrices.

    Shapes: ``(..., d, d) -> (..., d (d + 1) / 2)``. Complexity: O(d^2).
    """
    A = np.asarray(A, dtype=np.float64)
    rows, columns = np.triu_indices(A.shape[-1])
    return A[..., rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))


def normalize(v: ArrayLike, *, axes: int = 1, kind: str = "signed-sqrt-l2") -> NDArray[Any]:
    r"""Element-wise :math:`\mathrm{sign}(v)\sqrt{|v|}`, then division by the l2 norm.

    The norm is taken over the last ``axes`` axes together: 1 for a vector, 2 for a matrix.
    ``kind="l2"`` omits the square root, ``kind="none"`` does nothing. An all-zero descriptor has no
    direction and stays zero.

    Complexity: O(size of v).
    """
    y = np.array(v, dtype=np.float64)
    if kind == "none":
        return y
    if kind == "signed-sqrt-l2":
        y = np.sign(y) * np.sqrt(np.abs(y))
    last = tuple(range(-axes, 0))
    norm = np.sqrt((y**2).sum(axis=last, keepdims=True))
    return y / np.where(norm > 0, norm, 1.0)
