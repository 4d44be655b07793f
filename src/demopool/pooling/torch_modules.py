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

from contextlib import suppress
from importlib import import_module
from typing import Any

from array_api_compat import torch as xp
from torch import Tensor, nn
from torch.fx.experimental import symbolic_shapes

from ..errors import InvalidInput, Unsupported
from ..implementations.torch_any import tensors, weights
from ..implementations.torch_any.implementation import KERNELS
from ..implementations.torch_any.pool import direct_normalized
from ..implementations.torch_any.sketching import PreparedHashes
from ..problem.hashing import VERSION, hashes
from ..problem.parameters import validated
from ..problem.routes import left_to
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

BACKWARD = ("unrolled", "implicit")
EXACT = ("eigh", "gram", "svd")
"""Routes of a matrix power with an exact derivative; those by products only have none."""

USUAL_SIZE = 512
"""What an older torch takes for a size that may change."""


class _Pooling(nn.Module):
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


class _WeightedPooling(_Pooling):
    """Pooling of outer products, whose derivative is taken together with that of the norm."""

    def pool(self, X: Tensor, route: str | None = None) -> Tensor:
        pooled: Tensor = KERNELS["pool", "direct"](X, self._weights(X, route), order=2)
        return pooled

    def _weights(self, X: Tensor, route: str | None) -> Tensor | None:
        """Of the features; None for weights of 1."""
        raise NotImplementedError

    def _normalized(self, X: Tensor, route: str) -> Tensor:
        weights = self._weights(X, route)
        return direct_normalized(X, weights, kind=self.normalize).flatten(1)


class SecondOrderPool(_WeightedPooling):
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


class _Democratic(_Pooling):
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


class GammaDemocraticPool(_WeightedPooling, _Democratic):
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
        if _for_onnx():
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


class MatrixPowerPool(_Pooling):
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
        if _for_onnx():
            raise Unsupported(
                "a matrix power in ONNX",
                "it has no eigen-solver and no SVD, and torch's exporter fails on the other routes",
            )
        return self._without_auto(self.route, X)

    def _job(self) -> dict[str, Any]:
        return {"p": self.p}

    def _shown(self) -> tuple[str, ...]:
        return ("p", "route", "accuracy", "normalize")


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
    """Whether torch.onnx is exporting."""
    return torch.onnx.is_in_onnx_export() or getattr(_exporting, "_is_onnx_exporting", False)


def _size(size: Any) -> int:
    """A size as a plain number, without making a graph depend on it."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return int(size)
    if _hint is not None:
        return int(_hint(size))
    return int(size) if symbolic_shapes.has_static_value(size) else USUAL_SIZE
