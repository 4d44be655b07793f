"""The contribution of each feature, and its bounds from the spectrum (Section 3.2)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .pooling import pool
from .powers import power, right_singular_vectors


def contributions(
    X: ArrayLike, a: ArrayLike | None = None, *, p: float = 1.0, order: int = 2
) -> NDArray[Any]:
    r"""Similarity of each (weighted) feature to the l2-normalised pooled descriptor.

    Weighted: :math:`C(x_i) = a_i\, x_i^T A x_i / \|A\|_F` with :math:`A = \sum_i a_i x_i x_i^T`.
    It sums to :math:`\|A\|_F`, and is equal for all i if ``a`` are converged weights for
    gamma = 0. Matrix power (``a=None``): :math:`C(x) = x^T A^p x / \|A^p\|_F`.
    First order: :math:`C(x_i) = a_i\, x_i \cdot v / \|v\|`, v the pooled vector.
    If all features are zero there is no direction, and C is 0.

    Shapes: ``(..., n, d) -> (..., n)``. Complexity: O(n d^2), plus the power if p < 1.
    """
    X = np.asarray(X, dtype=np.float64)
    if p != 1.0 and (a is not None or order == 1):
        raise ValueError("contributions to a matrix power have no weights and are second order")
    scale = np.ones(X.shape[:-1]) if a is None else np.asarray(a, dtype=np.float64)
    if order == 1:
        v = pool(X, a, order=1)
        norm = np.sqrt((v**2).sum(axis=-1, keepdims=True))
        return scale * (X @ v[..., np.newaxis])[..., 0] / np.where(norm > 0, norm, 1.0)
    A = pool(X, a) if p == 1.0 else power(X, p=p)
    norm = np.sqrt((A**2).sum(axis=(-2, -1)))[..., np.newaxis]
    return scale * ((X @ A) * X).sum(axis=-1) / np.where(norm > 0, norm, 1.0)


def spectrum(X: ArrayLike, a: ArrayLike | None = None, *, p: float = 1.0) -> NDArray[Any]:
    r"""Eigenvalues of :math:`A^p`, :math:`A = X^T \mathrm{diag}(a) X`: d values, largest first.

    ``a=None`` means weights of 1. Weights must not be negative: A is then the moment of
    :math:`\sqrt{a_i}\, x_i`, whose singular values are used, so A is never formed.

    Shapes: ``(..., n, d), (..., n) -> (..., d)``. Complexity: O(n d min(n, d)).
    """
    X = np.asarray(X, dtype=np.float64)
    if a is not None:
        X = np.sqrt(np.asarray(a, dtype=np.float64))[..., np.newaxis] * X
    singular, vectors = right_singular_vectors(X)
    values = np.zeros((*singular.shape[:-1], vectors.shape[-1]))
    values[..., : singular.shape[-1]] = singular ** (2 * p)
    return values


class Bounds(NamedTuple):
    """Bounds from the spectrum on the contributions C to A^p (Propositions 4 and 5).

    ``minimum <= min C``, ``max C <= maximum``, ``sum C = total`` and
    ``variance <= bhatia_davis <= popoviciu <= radius``, the variance with ddof 0.
    """

    total: NDArray[Any]
    maximum: NDArray[Any]
    minimum: NDArray[Any]
    variance: NDArray[Any]
    bhatia_davis: NDArray[Any]
    popoviciu: NDArray[Any]
    radius: NDArray[Any]


def bounds(X: ArrayLike, *, p: float = 1.0) -> Bounds:
    r"""Bounds of Propositions 4 and 5; :math:`\rho = (\sum_i \lambda_i^{2p})^{1/2} = \|A^p\|_F`.

    :math:`\sum C = \sum_i \lambda_i^{1+p} / \rho`, :math:`\max C \le r_{max} \lambda_1^p / \rho`,
    :math:`\min C \ge r_{min} \lambda_d^p / \rho`, where r are squared feature norms. With the
    actual maximum M, minimum m and mean :math:`\mu` of C:

    .. math:: \mathrm{var}\, C \le (M - \mu)(\mu - m) \le (M - m)^2 / 4
              \le r_{max}^2 \lambda_1^{2p} / (4 \rho^2) .

    Shapes: ``(..., n, d)`` to one number per image. Complexity: that of :func:`contributions`.
    """
    X = np.asarray(X, dtype=np.float64)
    eigenvalues = spectrum(X)
    norm = np.sqrt((eigenvalues ** (2 * p)).sum(axis=-1))
    rho = np.where(norm > 0, norm, 1.0)
    squared_norms = (X**2).sum(axis=-1)
    C = contributions(X, p=p)
    highest, lowest, mean = C.max(axis=-1), C.min(axis=-1), C.mean(axis=-1)
    maximum = squared_norms.max(axis=-1) * eigenvalues[..., 0] ** p / rho
    return Bounds(
        total=(eigenvalues ** (1 + p)).sum(axis=-1) / rho,
        maximum=maximum,
        minimum=squared_norms.min(axis=-1) * eigenvalues[..., -1] ** p / rho,
        variance=C.var(axis=-1),
        bhatia_davis=(highest - mean) * (mean - lowest),
        popoviciu=(highest - lowest) ** 2 / 4,
        radius=maximum**2 / 4,
    )
