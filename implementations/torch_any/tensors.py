"""Helpers for all torch kernels: working dtype, images, range, symmetric products.

Neither they nor the kernels read values back on a GPU or in a graph: shapes decide everything, and
``torch.compile`` sees one graph. A GPU waits for the host only inside torch's own eigh and svd.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from demopool.contract import DTYPES

_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
HALF = tuple(getattr(torch, dtype) for dtype in DTYPES if dtype.is_half)
NOT_IN_NUMPY = tuple(getattr(torch, dtype) for dtype in DTYPES if not dtype.in_numpy)

# Rows of a symmetric product computed at once, up to the diagonal: half the work of a general
# product, plus the cost of mirroring.
_ROWS_IN_BATCH, _ROWS_ALONE = 128, 256

# Maximum memory for the kernels of the images that a CPU processes at once.
_WORK_BYTES = 24 * 2**20

# Maximum exponents of the powers of two that scale images; larger factors would overflow.
_LARGEST_EXPONENT = {torch.float32: 120, torch.float64: 1000}


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


def range_factor(images: Tensor) -> Tensor:
    """The power of two, ``(images, 1, 1)``, that brings each image's largest value to about 1.

    It is a constant for autograd: results do not depend on it once the scaling is undone.
    """
    images = images.detach()
    limit = _LARGEST_EXPONENT[images.dtype]
    both = images.amax(dim=(-2, -1), keepdim=True), -images.amin(dim=(-2, -1), keepdim=True)
    largest = torch.maximum(*both)
    factor = torch.exp2(-torch.log2(largest).ceil().clamp(-limit, limit))
    return torch.where(largest > 0, factor, 1.0)


def gram(images: Tensor) -> Tensor:
    """``X X^T`` of every image."""
    return symmetric_product(images, images.mT)


def weighted_moment(images: Tensor, a: Tensor | None) -> Tensor:
    """``X^T diag(a) X`` of every image."""
    weighted = images if a is None else images * a.unsqueeze(-1)
    return symmetric_product(weighted.mT, images)


def symmetric_product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right`` of images, known to be symmetric.

    A CPU computes the lower blocks and mirrors them. A GPU gains nothing from that, and a compiler
    cannot follow writes into parts of a matrix.
    """
    images, size = left.shape[:2]
    if size <= _ROWS_IN_BATCH or not in_place_on_cpu(left):
        return left @ right
    result = _empty((images, size, size), left.dtype)
    rows = _ROWS_ALONE if images == 1 else _ROWS_IN_BATCH
    for start in range(0, size, rows):
        stop = min(start + rows, size)
        block, others = left[:, start:stop], right[..., :stop]
        if images == 1:
            torch.mm(block[0], others[0], out=result[0, start:stop, :stop])
        else:
            # All images at once, so that each thread works on its own images. Here `out` would be
            # slower: torch multiplies images with gaps between their rows one by one.
            result[:, start:stop, :stop] = block @ others
        result[:, :start, start:stop] = result[:, start:stop, :start].mT
    return result


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory from NumPy, which requests large pages: the first access to 134 MB, the result of 8
    ResNet images, takes 9 ms instead of 36 ms with torch's own."""
    return torch.from_numpy(np.empty(shape, _NUMPY[dtype]))


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
