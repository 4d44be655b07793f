"""What the PyTorch modules share: from features to the normalised descriptor, in one graph."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

from array_api_compat import torch as xp
from torch import Tensor, nn
from torch.fx.experimental import symbolic_shapes

from ..errors import InvalidInput
from ..implementations.torch_any import tensors
from ..implementations.torch_any.implementation import KERNELS
from ..problem.parameters import validated
from ..problem.vocabulary import DTYPES
from ..profiles import auto
from . import preparing

import torch  # isort: skip

_exporting: Any = None
with suppress(ImportError):
    # Private, but Dynamo, to which the exporter falls back, takes the public question for False.
    _exporting = import_module("torch.onnx._internal.exporter._flags")

# A size that may change, as it was when the graph was made; an older torch does not tell.
_hint: Any = getattr(symbolic_shapes, "optimization_hint", None)

USUAL_SIZE = 512
"""What an older torch takes for a size that may change."""


class Pooling(nn.Module):
    """From features to the normalised descriptor; subclasses pool."""

    _descriptor: str
    _among: tuple[str, ...] | None = None  # the routes that auto may take, if not all
    accuracy: str | float = "fast"
    normalize: str
    dtype: torch.dtype | None
    layout: str | None
    center: bool = False
    vectorize: str = "full"

    def __init__(
        self,
        normalize: str,
        dtype: torch.dtype | None,
        layout: str | None,
        center: bool,
        vectorize: str = "full",
    ) -> None:
        super().__init__()
        if layout not in (None, "nchw", "nd"):
            raise InvalidInput(f"layout must be None, 'nchw' or 'nd'; got {layout!r}.")
        self.layout = layout
        self.normalize, self.center = validated(normalize=normalize, center=center)
        self.vectorize = validated(vectorize=vectorize)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise InvalidInput(f"dtype must be a floating-point dtype of torch; got {dtype!r}.")
        self.dtype = dtype

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        X = _rows(x, self.layout)
        single = X.dim() == 2
        X = X.unsqueeze(0) if single else X
        present = None if lengths is None else self._present(X, lengths)
        route = self._route(X)
        with tensors.without_autocast(x.device.type):
            X = preparing.without_padding(xp, tensors.working(X), present)
            if self.normalize != "none":
                # The scale of an image does not show in the descriptor, but squares might overflow.
                X = tensors.scaled(X, tensors.range_factor(X))
            if self.center:
                X = preparing.centered(xp, X, present)
            result = self._normalized(X, route)
            if self.vectorize == "upper":
                result = preparing.upper(xp, result, int(X.shape[-1]))
        result = result.squeeze(0) if single else result
        return result if self.dtype is None else result.to(self.dtype)

    def _present(self, X: Tensor, lengths: Tensor) -> Tensor:
        """Which rows of ``(B, n, d)`` are no padding. Lengths are not read: a GPU would wait."""
        if self.layout != "nd":
            raise InvalidInput("lengths are of rows (B, n, d): make the module with layout='nd'.")
        if not isinstance(lengths, Tensor) or lengths.numel() != X.shape[0]:
            raise InvalidInput(f"lengths must be a tensor of {X.shape[0]} whole numbers.")
        return torch.arange(X.shape[1], device=X.device) < lengths.reshape(-1, 1)

    def pool(self, X: Tensor, route: str | None = None) -> Tensor:
        """The descriptor before it is normalised, by a route or else the module's own."""
        raise NotImplementedError

    def _normalized(self, X: Tensor, route: str) -> Tensor:
        """The descriptor, ``(B, D)``."""
        pooled = self.pool(X, route).flatten(1)
        options: dict[str, Any] = {"axes": 1, "kind": self.normalize, "overwrite": False}
        result: Tensor = KERNELS["normalize", "direct"](pooled, **options)
        return result

    def _route(self, X: Tensor) -> str:
        """The route for features as they were given, which may not be in the dtype of the work."""
        raise NotImplementedError

    def _job(self) -> dict[str, Any]:
        """Of the descriptor, as ``describe`` takes them."""
        return {}

    def _without_auto(self, route: str, X: Tensor) -> str:
        """A route as it is, or what ``describe`` would take where a part of it is ``auto``."""
        if "auto" not in route:
            return route
        shape = tuple(_size(size) for size in X.shape)
        return str(self._pick(route, X.device.type, shape, str(X.dtype)))

    @tensors.constant
    def _pick(self, route: str, device: str, shape: tuple[int, ...], dtype: str) -> str:
        """Runs outside the graph when a compiler traces the module: there it is a constant.

        A device without a backend, as meta, counts as the CPU; an unknown dtype as float32.
        """
        backend = f"torch:{device}" if device in ("cpu", "cuda") else "torch:cpu"
        name = dtype.removeprefix("torch.")
        case = auto.case_of(
            backend,
            self._descriptor,
            tuple(max(size, 1) for size in shape),
            dtype=name if name in DTYPES else "float32",
            **self._job(),
        )
        asked: dict[str, Any] = {"route": route, "among": self._among, "accuracy": self.accuracy}
        return auto.pick(case, home=backend, backend=backend, **asked).route

    def extra_repr(self) -> str:
        usual = {"layout": None, "dtype": None, "center": False, "vectorize": "full"}
        given = (name for name, value in usual.items() if getattr(self, name) != value)
        names = [*self._shown(), *given]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _shown(self) -> tuple[str, ...]:
        return ("normalize",)


class WeightedPooling(Pooling):
    """Pooling of outer products, whose derivative is taken together with that of the norm."""

    def pool(self, X: Tensor, route: str | None = None) -> Tensor:
        pooled: Tensor = KERNELS["pool", "direct"](X, self._weights(X, route), order=2)
        return pooled

    def _weights(self, X: Tensor, route: str | None) -> Tensor | None:
        """Of the features; None for weights of 1."""
        raise NotImplementedError

    def _normalized(self, X: Tensor, route: str) -> Tensor:
        weights = self._weights(X, route)
        pooled: Tensor = KERNELS["pool", "direct"](X, weights, order=2, norm=self.normalize)
        return pooled.flatten(1)


def _rows(x: Tensor, layout: str | None) -> Tensor:
    """Features ``(n, d)`` or ``(B, n, d)``; conv maps become one feature per position."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        what = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise InvalidInput(f"x must be a tensor of floating-point numbers; got {what}.")
    axes = x.dim()
    if layout is None and axes == 3:
        raise InvalidInput(
            f"x of shape {tuple(x.shape)} may be one image (C, H, W) or features (B, n, d): make "
            "the module with layout='nchw' or layout='nd'."
        )
    if layout == "nd" and axes in (2, 3):
        return x
    if layout != "nd" and axes in (3, 4):
        return x.flatten(-2).mT
    wanted = {
        None: "(B, C, H, W)",
        "nchw": "(C, H, W) or (B, C, H, W) for layout='nchw'",
        "nd": "(n, d) or (B, n, d) for layout='nd'",
    }[layout]
    raise InvalidInput(f"x must be {wanted}; got shape {tuple(x.shape)}.")


def exporting_onnx() -> bool:
    """Whether torch.onnx is exporting."""
    return torch.onnx.is_in_onnx_export() or getattr(_exporting, "_is_onnx_exporting", False)


def _size(size: Any) -> int:
    """A size as a plain number, without making a graph depend on it."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return int(size)
    if _hint is not None:
        return int(_hint(size))
    return int(size) if symbolic_shapes.has_static_value(size) else USUAL_SIZE
