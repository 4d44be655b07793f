"""Helpers for all torch kernels: working dtype, images, range, groups of images.

Neither they nor the kernels read values back on a GPU or in a graph: shapes decide everything, and
``torch.compile`` sees one graph. A GPU waits for the host only inside torch's own eigh and svd.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from demopool.contract import DTYPES

HALF = tuple(getattr(torch, dtype) for dtype in DTYPES if dtype.is_half)
NOT_IN_NUMPY = tuple(getattr(torch, dtype) for dtype in DTYPES if not dtype.in_numpy)

# Maximum memory for the kernels of the images that a CPU processes at once.
_WORK_BYTES = 24 * 2**20

# Maximum exponents of the powers of two that scale images; larger factors would overflow.
_LARGEST_EXPONENT = {torch.float32: 120, torch.float64: 1000}


def constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.compiler.assume_constant_result``, without importing the compiler.

    That takes as long as importing torch, and most processes compile nothing.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """Disable autocast, which would compute products in half precision; a meta device has none.

    Entering a context takes longer than a small product, so one is entered only where it matters;
    a graph keeps it for whoever runs it.
    """
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    if not torch.compiler.is_compiling() and not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function run without autocast."""

    @wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        devices = [a.device.type for a in arguments if isinstance(a, Tensor)]
        with without_autocast(devices[0] if devices else "cpu"):
            return function(*arguments, **options)

    return called


def working(X: Tensor) -> Tensor:
    """X in the dtype to compute in: half precision becomes float32, exactly."""
    return X.float() if X.dtype in HALF else X


def as_images(X: Tensor) -> Tensor:
    """``(images, n, d)`` in the working dtype."""
    return working(X).reshape(-1, *X.shape[-2:])


def as_given_images(X: Tensor) -> Tensor:
    """The same for kernels that convert half precision part by part, on a CPU. For a derivative it
    is converted here: sums of derivatives would be rounded to half precision."""
    if in_place_on_cpu(X) and not needs_derivative(X):
        return X.reshape(-1, *X.shape[-2:])
    return as_images(X)


def needs_derivative(*given: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(X is not None and X.requires_grad for X in given)


def range_factor(images: Tensor, axes: tuple[int, ...] = (-2, -1)) -> Tensor:
    """The power of two, ``(images, 1, 1)``, that brings each image's largest value to about 1.

    It is 1 for values up to 256, which are in range for any product here, and need no copy. It is
    a constant for autograd: results do not depend on it once the scaling is undone. ``axes`` are
    those of an image.
    """
    images = images.detach()
    limit = _LARGEST_EXPONENT[images.dtype]
    both = images.amax(dim=axes, keepdim=True), -images.amin(dim=axes, keepdim=True)
    largest = torch.maximum(*both)
    if in_place_on_cpu(images) and bool(((largest > 0.5) & (largest <= 256)).all()):
        return torch.ones_like(largest)  # the usual case, in few steps
    exponent = torch.log2(largest).ceil().clamp(-limit, limit)
    changes = (largest > 0) & ((exponent < 0) | (exponent > 8))
    return torch.where(changes, torch.exp2(-exponent), 1.0)


def scaled(images: Tensor, factor: Tensor) -> Tensor:
    """Images times their factors; on a CPU the images themselves where these are 1."""
    if in_place_on_cpu(images) and bool((factor == 1).all()):
        return images
    return images * factor


def in_place_on_cpu(X: Tensor) -> bool:
    """Whether writing into parts of tensors is allowed (eager mode) and faster (on a CPU)."""
    return X.device.type == "cpu" and is_plain(X)


def is_plain(X: Tensor) -> bool:
    """Whether X is an ordinary tensor: not seen by a compiler or ``torch.jit.trace``, not without
    values (meta), and not wrapped by vmap or grad."""
    if torch.compiler.is_compiling() or type(X) is not Tensor:
        return False
    if X.is_meta or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(X)


def chunks(X: Tensor, bytes_per_image: int) -> tuple[Tensor, ...]:
    """Split images into groups to process together: all of them on a GPU, few on a CPU."""
    if X.shape[0] < 2 or not in_place_on_cpu(X):
        return (X,)
    return torch.split(X, max(1, _WORK_BYTES // bytes_per_image))


def times_rows(v: Tensor, K: Tensor) -> Tensor:
    """``K v`` of symmetric K as ``v^T K``: torch's batched ``K @ v`` is many times slower."""
    return (v.unsqueeze(-2) @ K).squeeze(-2)
