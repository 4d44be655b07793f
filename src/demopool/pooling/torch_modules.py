"""Second-order pooling as PyTorch modules: ``demopool.torch``.

Each takes conv maps ``(B, C, H, W)`` and gives descriptors ``(B, D)``. Three axes could be one
image ``(C, H, W)`` or features ``(B, n, d)``: a module made with ``layout="nchw"`` or
``layout="nd"`` takes them; what has no batch axis gives one descriptor, ``(D,)``. Rows of zeros,
which rectified features can have, get weight 0, as in ``describe``. No value is read back to the
host, so
``torch.compile(fullgraph=True)`` and ``torch.export`` see one graph; only torch's own eigh and svd,
in matrix powers by these routes, make a GPU wait.
Half precision, given or by autocast, is worked in float32 and gives float32, unless ``dtype`` says
otherwise (``dtype=torch.float16`` inside a network that was made ``half()``).
"""

from __future__ import annotations

import math
from contextlib import suppress
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from ..errors import InvalidInput, Unsupported
from ..implementations.torch_any import tensors, weights
from ..implementations.torch_any.implementation import KERNELS
from ..implementations.torch_any.sketching import PreparedHashes
from ..problem.hashing import VERSION, hashes
from ..problem.parameters import validated
from .operations import cheapest_route

import torch  # isort: skip

_exporting: Any = None
with suppress(ImportError):
    # Private, but Dynamo, to which the exporter falls back, takes the public question for False.
    _exporting = import_module("torch.onnx._internal.exporter._flags")

BACKWARD = ("unrolled", "implicit")


class _Pooling(nn.Module):
    """From features to the normalised descriptor; subclasses pool."""

    normalize: str
    dtype: torch.dtype | None
    layout: str | None

    def __init__(self, normalize: str, dtype: torch.dtype | None, layout: str | None) -> None:
        super().__init__()
        if layout not in (None, "nchw", "nd"):
            raise InvalidInput(f"layout must be None, 'nchw' or 'nd'; got {layout!r}.")
        self.layout = layout
        self.normalize = validated(normalize=normalize)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise InvalidInput(f"dtype must be a floating-point dtype of torch; got {dtype!r}.")
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        X = _rows(x, self.layout)
        single = X.dim() == 2
        X = X.unsqueeze(0) if single else X
        with tensors.without_autocast(x.device.type):
            X = tensors.working(X)
            if self.normalize != "none":
                # The scale of an image does not show in the descriptor, but squares might overflow.
                X = X * tensors.range_factor(X)
            pooled = self.pool(X).flatten(1)
            options: dict[str, Any] = {"axes": 1, "kind": self.normalize, "overwrite": False}
            result: Tensor = KERNELS["normalize", "direct"](pooled, **options)
        result = result.squeeze(0) if single else result
        return result if self.dtype is None else result.to(self.dtype)

    def pool(self, X: Tensor) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        given = (name for name in ("layout", "dtype") if getattr(self, name) is not None)
        names = [*self._shown(), *given]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _shown(self) -> tuple[str, ...]:
        return ("normalize",)


class SecondOrderPool(_Pooling):
    """Sum of the outer products of all features, ``D = d * d``."""

    def __init__(
        self,
        *,
        normalize: str = "signed-sqrt-l2",
        dtype: torch.dtype | None = None,
        layout: str | None = None,
    ) -> None:
        super().__init__(normalize, dtype, layout)

    def pool(self, X: Tensor) -> Tensor:
        pooled: Tensor = KERNELS["pool", "direct"](X, None, order=2)
        return pooled


class _Democratic(_Pooling):
    def __init__(
        self,
        gamma: float,
        tau: float,
        iterations: int,
        route: str,
        backward: str,
        normalize: str,
        dtype: torch.dtype | None,
        layout: str | None,
    ) -> None:
        super().__init__(normalize, dtype, layout)
        self.gamma, self.tau, self.iterations = validated(
            gamma=gamma, tau=tau, iterations=iterations
        )
        if route not in ("auto", "dense", "matrix-free"):
            raise InvalidInput(f"route must be auto, dense or matrix-free; got {route!r}.")
        if backward not in BACKWARD:
            raise InvalidInput(f"backward must be one of {', '.join(BACKWARD)}; got {backward!r}.")
        self.route, self.backward = route, backward

    def weights(self, X: Tensor) -> Tensor:
        """Gamma-democratic weights of features ``(B, n, d)``: ``(B, n)``."""
        if X.dim() != 3:
            raise InvalidInput(f"weights are of features (B, n, d); got shape {tuple(X.shape)}.")
        route = self.route
        if route == "auto":
            thumb = _cheaper_route(X, self.iterations)
            route = _auto("weights", X, thumb, order=2, iterations=self.iterations)
        settings = {"gamma": self.gamma, "tau": self.tau, "iterations": self.iterations}
        if self.backward == "implicit":
            return weights.implicit(X, **settings, route=route)
        found: Tensor = KERNELS["weights", route](X, **settings, order=2)
        return found

    def _shown(self) -> tuple[str, ...]:
        return ("gamma", "tau", "iterations", "route", "backward", "normalize")


class GammaDemocraticPool(_Democratic):
    """Weighted sum of outer products, with weights that equalise contributions, ``D = d * d``.

    gamma       0: every feature contributes equally; 1: sum pooling
    tau         damping of the Sinkhorn iteration
    iterations  of it
    route       ``auto``, ``dense`` or ``matrix-free``
    backward    ``unrolled``: the derivative of what is computed; ``implicit``: that of the fixed
                point, from the weights alone, right when the iteration has converged
    """

    def __init__(
        self,
        gamma: float = 0.5,
        tau: float = 0.5,
        iterations: int = 10,
        *,
        route: str = "auto",
        backward: str = "unrolled",
        normalize: str = "signed-sqrt-l2",
        dtype: torch.dtype | None = None,
        layout: str | None = None,
    ) -> None:
        super().__init__(gamma, tau, iterations, route, backward, normalize, dtype, layout)

    def pool(self, X: Tensor) -> Tensor:
        pooled: Tensor = KERNELS["pool", "direct"](X, self.weights(X), order=2)
        return pooled


class SketchedDemocraticPool(_Democratic):
    """The same, as a Tensor Sketch of length k, ``D = k``.

    The hashes are buffers: they move with the module and are kept in its ``state_dict``.
    """

    h1: Tensor
    h2: Tensor
    s1: Tensor
    s2: Tensor

    def __init__(
        self,
        channels: int,
        k: int = 8192,
        seed: int = 0,
        *,
        gamma: float = 0.5,
        tau: float = 0.5,
        iterations: int = 10,
        route: str = "auto",
        sketch: str = "auto",
        backward: str = "unrolled",
        normalize: str = "signed-sqrt-l2",
        dtype: torch.dtype | None = None,
        layout: str | None = None,
    ) -> None:
        super().__init__(gamma, tau, iterations, route, backward, normalize, dtype, layout)
        if sketch not in ("auto", "fft", "moment"):
            raise InvalidInput(f"sketch must be auto, fft or moment; got {sketch!r}.")
        if isinstance(channels, bool) or not isinstance(channels, int) or channels < 1:
            raise InvalidInput(f"channels must be a whole number of at least 1; got {channels!r}.")
        made = hashes(channels, k, seed)
        self.channels, self.k, self.seed, self.sketch = channels, made.k, made.seed, sketch
        for name in ("h1", "h2", "s1", "s2"):
            self.register_buffer(name, torch.from_numpy(getattr(made, name).copy()))

    def pool(self, X: Tensor) -> Tensor:
        if X.shape[-1] != self.channels:
            raise InvalidInput(f"x must have {self.channels} channels; got {X.shape[-1]}.")
        prepared = PreparedHashes(self.h1, self.h2, self.s1, self.s2, self.k)
        n, d = X.shape[-2:]
        # In multiply-adds, as measured on two cores: a scatter of one value costs as much as 400.
        by_moment, by_fft = d * d * (n / 2 + 400), 20 * n * self.k * math.log2(self.k + 1)
        cheaper = "moment" if by_moment < by_fft else "fft"
        route = self.sketch
        if _for_onnx():
            if route == "fft":
                raise Unsupported(
                    "a sketch by fft in ONNX",
                    "torch's exporter has no such complex products; sketch='moment' is exported",
                )
            route = "moment"
        if route == "auto":
            route = _auto("pool_sketch", X, cheaper, order=2, k=self.k)
        pooled: Tensor = KERNELS["pool_sketch", route](X, prepared, self.weights(X))
        return pooled

    def _shown(self) -> tuple[str, ...]:
        return ("channels", "k", "seed", "sketch", *super()._shown())

    def get_extra_state(self) -> dict[str, Any]:
        """A checkpoint says what its sketches were made with."""
        return {"hashes": VERSION, "k": self.k, "seed": self.seed}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state.get("hashes") != VERSION:
            raise InvalidInput(
                f"this checkpoint has hashes of version {state.get('hashes')}, these are {VERSION}."
            )
        if state["k"] != self.k:
            raise InvalidInput(f"this checkpoint has k={state['k']}, this module k={self.k}.")
        self.seed = state["seed"]


class MatrixPowerPool(_Pooling):
    """``(X^T X)^p``, ``D = d * d``; p = 0.5 is the matrix square root.

    route   ``auto`` (``gram`` for n < d, else ``eigh``), ``eigh``, ``gram``, ``svd``, and for
            p = 0.5 the routes by products only, ``newton-schulz`` and ``polar``
    """

    def __init__(
        self,
        p: float = 0.5,
        *,
        route: str = "auto",
        normalize: str = "signed-sqrt-l2",
        dtype: torch.dtype | None = None,
        layout: str | None = None,
    ) -> None:
        super().__init__(normalize, dtype, layout)
        self.p = validated(p=p)
        known = ("auto", "eigh", "gram", "svd", "newton-schulz", "polar")
        if route not in known:
            raise InvalidInput(f"route must be one of {', '.join(known)}; got {route!r}.")
        if route in ("newton-schulz", "polar") and self.p != 0.5:
            raise InvalidInput(f"route {route} computes p = 0.5 only; got p = {p}.")
        self.route = route

    def pool(self, X: Tensor) -> Tensor:
        if _for_onnx():
            raise Unsupported(
                "a matrix power in ONNX",
                "it has no eigen-solver and no SVD, and torch's exporter fails on the other routes",
            )
        n, d = X.shape[-2:]
        # Not by time: the routes of products only have no exact derivative.
        route = ("gram" if n < d else "eigh") if self.route == "auto" else self.route
        powers: Tensor = KERNELS["power", route](X, p=self.p)
        return powers

    def _shown(self) -> tuple[str, ...]:
        return ("p", "route", "normalize")


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


def _for_onnx() -> bool:
    """Whether torch.onnx looks on."""
    return torch.onnx.is_in_onnx_export() or getattr(_exporting, "_is_onnx_exporting", False)


def _auto(operation: str, X: Tensor, rule_of_thumb: str, **job: Any) -> str:
    """By what was measured here; by a rule of thumb where a compiler looks on, or on meta."""
    if not tensors.is_plain(X) or 0 in X.shape:
        return rule_of_thumb
    dtype = str(X.dtype).removeprefix("torch.")
    return cheapest_route(f"torch:{X.device.type}", operation, tuple(X.shape), dtype, **job)


def _cheaper_route(X: Tensor, iterations: int) -> str:
    """By multiply-adds: n^2 d / 2 and a mat-vec each, or two products with d x d each."""
    n, d = X.shape[-2:]
    dense = n * n * (d / 2 + iterations)
    return "dense" if dense <= 2 * max(iterations, 1) * n * d * d else "matrix-free"
