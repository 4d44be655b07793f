"""Eigenvalues and eigenvectors of A = X^T X, by three routes, and what of them can be trusted."""

from __future__ import annotations

import torch
from torch import Tensor

from . import tensors

# What counts as zero in float32, in units of eps times the largest value: measured on real VGG-16
# features, see shared/powers.py. In float64 it is max(n, d).
EIGENVALUE_CUT = 1.0
SINGULAR_VALUE_CUT = 3.0

Decomposition = tuple[Tensor, Tensor, Tensor]
"""min(n, d) eigenvalues of A, their eigenvectors as columns, and which of them are kept."""


def _by_eigh(X: Tensor) -> Decomposition:
    """Eigenvectors of the d x d matrix A."""
    return of_matrix(tensors.symmetric_product(X.mT, X), min(X.shape[-2:]), max(X.shape[-2:]))


def of_matrix(A: Tensor, rank: int, size: int) -> Decomposition:
    """Of given matrices, of which at most ``rank`` eigenvalues are not zero."""
    values, vectors = _eigh(A)
    values, vectors = values[..., -rank:], vectors[..., -rank:]
    return values, vectors, _is_kept(values, size, EIGENVALUE_CUT)


def _by_gram(X: Tensor) -> Decomposition:
    """Eigenvectors of the n x n Gram matrix."""
    n, d = X.shape[-2:]
    values, left = _eigh(tensors.gram(X))
    values, left = values[..., -min(n, d) :], left[..., -min(n, d) :]
    kept = _is_kept(values, max(n, d), EIGENVALUE_CUT)
    lengths = torch.where(kept, values, 1.0).sqrt().unsqueeze(-2)
    vectors = torch.where(kept.unsqueeze(-2), (X.mT @ left) / lengths, 0.0)
    return values, vectors, kept


def _by_svd(X: Tensor) -> Decomposition:
    """Right singular vectors of X: A is never formed, so its rounding is never amplified."""
    finite = _is_finite(X)
    _, singular, right = torch.linalg.svd(torch.where(finite, X, 0.0), full_matrices=False)
    singular = torch.where(finite.squeeze(-1), singular, torch.nan)
    kept = _is_kept(singular, max(X.shape[-2:]), SINGULAR_VALUE_CUT)
    return singular.square(), right.mT, kept


def _eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """NaN in is NaN out: LAPACK refuses NaN and infinities, and with them the whole batch."""
    finite = _is_finite(A)
    values, vectors = torch.linalg.eigh(torch.where(finite, A, 0.0))
    return torch.where(finite.squeeze(-1), values, torch.nan), vectors


def _is_finite(matrices: Tensor) -> Tensor:
    """Of each as a whole, ``(..., 1, 1)``: a NaN or an infinity makes the sum not finite."""
    return matrices.detach().abs().sum(dim=(-2, -1), keepdim=True).isfinite()


def _is_kept(values: Tensor, size: int, cut: float) -> Tensor:
    """Those that can be told from zero: kept, a rounding error of eps would enter A^p as eps^p."""
    units = cut if values.dtype == torch.float32 else size
    largest = values.amax(dim=-1, keepdim=True)
    # Not ``>``: NaN is kept, and makes the result NaN.
    return ~(values <= units * torch.finfo(values.dtype).eps * largest)


def powers(values: Tensor, kept: Tensor, exponent: float) -> Tensor:
    """``values ** exponent`` of those kept, 0 for the others."""
    return torch.where(kept, torch.where(kept, values, 1.0) ** exponent, 0.0)


BY_ROUTE = {"eigh": _by_eigh, "gram": _by_gram, "svd": _by_svd}
