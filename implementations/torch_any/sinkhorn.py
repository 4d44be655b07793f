"""The Sinkhorn iteration and its derivative, on images in range, with or without building K.

Forward, with r = (K 1)^gamma:    a <- a (a * K a / r)^(-tau), T times, from a = 1.

Backward, in u = log a:           u <- (1 - tau) u - tau log(K a) + tau log r.
With w the derivative by the new u, the derivative by K is a sum of outer products q a^T with
q = -tau w / (K a), one for every iteration, and gamma (sum of tau w) / (K 1) with a = 1 for r; and
w <- (1 - tau) w + a * (K q). Only the T weight vectors are kept; K a is computed again.

At the fixed point a * (K a) = r the derivative does not need the iterates: (I + P^T) y = w with
P = diag(1 / K a) K diag(a), whose eigenvalues lie in [0, 1] because K is positive semi-definite, so
each step of a damped fixed-point iteration divides the error by 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from . import tensors, triangles
from .moments import Doubtful, MatrixFree, Pair

IMPLICIT_STEPS = {torch.float32: 20, torch.float64: 40}


class Kernel(NamedTuple):
    """K of every image as an operator, and the derivative by X of ``sum_t q_t^T K a_t``.

    ``at(a)`` is K a and the rows that are doubtful for it, or None (see moments.py); ``times``
    takes a vector w / K a and these rows. ``absent`` rows of X are zero; ``empty`` rows of K belong
    to them and to features too small to be squared twice; None where there are known to be none.
    """

    at: Callable[[Tensor], tuple[Tensor, Doubtful]]
    times: Callable[[Tensor, Doubtful], Tensor]
    pull_back: Callable[[Iterator[Pair]], Tensor]
    row_sums: Tensor
    doubtful_sums: Doubtful
    absent: Tensor | None
    empty: Tensor | None


def dense_kernel(X: Tensor, order: int, differentiable: bool) -> Kernel:
    """K in memory: ``(x_i . x_j)^2``, or ``max(x_i . x_j, 0)`` for order 1."""
    G = triangles.symmetric_product(X, X.mT)
    if differentiable:
        K = G.square() if order == 2 else G.relu()
    else:
        K = G.mul_(G) if order == 2 else G.relu_()

    def pull_back(pairs: Iterator[Pair]) -> Tensor:
        vectors = zip(*((q, a) for q, a, _ in pairs), strict=True)
        q, a = (torch.stack(each, dim=-2) for each in vectors)
        # sum_t q_t a_t^T + a_t q_t^T, as one product: no matrix is transposed.
        by_K = torch.cat((q, a), dim=-2).mT @ torch.cat((a, q), dim=-2)
        by_G = by_K.mul_(G).mul_(2) if order == 2 else by_K.masked_fill_(G <= 0, 0)
        # In the layout of X: conv maps are transposed, and so is their derivative.
        return (X.mT @ by_G).mT if X.mT.is_contiguous() else by_G @ X

    row_sums = K.sum(dim=-1)

    def times(v: Tensor, doubtful: Doubtful = None) -> Tensor:
        return tensors.times_rows(v, K)

    def at(a: Tensor) -> tuple[Tensor, Doubtful]:
        return times(a), None

    return Kernel(at, times, pull_back, row_sums, None, *_without_weight(X, row_sums))


def matrix_free_kernel(X: Tensor) -> Kernel:
    """K v by the d x d moment of X; second order only."""
    K = MatrixFree(X)
    diagonal = K.squared_norms.square()

    def at(a: Tensor) -> tuple[Tensor, Doubtful]:
        Ka, doubtful = K.at(a)
        # K has no negative entries, so less than a row's own term is an error of rounding.
        return torch.maximum(Ka, diagonal * a), doubtful

    row_sums, doubtful = at(torch.ones_like(diagonal))
    nothing = _without_weight(X, row_sums)
    return Kernel(at, K.times, K.pull_back, row_sums, doubtful, *nothing)


def _without_weight(X: Tensor, row_sums: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Absent rows of X, and empty rows of K."""
    if tensors.in_place_on_cpu(X) and bool((row_sums > 0).all()):
        return None, None
    # An empty row is not enough: the squares of a row that is not zero may underflow.
    return ~(X != 0).any(dim=-1), row_sums == 0


def kernel(X: Tensor, order: int, route: str, *, differentiable: bool = False) -> Kernel:
    if route == "dense":
        return dense_kernel(X, order, differentiable)
    return matrix_free_kernel(X)


def image_bytes(X: Tensor) -> int:
    """Memory that one image needs in every iteration, or to be converted."""
    n, d = X.shape[-2:]
    return n * max(n, d) * max(X.element_size(), 4)


def forward(
    K: Kernel, gamma: float, tau: float, iterations: int, *, keep: bool
) -> tuple[Tensor, Tensor]:
    """The weights, 0 for absent rows, and the T iterates before them, ``(images, T, n)``."""
    Ka = _present(K.row_sums, K)
    target = Ka**gamma
    a = torch.ones_like(Ka)
    kept = iterations if keep else 0
    images, n = Ka.shape
    # Allocate the iterates as one tensor: stacking separate vectors would need twice the memory.
    way = Ka.new_empty((images, kept, n)) if tensors.in_place_on_cpu(Ka) else None
    vectors: list[Tensor] = []
    for iteration in range(iterations):
        if way is None:
            vectors.append(a)
        elif keep:
            way[:, iteration] = a
        if iteration:
            Ka = _at(K, a)[0]
        a = a * (a * Ka / target) ** -tau
    if way is None:
        way = torch.stack(vectors[:kept], dim=-2) if kept else Ka.new_empty((images, 0, n))
    return a if K.absent is None else a.masked_fill(K.absent, 0), way


def unrolled(K: Kernel, gamma: float, tau: float, way: Tensor, w: Tensor) -> Iterator[Pair]:
    """The pairs (q, a) of the derivative by K; ``w`` is the derivative by the final log a."""
    by_target = torch.zeros_like(w)
    ones = torch.ones_like(w)
    row_sums = _present(K.row_sums, K)
    for iteration in reversed(range(way.shape[-2])):
        a = way[:, iteration]
        by_target = by_target + tau * w
        if iteration == 0:
            # a = 1 here as for the target, so one pair serves both.
            yield (gamma * by_target - tau * w) / row_sums, ones, K.doubtful_sums
            return
        Ka, doubtful = _at(K, a)
        q = -tau * w / Ka
        w = (1 - tau) * w + a * K.times(q, doubtful)
        yield q, a, doubtful


def implicit(K: Kernel, gamma: float, a: Tensor, w: Tensor) -> Iterator[Pair]:
    """The pairs of the derivative at the fixed point, from the weights alone."""
    Ka, doubtful = _at(K, a)
    y = w / 2
    for _ in range(IMPLICIT_STEPS[w.dtype]):
        y = y + (2 / 3) * (w - y - a * K.times(y / Ka, doubtful))
    yield -y / Ka, a, doubtful
    yield gamma * y / _present(K.row_sums, K), torch.ones_like(w), K.doubtful_sums


def _at(K: Kernel, a: Tensor) -> tuple[Tensor, Doubtful]:
    Ka, doubtful = K.at(a)
    return _present(Ka, K), doubtful


def _present(Ka: Tensor, K: Kernel) -> Tensor:
    """Set K a to one in empty rows, which keeps their weight at 1, without effect on the others."""
    return Ka if K.empty is None else Ka.masked_fill(K.empty, 1)
