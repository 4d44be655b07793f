"""Second-order pooling as PyTorch modules: ``demopool.torch``.

Each takes conv maps ``(B, C, H, W)`` or features ``(B, n, d)`` and gives descriptors ``(B, D)``.
Rows of zeros, which rectified features can have, are ignored. No value is read back to the host, so
``torch.compile(fullgraph=True)`` and ``torch.export`` see one graph; only torch's own eigh and svd,
in matrix powers by these routes, make a GPU wait.
Under autocast they work in float32 and give float32.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .errors import InvalidInput
from .hashing import VERSION, hashes
from .implementations.torch_any import tensors, weights
from .implementations.torch_any.implementation import KERNELS
from .implementations.torch_any.sketching import PreparedHashes
from .parameters import validated

import torch  # isort: skip

BACKWARD = ("unrolled", "implicit")


class _Pooling(nn.Module):
    """From features to the normalised descriptor; subclasses pool."""

    normalize: str

    def __init__(self, normalize: str) -> None:
        super().__init__()
        self.normalize = validated(normalize=normalize)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            pooled = self.pool(tensors.working(_rows(x))).flatten(1)
            options: dict[str, Any] = {"axes": 1, "kind": self.normalize, "overwrite": False}
            result: Tensor = KERNELS["normalize", "direct"](pooled, **options)
        return result

    def pool(self, X: Tensor) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        names = [name for name in self._shown() if name in vars(self)]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _shown(self) -> tuple[str, ...]:
        return ("normalize",)


class SecondOrderPool(_Pooling):
    """Sum of the outer products of all features, ``D = d * d``."""

    def __init__(self, *, normalize: str = "signed-sqrt-l2") -> None:
        super().__init__(normalize)

    def pool(self, X: Tensor) -> Tensor:
        pooled: Tensor = KERNELS["pool", "direct"](X, None, order=2)
        return pooled


class _Democratic(_Pooling):
    def __init__(
        self, gamma: float, tau: float, iterations: int, route: str, backward: str, normalize: str
    ) -> None:
        super().__init__(normalize)
        self.gamma, self.tau, self.iterations = validated(
            gamma=gamma, tau=tau, iterations=iterations
        )
        if route not in ("auto", "dense", "matrix-free"):
            raise InvalidInput(f"route must be auto, dense or matrix-free; got {route!r}.")
        if backward not in BACKWARD:
            raise InvalidInput(f"backward must be one of {', '.join(BACKWARD)}; got {backward!r}.")
        self.route, self.backward = route, backward

    def weights(self, X: Tensor) -> Tensor:
        """Gamma-democratic weights, ``(B, n)``."""
        route = self.route if self.route != "auto" else _cheaper_route(X, self.iterations)
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
    ) -> None:
        super().__init__(gamma, tau, iterations, route, backward, normalize)

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
    ) -> None:
        super().__init__(gamma, tau, iterations, route, backward, normalize)
        if sketch not in ("auto", "fft", "moment"):
            raise InvalidInput(f"sketch must be auto, fft or moment; got {sketch!r}.")
        made = hashes(channels, k, seed)
        self.channels, self.k, self.seed, self.sketch = channels, made.k, made.seed, sketch
        for name in ("h1", "h2", "s1", "s2"):
            self.register_buffer(name, torch.from_numpy(getattr(made, name).copy()))

    def pool(self, X: Tensor) -> Tensor:
        if X.shape[-1] != self.channels:
            raise InvalidInput(f"x must have {self.channels} channels; got {X.shape[-1]}.")
        prepared = PreparedHashes(self.h1, self.h2, self.s1, self.s2, self.k)
        n, d = X.shape[-2:]
        # Multiply-adds of the moment against those of the transforms of every feature.
        cheaper = "moment" if n * d < 60 * n * (self.k / d) + 8 * self.k else "fft"
        route = self.sketch if self.sketch != "auto" else cheaper
        pooled: Tensor = KERNELS["pool_sketch", route](X, prepared, self.weights(X))
        return pooled

    def _shown(self) -> tuple[str, ...]:
        return ("channels", "k", "seed", "sketch", *super()._shown())

    def get_extra_state(self) -> dict[str, Any]:
        """The version of the hashes: a checkpoint says what its sketches were made with."""
        return {"hashes": VERSION}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state.get("hashes") != VERSION:
            raise InvalidInput(
                f"this checkpoint has hashes of version {state.get('hashes')}, these are {VERSION}."
            )


class MatrixPowerPool(_Pooling):
    """``(X^T X)^p``, ``D = d * d``; p = 0.5 is the matrix square root.

    route   ``auto`` (``gram`` for n < d, else ``eigh``), ``eigh``, ``gram``, ``svd``, and for
            p = 0.5 the routes by products only, ``newton-schulz`` and ``polar``
    """

    def __init__(
        self, p: float = 0.5, *, route: str = "auto", normalize: str = "signed-sqrt-l2"
    ) -> None:
        super().__init__(normalize)
        self.p = validated(p=p)
        known = ("auto", "eigh", "gram", "svd", "newton-schulz", "polar")
        if route not in known:
            raise InvalidInput(f"route must be one of {', '.join(known)}; got {route!r}.")
        if route in ("newton-schulz", "polar") and self.p != 0.5:
            raise InvalidInput(f"route {route} computes p = 0.5 only; got p = {p}.")
        self.route = route

    def pool(self, X: Tensor) -> Tensor:
        n, d = X.shape[-2:]
        auto = "gram" if n < d else "eigh"
        route = self.route if self.route != "auto" else auto
        powers: Tensor = KERNELS["power", route](X, p=self.p)
        return powers

    def _shown(self) -> tuple[str, ...]:
        return ("p", "route", "normalize")


def _rows(x: Tensor) -> Tensor:
    """Features ``(B, n, d)``; conv maps become one feature per position."""
    if x.dim() == 4:
        return x.flatten(2).mT
    if x.dim() != 3:
        raise InvalidInput(f"x must be (B, C, H, W) or (B, n, d); got shape {tuple(x.shape)}.")
    return x


def _cheaper_route(X: Tensor, iterations: int) -> str:
    """By multiply-adds: n^2 d / 2 and a mat-vec each, or two products with d x d each."""
    n, d = X.shape[-2:]
    dense = n * n * (d / 2 + iterations)
    return "dense" if dense <= 2 * max(iterations, 1) * n * d * d else "matrix-free"
