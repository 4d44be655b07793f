"""Products with K without building it, and their derivative.

``(K v)_i = x_i^T M x_i`` with the moment ``M = X^T diag(v) X``. Where such a form is a difference
of large numbers (shared/cancellation.py decides that for every product) it is computed again: for
few rows by summing their entries of K, for many rows in float32 with the moment in float64, whose
error is less than that of entries of K in float32.

The same rows matter for K q with q = w / (K a): summed over rows i with weights a, its error is
u sum_j |q_j| b_j, with b_j the bound for the form of row j, against sum_j |w_j| for the result. So
the contributions of rows that are doubtful for a are computed without the moment, all others with
it.

Where no value may be read back (on a GPU, in a graph, under vmap) every row counts as doubtful.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from demopool.implementations.shared.cancellation import doubt_limit

from . import tensors

# Maximum memory for dot products of doubtful rows with all rows.
_PRODUCT_BYTES = 2**26


Doubtful = Tensor | None
"""Indices of doubtful rows, ``(images, rows)``."""

Pair = tuple[Tensor, Tensor, Doubtful]
"""q, a, and the rows that are doubtful for a."""


class MatrixFree:
    """K of images ``(images, n, d)`` in range, as an operator."""

    def __init__(self, X: Tensor) -> None:
        self.X = X
        self.squared_norms = X.square().sum(dim=-1)
        self.readable = tensors.in_place_on_cpu(X) and X.numel() > 0
        # One buffer for all iterations, where writing in place is allowed: large temporaries
        # between the small vectors that are kept would fragment the memory, to ten times the
        # buffer's size at T = 100.
        self._scratch = torch.empty_like(X) if self.readable else None

    def at(self, a: Tensor) -> tuple[Tensor, Doubtful]:
        """K a, and the rows that are doubtful for it."""
        if self.readable:
            XM, diagonal = self._through_moment(a)
            forms = self._along_rows(XM)
            doubtful = self._doubtful(forms, diagonal)
        else:
            forms, doubtful = a, self._all_rows()
        if doubtful is None:
            return forms, None
        if self._is_wide(doubtful):
            return self._wide_times(a), doubtful
        for rows, G in self._products(doubtful):
            forms = forms.scatter(-1, rows, (G.square() @ a.unsqueeze(-1)).squeeze(-1))
        return forms, doubtful

    def times(self, q: Tensor, doubtful: Doubtful) -> Tensor:
        """K q for q = w / (K a), with the rows that are doubtful for a."""
        if doubtful is None:
            return self._by_moment(q)
        if self._is_wide(doubtful):
            return self._wide_times(q)
        result = self._by_moment(q.scatter(-1, doubtful, 0.0))
        for rows, G in self._products(doubtful):
            result = result + tensors.times_rows(q.gather(-1, rows), G.square())
        return result

    def pull_back(self, pairs: Iterator[Pair]) -> Tensor:
        """The derivative by X of ``sum_t q_t^T K a_t``: 2 (q_i M(a) x_i + a_i M(q) x_i), summed."""
        gradient = torch.zeros_like(self.X)
        for q, a, doubtful in pairs:
            if doubtful is None:
                gradient = self._add_by_moment(gradient, q, a)
            elif self._is_wide(doubtful):
                gradient = gradient + self._wide_gradient(q, a)
            else:
                gradient = self._add_by_moment(gradient, q.scatter(-1, doubtful, 0.0), a)
                for rows, G in self._products(doubtful):
                    q_rows = q.gather(-1, rows).unsqueeze(-1)
                    of_rows = 2 * q_rows * (G @ (a.unsqueeze(-1) * self.X))
                    gradient = gradient.scatter_add(-2, self._whole(rows), of_rows)
                    gradient = self._add(gradient, a, G.mT @ (q_rows * self._gathered(rows)))
        return gradient

    # --- by the moment ---

    def _through_moment(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """X M, and the diagonal of M."""
        into = self._scratch if tensors.in_place_on_cpu(v) else None
        M = torch.mul(self.X, v.unsqueeze(-1), out=into).mT @ self.X
        return torch.matmul(self.X, M, out=into), M.diagonal(dim1=-2, dim2=-1)

    def _along_rows(self, Y: Tensor) -> Tensor:
        into = self._scratch if tensors.in_place_on_cpu(Y) else None
        return torch.mul(Y, self.X, out=into).sum(dim=-1)

    def _by_moment(self, v: Tensor) -> Tensor:
        return self._along_rows(self._through_moment(v)[0])

    def _add_by_moment(self, gradient: Tensor, q: Tensor, a: Tensor) -> Tensor:
        gradient = self._add(gradient, q, self._through_moment(a)[0])
        return self._add(gradient, a, self._through_moment(q)[0])

    def _add(self, gradient: Tensor, v: Tensor, Y: Tensor) -> Tensor:
        into = gradient if all(map(tensors.in_place_on_cpu, (self.X, v, Y))) else None
        return torch.addcmul(gradient, v.unsqueeze(-1), Y, value=2, out=into)

    # --- doubtful rows ---

    def _doubtful(self, forms: Tensor, diagonal: Tensor) -> Doubtful:
        """Doubtful rows, the same number for every image (the maximum); None if there are none."""
        limit = doubt_limit(*self.X.shape[-2:])
        # Usually no row comes near the limit, which the largest diagonal entry shows cheaply.
        bounds = self.squared_norms * diagonal.amax(dim=-1, keepdim=True)
        if bool((forms * limit >= bounds).all()):
            return None
        bounds = (self.X.square() @ diagonal.unsqueeze(-1)).squeeze(-1)
        fine = (forms * limit >= bounds).to(forms.dtype)
        count = int((fine == 0).sum(dim=-1).max())
        return fine.topk(count, dim=-1, largest=False).indices if count else None

    def _all_rows(self) -> Tensor:
        images, n, _ = self.X.shape
        return torch.arange(n, device=self.X.device).expand(images, n)

    def _is_wide(self, doubtful: Tensor) -> bool:
        if self.X.dtype != torch.float32:
            return False
        return not self.readable or doubtful.shape[-1] > self.X.shape[-1] // 2

    # --- in float64 ---

    def _wide_moment(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """X and X M in float64."""
        X = self.X.double()
        return X, X @ ((X * v.double().unsqueeze(-1)).mT @ X)

    def _wide_times(self, v: Tensor) -> Tensor:
        X, XM = self._wide_moment(v)
        return (XM * X).sum(dim=-1).to(v.dtype)

    def _wide_gradient(self, q: Tensor, a: Tensor) -> Tensor:
        by_row = q.double().unsqueeze(-1) * self._wide_moment(a)[1]
        by_row = by_row + a.double().unsqueeze(-1) * self._wide_moment(q)[1]
        return (2 * by_row).to(self.X.dtype)

    # --- by entries of K ---

    def _products(self, doubtful: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Some doubtful rows at a time, and their dot products with all rows."""
        row_bytes = self.X.shape[0] * self.X.shape[1] * self.X.element_size()
        for rows in doubtful.split(max(1, _PRODUCT_BYTES // max(1, row_bytes)), dim=-1):
            yield rows, self._gathered(rows) @ self.X.mT

    def _gathered(self, rows: Tensor) -> Tensor:
        return self.X.gather(-2, self._whole(rows))

    def _whole(self, rows: Tensor) -> Tensor:
        return rows.unsqueeze(-1).expand(*rows.shape, self.X.shape[-1])
