"""Weighted pooling and the final normalisation on tensors."""

from __future__ import annotations

from torch import Tensor

from . import tensors, triangles
from .autograd import Normalize, Pool, PoolNormalized


def direct(X: Tensor, a: Tensor | None, *, order: int, triangle: bool = False) -> Tensor:
    """``X^T diag(a) X``, or ``a^T X`` for order 1.

    With ``triangle`` the upper triangle may hold anything.
    """
    if order == 1:
        images, weights = tensors.as_images(X), _of_images(a)
        pooled = images.sum(dim=-2) if weights is None else tensors.times_rows(weights, images)
    else:
        images, weights = tensors.as_given_images(X), _of_images(a)
        if tensors.is_plain(images) and not tensors.needs_derivative(images, weights):
            pooled = triangles.weighted_moment(images, weights, triangle=triangle)
        else:
            pooled = Pool.apply(tensors.working(images), weights)
    return pooled.reshape(*X.shape[:-2], *pooled.shape[1:])


def _of_images(a: Tensor | None) -> Tensor | None:
    return None if a is None else a.reshape(-1, a.shape[-1])


def direct_normalized(X: Tensor, a: Tensor | None, *, kind: str) -> Tensor:
    """The second-order pooling of images ``(images, n, d)`` with its final norm."""
    if kind == "none":
        return direct(X, a, order=2)
    result: Tensor = PoolNormalized.apply(X, a, kind)[0]
    return result


def normalize(
    v: Tensor, *, axes: int, kind: str, overwrite: bool, symmetric: bool = False
) -> Tensor:
    """Signed square root and l2 norm over the last ``axes`` axes.

    Of ``symmetric`` matrices only the lower triangle is read.
    """
    in_work = tensors.working(v)
    owned = overwrite or in_work is not v
    in_place = tensors.is_plain(v) and not tensors.needs_derivative(v)
    if symmetric and (kind == "none" or not in_place or v.device.type != "cpu"):
        in_work, owned, symmetric = triangles.symmetrized(in_work), True, False
    if kind != "none" and not in_place:
        result: Tensor = Normalize.apply(in_work, axes, kind)[0]
        return result
    in_work = in_work if owned else in_work.clone()
    if kind == "none":
        return in_work
    if symmetric:
        found = in_work.reshape(-1, *v.shape[-2:])
        triangles.normalize_triangles_(found, kind)
    else:
        found = in_work.reshape(-1, v.shape[-axes:].numel())
        triangles.normalize_(found, kind)
    return found.reshape(v.shape)
