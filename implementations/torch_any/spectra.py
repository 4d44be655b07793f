"""Eigenvalues and eigenvectors of A = X^T X by three routes, and their accuracy.

A route is tried in the precision of the features; images for which that is not accurate enough are
computed again in float64, and finally by the singular values (``shared/accuracy.py`` has the rule).
This check reads values back; a GPU's solvers synchronise anyway. A compiler, an exporter and vmap
cannot read values, and a meta tensor has none: in these cases a CPU uses float64 at once, with a
route that is accurate for any image. The float32 solver of the CPU is MKL's, which fails on many
matrices with rows of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from demopool.errors import Unsupported
from demopool.implementations.shared import accuracy
from demopool.implementations.shared.accuracy import ACCURACY, EIGENVALUES, Solver

from . import tensors, triangles


class Decomposition(NamedTuple):
    """min(n, d) eigenvalues of A, their eigenvectors as columns, and which of them are kept."""

    values: Tensor
    vectors: Tensor
    kept: Tensor


class _Attempt(NamedTuple):
    solver: Solver
    solve: Callable[[Tensor], Decomposition]
    dtype: torch.dtype


def of_features(X: Tensor, p: float, route: str) -> Decomposition:
    """The decomposition of images in range, accurate enough for A^p."""

    def attempt(name: str, dtype: torch.dtype) -> _Attempt:
        return _Attempt(accuracy.BY_ROUTE[name], _BY_ROUTE[name], dtype)

    attempts = [attempt(route, X.dtype), attempt(route, torch.float64)]
    return _first_accurate(X, p, [*attempts, attempt("svd", torch.float64)], _live)


def of_matrices(A: Tensor, p: float) -> Decomposition:
    """The decomposition of given matrices, accurate enough for A^p."""
    attempts = [_Attempt(EIGENVALUES, _of_matrix, dtype) for dtype in (A.dtype, torch.float64)]
    return _first_accurate(
        A, p, attempts, lambda A: A.diagonal(dim1=-2, dim2=-1).count_nonzero(dim=-1)
    )


def _first_accurate(
    given: Tensor, p: float, attempts: list[_Attempt], live: Callable[[Tensor], Tensor]
) -> Decomposition:
    attempts = list(dict.fromkeys(attempts))
    if not tensors.is_plain(given):
        attempts = [_blind(given, p, attempts)]
    return _climb(given, p, attempts, live)


def _blind(given: Tensor, p: float, attempts: list[_Attempt]) -> _Attempt:
    """The first attempt that is accurate for any values. In the worst case only one eigenvalue is
    not zero, and no entry of A^p is larger than its power / d."""
    if given.device.type != "cpu":
        return attempts[0]
    sizes = tuple(given.shape[-2:])
    for attempt in attempts:
        if attempt.dtype is torch.float64:
            eps = torch.finfo(attempt.dtype).eps
            error = accuracy.error(attempt.solver, 0.0, 1.0, p, sizes, eps=eps, single=False)
            if error * sizes[1] <= ACCURACY:
                return attempt
    return attempts[-1]


def _climb(
    given: Tensor, p: float, attempts: list[_Attempt], live: Callable[[Tensor], Tensor]
) -> Decomposition:
    """Decompose by the first attempt, and images for which it is not accurate by the others."""
    attempt, *others = attempts
    last = not others and tensors.is_plain(given)
    found = _solved(attempt, given.to(attempt.dtype), last=last)
    if not others:
        found = _within(found, live(given))
        return Decomposition(
            found.values.to(given.dtype), found.vectors.to(given.dtype), found.kept
        )
    enough = _is_enough(attempt, found, None, p, given)
    if not bool(enough.all()):
        # Counted only now: few features have rows or channels of zeros.
        rank = live(given)
        kept = torch.where(enough.unsqueeze(-1), found.kept, _within(found, rank).kept)
        found = found._replace(kept=kept)
        enough = enough | _is_enough(attempt, found, rank, p, given) | ~_is_finite(given)[:, 0, 0]
    found = Decomposition(found.values.to(given.dtype), found.vectors.to(given.dtype), found.kept)
    if not bool(enough.all()):
        again = (~enough).nonzero().squeeze(-1)
        better = _climb(given[again], p, others, live)
        for one, other in zip(found, better, strict=True):
            one[again] = other
    return found


def _solved(attempt: _Attempt, given: Tensor, *, last: bool) -> Decomposition:
    """Solve; images on which the solver fails become NaN, or an error in the last attempt."""
    try:
        return attempt.solve(given)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        if given.shape[0] > 1:
            ones = [_solved(attempt, one, last=last) for one in given.split(1)]
            return Decomposition._make(torch.cat(parts) for parts in zip(*ones, strict=True))
    if last:
        raise Unsupported(
            "a matrix power of these features", "LAPACK finds no eigenvectors of them"
        )
    n, d = given.shape[-2:]
    values = given.new_full((1, min(n, d)), torch.nan)
    return Decomposition(values, given.new_full((1, d, min(n, d)), torch.nan), values.isnan())


def _is_enough(
    attempt: _Attempt, found: Decomposition, rank: Tensor | None, p: float, given: Tensor
) -> Tensor:
    """Whether A^p is accurate enough, for each image."""
    sizes, values = tuple(given.shape[-2:]), _natural(attempt.solver, found.values)
    largest = values.amax(dim=-1)
    smallest = values.amin(dim=-1) if rank is None else _ranked(values, rank)
    options: dict[str, Any] = {
        "eps": torch.finfo(values.dtype).eps,
        "single": values.dtype is torch.float32,
        "maximum": torch.maximum,
    }
    error = accuracy.error(attempt.solver, smallest, largest, p, sizes, **options)
    powered = powers(found.values, found.kept, p)
    # The largest entry is on the diagonal, and not below its mean.
    enough = error <= ACCURACY * powered.sum(dim=-1) / sizes[1]
    if not bool(enough.all()):
        diagonal = (found.vectors.square() @ powered.unsqueeze(-1)).squeeze(-1)
        enough = enough | (error <= ACCURACY * diagonal.amax(dim=-1))
    # MKL's float32 solver silently gives NaN for some matrices with rows of zeros.
    return (enough | (largest == 0)) & found.vectors.sum(dim=(-2, -1)).isfinite()


def _ranked(values: Tensor, rank: Tensor) -> Tensor:
    """The smallest of the ``rank`` largest, ``(images,)``."""
    size = values.shape[-1]
    place = (size - rank).clamp(max=size - 1).unsqueeze(-1)
    return values.sort(dim=-1).values.gather(-1, place).squeeze(-1)


def _within(found: Decomposition, rank: Tensor) -> Decomposition:
    """Keep at most ``rank`` values."""
    beyond = found.values < _ranked(found.values, rank).unsqueeze(-1)
    return found._replace(kept=found.kept & ~beyond)


def _live(X: Tensor) -> Tensor:
    """The maximum rank of each image, given its rows and channels of zeros, ``(images,)``."""
    rows, channels = (X.ne(0).any(dim=axis).sum(dim=-1) for axis in (-1, -2))
    return torch.minimum(rows, channels)


def _natural(solver: Solver, values: Tensor) -> Tensor:
    """The values that the solver computes: eigenvalues, or their roots."""
    return values if solver.exponent == 1 else values.sqrt()


def _by_eigh(X: Tensor) -> Decomposition:
    """Eigenvectors of the d x d matrix A."""
    return _of_matrix(triangles.symmetric_product(X.mT, X), tuple(X.shape[-2:]))


def _of_matrix(A: Tensor, sizes: tuple[int, ...] | None = None) -> Decomposition:
    """Eigenvectors of A, of which at most ``min(sizes)`` eigenvalues are not zero."""
    sizes = sizes or tuple(A.shape[-2:])
    values, vectors = _eigh(A)
    values, vectors = values[..., -min(sizes) :], vectors[..., -min(sizes) :]
    return Decomposition(values, vectors, _is_kept(values, sizes, EIGENVALUES))


def _by_gram(X: Tensor) -> Decomposition:
    """Eigenvectors of the n x n Gram matrix."""
    n, d = X.shape[-2:]
    values, left = _eigh(triangles.symmetric_product(X, X.mT))
    values, left = values[..., -min(n, d) :], left[..., -min(n, d) :]
    kept = _is_kept(values, (n, d), EIGENVALUES)
    lengths = torch.where(kept, values, 1.0).sqrt().unsqueeze(-2)
    vectors = torch.where(kept.unsqueeze(-2), (X.mT @ left) / lengths, 0.0)
    return Decomposition(values, vectors, kept)


def _by_svd(X: Tensor) -> Decomposition:
    """Right singular vectors of X: A is never formed, so its rounding is never amplified."""
    finite = _is_finite(X)
    _, singular, right = torch.linalg.svd(torch.where(finite, X, 0.0), full_matrices=False)
    singular = torch.where(finite.squeeze(-1), singular, torch.nan)
    kept = _is_kept(singular, tuple(X.shape[-2:]), accuracy.SINGULAR_VALUES)
    return Decomposition(singular.square(), right.mT, kept)


_BY_ROUTE: dict[str, Callable[[Tensor], Decomposition]] = {
    "eigh": _by_eigh,
    "gram": _by_gram,
    "svd": _by_svd,
}
ROUTES = tuple(_BY_ROUTE)


def _eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """NaN for matrices that are not finite: LAPACK would reject the whole batch because of them."""
    finite = _is_finite(A)
    values, vectors = torch.linalg.eigh(torch.where(finite, A, 0.0))
    return torch.where(finite.squeeze(-1), values, torch.nan), vectors


def _is_finite(matrices: Tensor) -> Tensor:
    """Whether each matrix is finite, ``(..., 1, 1)``: otherwise the sum is not finite."""
    return matrices.detach().abs().sum(dim=(-2, -1), keepdim=True).isfinite()


def _is_kept(values: Tensor, sizes: tuple[int, ...], solver: Solver) -> Tensor:
    """Values distinguishable from zero; a kept rounding error of eps would enter A^p as eps^p."""
    units = accuracy.cut(solver, sizes, values.dtype is torch.float32)
    largest = values.amax(dim=-1, keepdim=True)
    # Not ``>``: NaN is kept, and makes the result NaN.
    return ~(values <= units * torch.finfo(values.dtype).eps * largest)


def powers(values: Tensor, kept: Tensor, exponent: float) -> Tensor:
    """``values ** exponent`` for the kept values, 0 for the others."""
    return torch.where(kept, torch.where(kept, values, 1.0) ** exponent, 0.0)
