"""The gradient of a call on tensors, with another weight for every value it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = Any


def gradient(call: Callable[..., Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    given = x.clone().requires_grad_()
    y = call(given)
    (found,) = torch.autograd.grad(y, given, torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    return y, found
