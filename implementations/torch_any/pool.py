"""Weighted pooling and the final normalisation on tensors."""

from __future__ import annotations

from torch import Tensor

from . import tensors, triangles
from .autograd import Normalize, Pool, PoolNormalized


def direct(X: Tensor, a: Tensor | None, *, order: int, norm: str = "none") -> Tensor:
    """``X^T diag(a) X``, or ``a^T X`` for order 1; matrices with their final ``norm``."""
    if order == 1:
        images, weights = tensors.as_images(X), _of_images(a)
        pooled = images.sum(dim=-2) if weights is None else tensors.times_rows(weights, images)
    else:
        images, weights = tensors.as_given_images(X), _of_images(a)
        is_plain = tensors.is_plain(images) and not tensors.needs_derivative(images, weights)
        given = images if is_plain else tensors.working(images)
        if norm != "none":
            both = triangles.normalized_moment if is_plain else PoolNormalized.apply
            pooled, _ = both(given, weights, norm)
        else:
            pooled = (triangles.weighted_moment if is_plain else Pool.apply)(given, weights)
    return pooled.reshape(*X.shape[:-2], *pooled.shape[1:])


def _of_images(a: Tensor | None) -> Tensor | None:
    return None if a is None else a.reshape(-1, a.shape[-1])


def normalize(v: Tensor, *, axes: int, kind: str, overwrite: bool) -> Tensor:
    """Signed square root and l2 norm over the last ``axes`` axes."""
    in_work = tensors.working(v)
    owned = overwrite or in_work is not v
    # On a GPU nothing is read, and values that are to be squared are scaled into a copy.
    may_write = tensors.in_place_on_cpu if kind == "l2" else tensors.is_plain
    in_place = may_write(v) and not tensors.needs_derivative(v)
    if kind != "none" and not in_place:
        result: Tensor = Normalize.apply(in_work, axes, kind)[0]
        return result
    in_work = in_work if owned else in_work.clone()
    if kind == "none":
        return in_work
    found = in_work.reshape(-1, v.shape[-axes:].numel())
    triangles.normalize_(found, kind)
    return found.reshape(v.shape)
