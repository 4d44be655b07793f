"""Tensors with the kernels of triton:cuda and triton:interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demopool.contract import ArrayFacts, Implementation, Kernel
from demopool.errors import InvalidInput
from demopool.implementations.shared import images, ranges
from demopool.implementations.shared.torch_clock import TorchClock

from . import launcher, pool, weights
from .launcher import Launcher
from .sizes import TF32, WIDE

_WORKS: dict[tuple[str, str], images.Work] = {
    ("weights", "dense"): weights.dense,
    ("weights", "dense-128"): partial(weights.dense, tile=WIDE),
    ("weights", "dense-tf32"): partial(weights.dense, precision=TF32),
    ("pool", "direct"): pool.direct,
    ("pool", "128"): partial(pool.direct, tile=WIDE),
    ("pool", "tf32"): partial(pool.direct, precision=TF32),
    ("normalize", "direct"): pool.normalize,
}


def _on_gpu(array: Tensor) -> tuple[Launcher, Tensor]:
    return launcher.compiled(array.device), _readable(array)


def _on_cpu(array: Tensor) -> tuple[Launcher, Tensor]:
    return launcher.interpreted(), _readable(array)


def _readable(array: Tensor) -> Tensor:
    """Triton reads memory as it is, which knows no strides and no sign that torch has put off."""
    return array.resolve_neg().contiguous()


class Interpreted(Implementation):
    """Tensors on the CPU stand for those of a GPU."""

    takes_ordinary = True
    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(_WORKS, _on_cpu)
    device = "cpu"

    def inspect(self, array: Any) -> ArrayFacts | None:
        if not isinstance(array, Tensor) or array.device.type != self.device:
            return None
        if array.requires_grad:
            raise InvalidInput(
                "the kernels of Triton have no derivatives: detach() a tensor that requires grad, "
                "or take torch:cuda."
            )
        dtype = str(array.dtype).removeprefix("torch.")
        if array.layout is not torch.strided:
            dtype = f"a tensor of {dtype} that is not strided"
        return ArrayFacts(tuple(array.shape), dtype, str(array.device))

    def asarray(self, array: NDArray[Any]) -> Tensor:
        # torch has no read-only tensors and no negative strides.
        viewable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
        return torch.from_numpy(array if viewable else array.copy()).to(self.device)

    def adopt(self, array: Any) -> Tensor | None:
        """A tensor of torch is one of ours."""
        return None if self.inspect(array) is None else array

    def to_numpy(self, array: Tensor) -> NDArray[Any]:
        found = array.float() if array.dtype == torch.bfloat16 else array
        return np.asarray(found.cpu().resolve_neg().numpy())

    def cast(self, array: Tensor, dtype: str) -> Tensor:
        return array.to(getattr(torch, dtype))

    def packed(self, X: Tensor) -> Tensor:
        return _readable(X)

    def row_magnitudes(self, X: Tensor) -> NDArray[Any]:
        return self.to_numpy(torch.linalg.vector_norm(X, torch.inf, dim=-1))

    def looks_ordinary(
        self, X: Tensor, low: float, high: float, *, zero_rows: bool = False
    ) -> bool:
        magnitudes = torch.linalg.vector_norm(X, torch.inf, dim=-1)
        return bool(ranges.are_ordinary(magnitudes, torch, low, high, zero_rows))


class OnGpu(TorchClock, Interpreted):
    """The same on the tensor's own GPU, compiled by Triton when a kernel is first called."""

    kernels: ClassVar[dict[tuple[str, str], Kernel]] = images.kernels(_WORKS, _on_gpu)
    device = "cuda"
