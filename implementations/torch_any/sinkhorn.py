"""The Sinkhorn iteration and its derivative, on images in range, with K built or not.

Forward, with r = (K 1)^gamma:    a <- a (a * K a / r)^(-tau), T times, from a = 1.

Backward, in u = log a:           u <- (1 - tau) u - tau log(K a) + tau log r.
With w the derivative by the new u, the derivative by K is a sum of outer products q a^T with
q = -tau w / (K a), one for every iteration, and gamma (sum of tau w) / (K 1) with a = 1 for r; and
w <- (1 - tau) w + a * (K q). Only the T weight vectors are kept; K a is computed again.

At the fixed point a * (K a) = r the derivative can be had without the way there: (I + P^T) y = w
with P = diag(1 / K a) K diag(a), whose eigenvalues lie in [0, 1] because K is positive
semi-definite, so a damped fixed-point iteration shrinks the error by 3 in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from demopool.implementations.shared.democratic import ALIGNED
from torch import Tensor

from . import tensors

# x^T M x is a difference of large numbers for a row that is nearly orthogonal to all stronger ones:
# its rounding error, relative to the sum, is about eps over its alignment, the share of what a row
# in a random direction would have. For rows below this share the entries of K are made and summed;
# where values cannot be read back, for so many rows of every image, the least aligned ones.
EXACT_ROWS = 64

IMPLICIT_STEPS = {torch.float32: 20, torch.float64: 40}


class Kernel(NamedTuple):
    """K of every image as an operator, and the derivative by X of ``sum_t q_t^T K a_t``.

    K v is never below ``diagonal * v`` for v >= 0, because K has no negative entries: where
    rounding says otherwise, that is the better answer. ``absent`` rows are zero; ``empty`` rows of
    K belong to them and to features of less than the dtype can square twice.
    """

    times: Callable[[Tensor], Tensor]
    row_sums: Tensor
    diagonal: Tensor
    absent: Tensor
    empty: Tensor
    pull_back: Callable[[Iterator[tuple[Tensor, Tensor]]], Tensor]


def dense_kernel(X: Tensor, order: int, differentiable: bool) -> Kernel:
    """K in memory: ``(x_i . x_j)^2``, or ``max(x_i . x_j, 0)`` for order 1."""
    G = tensors.gram(X)
    absent = G.diagonal(dim1=-2, dim2=-1) == 0
    if differentiable:
        K = G.square() if order == 2 else G.relu()
    else:
        K = G.mul_(G) if order == 2 else G.relu_()

    def pull_back(pairs: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
        q, a = (torch.stack(vectors, dim=-2) for vectors in zip(*pairs, strict=True))
        D = q.mT @ a
        slope = 2 * G if order == 2 else (G > 0).to(G.dtype)
        return ((D + D.mT) * slope) @ X

    row_sums = K.sum(dim=-1)
    diagonal = K.diagonal(dim1=-2, dim2=-1)

    def times(v: Tensor) -> Tensor:
        return tensors.times_rows(v, K)

    return Kernel(times, row_sums, diagonal, absent, row_sums == 0, pull_back)


def matrix_free_kernel(X: Tensor) -> Kernel:
    """K v through the d x d moment of X; second order only."""
    squared_norms = X.square().sum(dim=-1)

    # One buffer for all iterations, where it may be written to: large temporaries between the small
    # vectors that are kept would leave holes in the memory, and at T = 100 ten times its size.
    scratch = torch.empty_like(X) if tensors.in_place_on_cpu(X) else None

    def through_moment(v: Tensor) -> Tensor:
        into = scratch if tensors.in_place_on_cpu(v) else None
        moment = torch.mul(X, v.unsqueeze(-1), out=into).mT @ X
        return torch.matmul(X, moment, out=into)

    def along_rows(Y: Tensor) -> Tensor:
        return torch.mul(Y, X, out=scratch if tensors.in_place_on_cpu(Y) else None).sum(dim=-1)

    by_moment = along_rows(through_moment(torch.ones_like(squared_norms)))
    in_any_direction = squared_norms * (squared_norms.sum(dim=-1, keepdim=True) / X.shape[-1])
    alignment = torch.where(squared_norms == 0, torch.inf, by_moment / in_any_direction)
    count = min(EXACT_ROWS, X.shape[-2])
    if tensors.in_place_on_cpu(X) and X.numel():
        count = int((~(alignment >= ALIGNED)).sum(dim=-1).max())
    doubtful = alignment.topk(count, dim=-1, largest=False).indices
    rows = X.gather(-2, doubtful.unsqueeze(-1).expand(*doubtful.shape, X.shape[-1]))
    exact = (rows @ X.mT).square()

    def corrected(result: Tensor, v: Tensor) -> Tensor:
        return result.scatter(-1, doubtful, (exact @ v.unsqueeze(-1)).squeeze(-1))

    def times(v: Tensor) -> Tensor:
        return corrected(along_rows(through_moment(v)), v)

    def pull_back(pairs: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
        gradient = torch.zeros_like(X)
        for q, a in pairs:
            for one, other in ((q, a), (a, q)):
                part = (one.unsqueeze(-1), through_moment(other))
                into = gradient if all(map(tensors.in_place_on_cpu, (X, one, other))) else None
                gradient = torch.addcmul(gradient, *part, value=2, out=into)
        return gradient

    diagonal = squared_norms.square()
    row_sums = torch.maximum(corrected(by_moment, torch.ones_like(squared_norms)), diagonal)
    return Kernel(times, row_sums, diagonal, squared_norms == 0, row_sums == 0, pull_back)


def kernel(X: Tensor, order: int, route: str, *, differentiable: bool = False) -> Kernel:
    if route == "dense":
        return dense_kernel(X, order, differentiable)
    return matrix_free_kernel(X)


def image_bytes(X: Tensor, route: str) -> int:
    """What one image needs at hand in every iteration."""
    n, d = X.shape[-2:]
    return n * (n if route == "dense" else d) * X.element_size()


def forward(
    K: Kernel, gamma: float, tau: float, iterations: int, *, keep: bool
) -> tuple[Tensor, Tensor]:
    """The weights, 0 for absent rows, and the T vectors on the way to them, ``(images, T, n)``."""
    Ka = _present(K.row_sums, K)
    target = Ka**gamma
    a = torch.ones_like(Ka)
    kept = iterations if keep else 0
    images, n = Ka.shape
    # In one piece from the start: kept one by one they would be there twice when put together.
    way = Ka.new_empty((images, kept, n)) if tensors.in_place_on_cpu(Ka) else None
    vectors: list[Tensor] = []
    for iteration in range(iterations):
        if way is None:
            vectors.append(a)
        elif keep:
            way[:, iteration] = a
        if iteration:
            Ka = _of_positive(K, a)
        a = a * (a * Ka / target) ** -tau
    if way is None:
        way = torch.stack(vectors[:kept], dim=-2) if kept else Ka.new_empty((images, 0, n))
    return a.masked_fill(K.absent, 0), way


def unrolled(
    K: Kernel, gamma: float, tau: float, way: Tensor, w: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """The pairs (q, a) of the derivative by K; ``w`` is the derivative by log a at the end."""
    by_target = torch.zeros_like(w)
    ones = torch.ones_like(w)
    row_sums = _present(K.row_sums, K)
    for iteration in reversed(range(way.shape[-2])):
        a = way[:, iteration]
        by_target = by_target + tau * w
        if iteration == 0:
            # a = 1 here as for the target: one pair for both.
            yield (gamma * by_target - tau * w) / row_sums, ones
            return
        q = -tau * w / _of_positive(K, a)
        w = (1 - tau) * w + a * K.times(q)
        yield q, a


def implicit(K: Kernel, gamma: float, a: Tensor, w: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The same at the fixed point, from the weights alone."""
    Ka = _of_positive(K, a)
    y = w / 2
    for _ in range(IMPLICIT_STEPS[w.dtype]):
        y = y + (2 / 3) * (w - y - a * K.times(y / Ka))
    yield -y / Ka, a
    yield gamma * y / _present(K.row_sums, K), torch.ones_like(w)


def _of_positive(K: Kernel, a: Tensor) -> Tensor:
    return _present(torch.maximum(K.times(a), K.diagonal * a), K)


def _present(Ka: Tensor, K: Kernel) -> Tensor:
    """With a one there an empty row keeps its weight of 1, away from the others."""
    return Ka.masked_fill(K.empty, 1)
