"""What every torch kernel needs: working dtype, images, range, symmetric products.

Nothing here or in the kernels reads a value back: shapes decide everything, and ``torch.compile``
sees one graph. A GPU waits for the host only inside torch's own eigh and svd.
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

# Rows of a symmetric product that are made at once, each up to the diagonal: half the work of a
# general product, less the cost of mirroring it.
_ROWS_IN_BATCH, _ROWS_ALONE = 128, 256

# Images that a processor works on at once may need this much for their kernels.
_WORK_BYTES = 24 * 2**20

# Exponents of the powers of two that images are scaled by; beyond them a factor would overflow.
_LARGEST_EXPONENT = {torch.float32: 120, torch.float64: 1000}


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """Autocast would turn products to half precision; a device that only has shapes has none."""
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, without autocast."""

    @wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        devices = [a.device.type for a in arguments if isinstance(a, Tensor)]
        with without_autocast(devices[0] if devices else "cpu"):
            return function(*arguments, **options)

    return called


def working(X: Tensor) -> Tensor:
    """Half precision is worked in float32, which holds it exactly."""
    return X.float() if X.dtype in HALF else X


def as_images(X: Tensor) -> Tensor:
    """``(images, n, d)`` in the working dtype."""
    return working(X).reshape(-1, *X.shape[-2:])


def range_factor(images: Tensor) -> Tensor:
    """The power of two, ``(images, 1, 1)``, that brings each image's largest value to about 1.

    A constant to autograd: results do not depend on it, once it is put back.
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

    On a processor the lower blocks are made and mirrored. A GPU has no use for that, nor has a
    compiler, which cannot follow writes into parts of a matrix.
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
            # All images at once: each thread then works on images of its own. There `out` would
            # be slower: torch multiplies images with gaps between their rows one by one.
            result[:, start:stop, :stop] = block @ others
        result[:, :start, start:stop] = result[:, start:stop, :start].mT
    return result


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory from NumPy, which asks the system for large pages: of 134 MB, the result of 8 ResNet
    images, torch's own takes 36 ms to be touched for the first time, this 9."""
    return torch.from_numpy(np.empty(shape, _NUMPY[dtype]))


def in_place_on_cpu(X: Tensor) -> bool:
    """Whether parts of tensors may be written to: eagerly, and where that is faster."""
    return X.device.type == "cpu" and is_plain(X)


def is_plain(X: Tensor) -> bool:
    """Neither a tensor that a compiler or ``torch.jit.trace`` looks at, nor one that only has a
    shape, nor one that vmap or grad has wrapped."""
    if torch.compiler.is_compiling() or type(X) is not Tensor:
        return False
    if X.is_meta or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(X)


def chunks(X: Tensor, bytes_per_image: int) -> tuple[Tensor, ...]:
    """Images to be worked on together: all of them on a GPU, few on a processor."""
    if X.shape[0] < 2 or not in_place_on_cpu(X):
        return (X,)
    return torch.split(X, max(1, _WORK_BYTES // bytes_per_image))


def times_rows(v: Tensor, K: Tensor) -> Tensor:
    """``K v`` of symmetric K as ``v^T K``: torch's batched ``K @ v`` is many times slower."""
    return (v.unsqueeze(-2) @ K).squeeze(-2)
