"""Second-order pooling as PyTorch modules: ``demopool.torch``.

Each takes conv maps ``(B, C, H, W)`` and gives descriptors ``(B, D)``. Three axes could be one
image ``(C, H, W)`` or features ``(B, n, d)``: a module made with ``layout="nchw"`` or
``layout="nd"`` takes them; without a batch axis the result is one descriptor, ``(D,)``. Rows of
zeros, which rectified features can have, get weight 0, as in ``describe``.

No value is read back to the host, so ``torch.compile(fullgraph=True)`` and ``torch.export`` see one
graph; only torch's own eigh and svd, in matrix powers by these routes, make a GPU wait. Routes left
to ``auto`` are those of ``describe``; a compiled or exported graph keeps what was picked for the
sizes it was made with.

Half precision, given or by autocast, is worked in float32 and gives float32, unless ``dtype`` says
otherwise (``dtype=torch.float16`` inside a network that was made ``half()``).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import InvalidInput, Unsupported
from ..implementations.torch_any import weights
from ..implementations.torch_any.implementation import KERNELS
from ..implementations.torch_any.sketching import PreparedHashes
from ..problem.hashing import VERSION, hashes
from ..problem.parameters import validated
from ..problem.routes import left_to
from .torch_pooling import Pooling, WeightedPooling, exporting_onnx

import torch  # isort: skip

BACKWARD = ("unrolled", "implicit")
EXACT = ("eigh", "gram", "svd")
"""Routes of a matrix power with an exact derivative; those by products only have none."""


class SecondOrderPool(WeightedPooling):
    """Sum of the outer products of all features, ``D = d * d``."""

    _descriptor = "sum"

    def __init__(
        self,
        *,
        normalize: str = "signed-sqrt-l2",
        dtype: torch.dtype | None = None,
        layout: str | None = None,
        center: bool = False,
        vectorize: str = "full",
    ) -> None:
        super().__init__(normalize, dtype, layout, center, vectorize)

    def _weights(self, X: Tensor, route: str | None) -> None:
        return None

    def _route(self, X: Tensor) -> str:
        return "direct"


class _Democratic(Pooling):
    def __init__(
        self,
        gamma: float,
        tau: float,
        iterations: int,
        route: str,
        backward: str,
        *common: Any,
    ) -> None:
        super().__init__(*common)
        self.gamma, self.tau, self.iterations = validated(
            gamma=gamma, tau=tau, iterations=iterations
        )
        if route not in ("auto", "dense", "matrix-free"):
            raise InvalidInput(f"route must be auto, dense or matrix-free; got {route!r}.")
        if backward not in BACKWARD:
            raise InvalidInput(f"backward must be one of {', '.join(BACKWARD)}; got {backward!r}.")
        self.route, self.backward = route, backward

    def weights(self, X: Tensor, route: str | None = None) -> Tensor:
        """Gamma-democratic weights of features ``(B, n, d)``: ``(B, n)``."""
        if X.dim() != 3:
            raise InvalidInput(f"weights are of features (B, n, d); got shape {tuple(X.shape)}.")
        route = route or self._route(X).partition("+")[0]
        settings = {"gamma": self.gamma, "tau": self.tau, "iterations": self.iterations}
        if self.backward == "implicit":
            return weights.implicit(X, **settings, route=route)
        found: Tensor = KERNELS["weights", route](X, **settings, order=2)
        return found

    def _job(self) -> dict[str, Any]:
        return {"gamma": self.gamma, "tau": self.tau, "iterations": self.iterations}

    def _shown(self) -> tuple[str, ...]:
        return ("gamma", "tau", "iterations", "route", "backward", "normalize")


class GammaDemocraticPool(WeightedPooling, _Democratic):
    """Weighted sum of outer products, with weights that equalise contributions, ``D = d * d``.

    gamma       0: every feature contributes equally; 1: sum pooling
    tau         damping of the Sinkhorn iteration
    iterations  Sinkhorn iterations
    route       ``auto``, ``dense`` or ``matrix-free``
    backward    ``unrolled``: the derivative of what is computed; ``implicit``: that of the fixed
                point, from the weights alone, right when the iteration has converged
    """

    _descriptor = "democratic"

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
        center: bool = False,
        vectorize: str = "full",
    ) -> None:
        common = (normalize, dtype, layout, center, vectorize)
        super().__init__(gamma, tau, iterations, route, backward, *common)

    def _weights(self, X: Tensor, route: str | None) -> Tensor:
        return self.weights(X, route)

    def _route(self, X: Tensor) -> str:
        return self._without_auto(self.route, X)


class SketchedDemocraticPool(_Democratic):
    """The same, as a Tensor Sketch of length k, ``D = k``.

    The hashes are buffers: they move with the module and are kept in its ``state_dict``.
    """

    _descriptor = "sketched-democratic"
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
        center: bool = False,
    ) -> None:
        common = (normalize, dtype, layout, center)
        super().__init__(gamma, tau, iterations, route, backward, *common)
        if sketch not in ("auto", "fft", "moment"):
            raise InvalidInput(f"sketch must be auto, fft or moment; got {sketch!r}.")
        if isinstance(channels, bool) or not isinstance(channels, int) or channels < 1:
            raise InvalidInput(f"channels must be a whole number of at least 1; got {channels!r}.")
        made = hashes(channels, k, seed)
        self.channels, self.k, self.seed, self.sketch = channels, made.k, made.seed, sketch
        for name in ("h1", "h2", "s1", "s2"):
            self.register_buffer(name, torch.from_numpy(getattr(made, name).copy()))

    def pool(self, X: Tensor, route: str | None = None) -> Tensor:
        weighting, _, sketching = (route or self._route(X)).partition("+")
        prepared = PreparedHashes(self.h1, self.h2, self.s1, self.s2, self.k)
        a = self.weights(X, weighting)
        pooled: Tensor = KERNELS["pool_sketch", sketching](X, prepared, a)
        return pooled

    def _route(self, X: Tensor) -> str:
        if X.shape[-1] != self.channels:
            raise InvalidInput(f"x must have {self.channels} channels; got {X.shape[-1]}.")
        sketch = self.sketch
        if exporting_onnx():
            if sketch == "fft":
                raise Unsupported(
                    "a sketch by fft in ONNX",
                    "torch's exporter has no such complex products; sketch='moment' is exported",
                )
            sketch = "moment"
        return self._without_auto(f"{self.route}+{sketch}", X)

    def _job(self) -> dict[str, Any]:
        return {"k": self.k, **super()._job()}

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


class MatrixPowerPool(Pooling):
    """``(X^T X)^p``, ``D = d * d``; p = 0.5 is the matrix square root.

    route      ``auto`` (the fastest with an exact derivative), ``eigh``, ``gram``, ``svd``, and for
               p = 0.5 the routes by products only, ``newton-schulz`` and ``polar``
    accuracy   of ``auto``, as for ``describe``
    """

    _descriptor = "power"
    _among = EXACT

    def __init__(
        self,
        p: float = 0.5,
        *,
        route: str = "auto",
        accuracy: str | float = "fast",
        normalize: str = "signed-sqrt-l2",
        dtype: torch.dtype | None = None,
        layout: str | None = None,
        center: bool = False,
        vectorize: str = "full",
    ) -> None:
        super().__init__(normalize, dtype, layout, center, vectorize)
        self.p = validated(p=p)
        known = ("auto", *EXACT, "newton-schulz", "polar")
        if route not in known:
            raise InvalidInput(f"route must be one of {', '.join(known)}; got {route!r}.")
        if route in ("newton-schulz", "polar") and self.p != 0.5:
            raise InvalidInput(f"route {route} computes p = 0.5 only; got p = {p}.")
        self.route, self.accuracy = route, left_to(accuracy, route)

    def pool(self, X: Tensor, route: str | None = None) -> Tensor:
        powers: Tensor = KERNELS["power", route or self._route(X)](X, p=self.p)
        return powers

    def _route(self, X: Tensor) -> str:
        if exporting_onnx():
            raise Unsupported(
                "a matrix power in ONNX",
                "it has no eigen-solver and no SVD, and torch's exporter fails on the other routes",
            )
        return self._without_auto(self.route, X)

    def _job(self) -> dict[str, Any]:
        return {"p": self.p}

    def _shown(self) -> tuple[str, ...]:
        return ("p", "route", "accuracy", "normalize")
