"""Two streams as a PyTorch module."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InvalidInput
from ..problem.parameters import validated
from . import streams
from .torch_pooling import Pooling


class BilinearPool(Pooling):
    """``X^T Y`` of two streams, ``D = d1 * d2``, or its Tensor Sketch, ``D = k``.

    ``module(x, y)`` takes maps or features of the same places; without y, x with itself.

    channels   d1 and d2
    k, seed    length of the sketch, and which hashes; ``k=None`` is the whole matrix
    """

    _descriptor = "sum"
    bins: Tensor
    signs: Tensor

    def __init__(
        self,
        channels: tuple[int, int],
        k: int | None = None,
        seed: int = 0,
        *,
        normalize: str = "signed-sqrt-l2",
        dtype: torch.dtype | None = None,
        layout: str | None = None,
        center: bool = False,
    ) -> None:
        super().__init__(normalize, dtype, layout, center)
        if not isinstance(channels, tuple | list) or len(channels) != 2:
            raise InvalidInput(f"channels must be d1 and d2; got {channels!r}.")
        d1, d2 = (validated(d=d) for d in channels)
        self.channels, self.seed = (d1, d2), validated(seed=seed)
        self.k = None if k is None else validated(k=k)
        if self.k is not None:
            bins, signs = streams.places(d1, d2, self.k, self.seed)
            self.register_buffer("bins", torch.from_numpy(bins.copy()))
            self.register_buffer("signs", torch.from_numpy(signs.copy()))

    def forward(self, x: Tensor, y: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        y = x if y is None else y
        axis, least = (-1, 2) if self.layout == "nd" else (-3, 3)
        for tensor, d, name in zip((x, y), self.channels, "xy", strict=True):
            if tensor.dim() < least or tensor.shape[axis] != d:
                raise InvalidInput(f"{name} must have {d} channels; got {tuple(tensor.shape)}.")
        if x.dtype != y.dtype or x.device != y.device:
            raise InvalidInput("x and y must have one dtype and be on one device.")
        return super().forward(torch.cat([x, y], dim=axis), lengths)

    def pool(self, X: Tensor, route: str | None = None) -> Tensor:
        M: Tensor = streams.product(X, self.channels[0])
        if self.k is None:
            return M
        found: Tensor = streams.scattered(M, self.bins, self.signs.to(M.dtype), self.k)
        return found

    def _route(self, X: Tensor) -> str:
        return "direct"

    def _shown(self) -> tuple[str, ...]:
        return ("channels", *(("k", "seed") if self.k else ()), "normalize")
