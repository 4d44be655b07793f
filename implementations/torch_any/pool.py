"""Weighted pooling and the final normalisation on tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from . import tensors
from .autograd import Normalize, Pool


def direct(X: Tensor, a: Tensor | None, *, order: int) -> Tensor:
    """``X^T diag(a) X``, or ``a^T X`` for order 1."""
    images = tensors.as_images(X)
    weights = None if a is None else a.reshape(images.shape[:-1])
    if order == 1:
        pooled = images.sum(dim=-2) if weights is None else tensors.times_rows(weights, images)
    else:
        pooled = Pool.apply(images, weights)
    return pooled.reshape(*X.shape[:-2], *pooled.shape[1:])


def normalize(v: Tensor, *, axes: int, kind: str, overwrite: bool) -> Tensor:
    """Signed square root and l2 norm over the last ``axes`` axes."""
    v_in_work = tensors.working(v)
    if kind == "none":
        return v_in_work if overwrite or v_in_work is not v else v.clone()
    if overwrite and not (v.requires_grad and torch.is_grad_enabled()):
        return _in_place(v_in_work, axes, kind)
    result: Tensor = Normalize.apply(v_in_work, axes, kind)
    return result


def _in_place(v: Tensor, axes: int, kind: str) -> Tensor:
    if kind == "signed-sqrt-l2":
        sign = v.sign()
        v = v.abs_().sqrt_().mul_(sign)
    length = torch.linalg.vector_norm(v, dim=tuple(range(-axes, 0)), keepdim=True)
    return v.div_(torch.where(length > 0, length, 1.0))
