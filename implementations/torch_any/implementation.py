"""Tensors and the kernels of torch:cpu and torch:cuda, by operation and route."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import dlpack

from demopool.contract import ArrayFacts, Hashes, Implementation, Kernel
from demopool.errors import InvalidInput
from demopool.implementations.shared import ranges
from demopool.implementations.shared.host import look_ordinary
from demopool.implementations.shared.table import kernel_table
from demopool.implementations.shared.torch_clock import TorchClock

from . import pool, power, sketch, tensors, weights
from .sketching import PreparedHashes

KERNELS: dict[tuple[str, str], Kernel] = {
    key: tensors.in_full_precision(kernel)
    for key, kernel in kernel_table(weights, pool, sketch, power).items()
}

_DLPACK_CUDA = 2
"""What DLPack calls a GPU."""


class TorchImplementation(Implementation):
    """Kernels run on the tensor's device; with several GPUs, on the tensor's own GPU."""

    takes_ordinary = True
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = KERNELS
    device: str

    def inspect(self, array: Any) -> ArrayFacts | None:
        if not isinstance(array, Tensor) or array.device.type != self.device:
            return None
        dtype = _name(array.dtype)
        if array.is_nested:  # a nested tensor has no shape
            return ArrayFacts((), f"a nested tensor of {dtype}", str(array.device))
        if array.layout is not torch.strided:
            layout = str(array.layout).strip("_").removeprefix("torch.").strip("_")
            dtype = f"a {layout} tensor of {dtype}"
        return ArrayFacts(tuple(array.shape), dtype, str(array.device))

    def asarray(self, array: NDArray[Any]) -> Tensor:
        # torch has no read-only tensors and no negative strides.
        viewable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
        return torch.from_numpy(array if viewable else array.copy()).to(self.device)

    def keeps(self, array: Tensor) -> bool:
        has_tangent = forward_ad.unpack_dual(array).tangent is not None
        return has_tangent or array.requires_grad or array.is_neg() or not tensors.is_plain(array)

    def to_numpy(self, array: Tensor) -> NDArray[Any]:
        if array.requires_grad:
            raise InvalidInput(
                "a tensor that requires grad cannot leave torch without losing its gradient; "
                "detach() it first."
            )
        found = array.float() if array.dtype in tensors.NOT_IN_NUMPY else array
        return np.asarray(found.cpu().resolve_neg().numpy())

    def cast(self, array: Tensor, dtype: str) -> Tensor:
        return array.to(getattr(torch, dtype))

    def row_magnitudes(self, X: Tensor) -> NDArray[Any]:
        return self.to_numpy(_row_magnitudes(X.detach()))

    def looks_ordinary(
        self, X: Tensor, low: float, high: float, *, zero_rows: bool = False
    ) -> bool:
        magnitudes = _row_magnitudes(X.detach())
        return bool(ranges.are_ordinary(magnitudes, torch, low, high, zero_rows))

    def prepare(self, hashes: Hashes) -> PreparedHashes:
        return PreparedHashes.on(self.device, hashes)


def _row_magnitudes(X: Tensor) -> Tensor:
    if X.device.type == "cuda":  # where this is one pass, without a temporary array
        return torch.linalg.vector_norm(X, torch.inf, dim=-1)
    if X.dtype in tensors.HALF:  # whose minimum is slow on a CPU
        return X.abs().amax(dim=-1)
    return torch.maximum(X.amax(dim=-1), -X.amin(dim=-1))


class OnCpu(TorchImplementation):
    """Only here matrices are normalised in place, from one triangle: torch multiplies whole ones on
    a GPU."""

    device = "cpu"
    pools_normalized = True

    def looks_ordinary(
        self, X: Tensor, low: float, high: float, *, zero_rows: bool = False
    ) -> bool:
        if X.dtype in tensors.HALF or not tensors.is_plain(X) or X.is_neg():
            return False  # NumPy has no view of a tensor to be negated when it is read
        return look_ordinary(X.detach().numpy(), low, high)


class OnGpu(TorchClock, TorchImplementation):
    device = "cuda"

    def adopt(self, array: Any) -> Tensor | None:
        """torch's current stream waits for what another owner has under way."""
        if self.inspect(array) is not None:
            return array
        if not hasattr(array, "__dlpack_device__"):
            return None
        kind, _ = array.__dlpack_device__()
        return dlpack.from_dlpack(array) if kind == _DLPACK_CUDA else None


@lru_cache(maxsize=64)
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
