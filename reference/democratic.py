"""Gamma-democratic weights by the dampened Sinkhorn iteration (Section 3.1, Algorithm 1)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def kernel(X: ArrayLike, *, order: int = 2) -> NDArray[Any]:
    r"""Similarity of every pair of features.

    Second order, the outer-product encoder of the paper:
    :math:`K_{ij} = \langle x_i x_i^T, x_j x_j^T \rangle = (x_i \cdot x_j)^2`, never negative.
    First order: :math:`K_{ij} = \max(x_i \cdot x_j, 0)`; Sinkhorn needs a non-negative matrix, so
    negative entries are set to zero.

    Shapes: ``(..., n, d) -> (..., n, n)``. Complexity: O(n^2 d) time, O(n^2) memory
    (Proposition 2: the d^2-dimensional encodings are never formed).
    """
    X = np.asarray(X, dtype=np.float64)
    products = X @ X.swapaxes(-1, -2)
    return products**2 if order == 2 else np.maximum(products, 0.0)


def weights(
    X: ArrayLike,
    *,
    gamma: float = 0.5,
    tau: float = 0.5,
    iterations: int = 10,
    order: int = 2,
) -> NDArray[Any]:
    r"""Weights that move every feature's contribution towards a common target.

    Solves :math:`\mathrm{diag}(a) K \mathrm{diag}(a) 1 = (K 1)^\gamma`. With
    :math:`r = (K 1)^\gamma` and starting from :math:`a = 1`, it repeats ``iterations`` times:

    .. math:: s = a \odot (K a) / r, \qquad a \leftarrow a / s^\tau .

    ``gamma=0`` is democratic aggregation (equal contributions); ``gamma=1`` leaves ``a = 1``, which
    is sum pooling. ``tau`` dampens the step; 0.5 is the paper's choice.

    Replacing X by cX multiplies the weights by the scalar
    :math:`c^{-2 (1-\gamma) (1-(1-2\tau)^T)}` (half that exponent for order 1).

    A zero row has no solution (Proposition 1 requires :math:`\|x\| > 0`). It gets weight 0, which
    does not change other weights, because its row and column of K are zero.

    Shapes: ``(..., n, d) -> (..., n)``. Complexity: O(n^2 d + T n^2) time, O(n^2) memory.
    """
    X = np.asarray(X, dtype=np.float64)
    K = kernel(X, order=order)
    present = (X != 0).any(axis=-1)
    target = np.where(present, K.sum(axis=-1), 1.0) ** gamma
    a = present.astype(np.float64)
    for _ in range(iterations):
        Ka = (K @ a[..., np.newaxis])[..., 0]
        s = np.where(present, a * Ka / target, 1.0)
        a = a / s**tau
    return a
