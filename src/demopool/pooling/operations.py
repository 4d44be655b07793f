"""The operations a user calls: checked here once, for every backend, then handed to its kernels.

Shapes, dtypes, devices and parameters are checked; values are never read, so nothing here makes a
device wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import capabilities, registry
from ..contract.capabilities import Support
from ..contract.interface import ArrayFacts, Implementation
from ..errors import InvalidInput, Unsupported
from ..problem.hashing import Hashes
from ..problem.parameters import validated
from ..problem.routes import Sizes, left_to
from ..problem.vocabulary import DTYPES, Dtype
from ..profiles import auto
from ..reference import Bounds
from . import contributions


@dataclass(frozen=True, eq=False)
class Prepared:
    """Hashes in the form one backend's kernels want."""

    backend: str
    hashes: Hashes
    ready: Any


def backend(name: str) -> Operations:
    """The operations of a backend by name; an absent one raises :class:`BackendUnavailable`."""
    return _operations(validated(backend=name))


@cache
def _operations(name: str) -> Operations:
    return Operations(name, registry.implementation(name))


class Operations:
    """One backend's operations, on that library's own arrays, where the arrays are.

    ``X`` is ``(..., n, d)``; leading axes are independent images, and a batch of 0 is fine.
    dtype out = dtype in, half precision in gives float32 out. A zero row gets weight 0.
    """

    def __init__(self, name: str, implementation: Implementation) -> None:
        self.name = name
        self.implementation = implementation

    def __repr__(self) -> str:
        return f"demopool.backend({self.name!r})"

    # --- the operations ---

    def weights(
        self,
        X: Any,
        *,
        gamma: float = 0.5,
        tau: float = 0.5,
        iterations: int = 10,
        order: int = 2,
        ordinary: bool = False,
        route: str = "auto",
    ) -> Any:
        """Gamma-democratic weights, ``(..., n, d) -> (..., n)``.

        ``ordinary=True`` promises what ``describe`` finds out when it checks features: the largest
        magnitude of every row is 0 or in ``pooling.values.ordinary_range``. Some backends then read
        them less often. If the promise is false, the weights may be wrong.
        """
        gamma, tau, iterations = validated(gamma=gamma, tau=tau, iterations=iterations)
        ordinary = validated(ordinary=ordinary)
        facts = self.inspect_features(X)
        job = {"gamma": gamma, "tau": tau, "iterations": iterations}
        kernel = self._kernel("weights", route, facts, order, **job)
        known = {"ordinary": True} if ordinary and self.implementation.takes_ordinary else {}
        return kernel(X, **job, order=order, **known)

    def pool(
        self,
        X: Any,
        a: Any = None,
        *,
        order: int = 2,
        norm: str = "none",
        route: str = "auto",
    ) -> Any:
        """Weighted pooling, ``(..., n, d), (..., n) -> (..., d, d)``, or ``(..., d)`` for order 1.

        ``a=None`` is sum pooling. Weights must be >= 0; with a negative one the result is NaN or
        not what it should be. ``norm`` is a ``kind`` of :meth:`normalize`, here of each result, a
        matrix or for order 1 a vector: the same as calling that next, in fewer passes over a matrix
        where the backend can. ``route`` says how the products are made; most backends have
        ``direct`` alone.
        """
        norm = validated(norm=norm)
        facts = self.inspect_features(X)
        self._weights_of(a, facts)
        kernel = self._kernel("pool", route, facts, order)
        if norm == "none":
            return kernel(X, a, order=order)
        if order == 2 and self.implementation.pools_normalized:
            return kernel(X, a, order=order, norm=norm)
        return self.normalize(kernel(X, a, order=order), axes=order, kind=norm, overwrite=True)

    def sketch(self, X: Any, hashes: Hashes | Prepared) -> Any:
        """Tensor Sketch of every feature, ``(..., n, d) -> (..., n, k)``."""
        facts = self.inspect_features(X)
        ready, k = self._hashes(hashes, facts)
        return self._kernel("sketch", "fft", facts, k=k)(X, ready)

    def pool_sketch(
        self, X: Any, hashes: Hashes | Prepared, a: Any = None, *, route: str = "auto"
    ) -> Any:
        """Weighted sum of the features' Tensor Sketches, ``(..., n, d), (..., n) -> (..., k)``.

        Weights must be >= 0, as for :meth:`pool`.
        """
        facts = self.inspect_features(X)
        self._weights_of(a, facts)
        ready, k = self._hashes(hashes, facts)
        return self._kernel("pool_sketch", route, facts, k=k)(X, ready, a)

    def power(
        self, X: Any, *, p: float = 0.5, route: str = "auto", accuracy: str | float = "fast"
    ) -> Any:
        """``(X^T X)^p``, ``(..., n, d) -> (..., d, d)``; ``accuracy`` as for ``describe``."""
        p = validated(p=p)
        facts = self.inspect_features(X)
        return self._kernel("power", route, facts, accuracy=accuracy, p=p)(X, p=p)

    def matrix_power(
        self, A: Any, *, p: float = 0.5, route: str = "auto", accuracy: str | float = "fast"
    ) -> Any:
        """``A^p`` of symmetric positive semi-definite matrices, ``(..., d, d) -> (..., d, d)``."""
        p = validated(p=p)
        facts = self.inspect_features(A, "A", "(..., d, d)")
        if facts.shape[-1] != facts.shape[-2]:
            raise InvalidInput(f"A must be square, (..., d, d); got shape {facts.shape}.")
        return self._kernel("matrix_power", route, facts, accuracy=accuracy, p=p)(A, p=p)

    def power_sketch(
        self,
        X: Any,
        hashes: Hashes | Prepared,
        *,
        p: float = 0.5,
        route: str = "auto",
        accuracy: str | float = "fast",
    ) -> Any:
        """Tensor Sketch of ``(X^T X)^p``, ``(..., n, d) -> (..., k)``."""
        p = validated(p=p)
        facts = self.inspect_features(X)
        ready, k = self._hashes(hashes, facts)
        kernel = self._kernel("power_sketch", route, facts, accuracy=accuracy, p=p, k=k)
        return kernel(X, ready, p=p)

    def normalize(
        self,
        v: Any,
        *,
        axes: int = 1,
        kind: str = "signed-sqrt-l2",
        overwrite: bool = False,
    ) -> Any:
        """Signed square root, then l2 over the last ``axes`` axes together; zeros stay zeros.

        ``overwrite=True`` lets the backend reuse the memory of ``v`` for the result.
        """
        axes, kind, overwrite = validated(axes=axes, kind=kind, overwrite=overwrite)
        facts = self._facts(v, "v")
        if len(facts.shape) < axes or 0 in facts.shape[len(facts.shape) - axes :]:
            raise InvalidInput(
                f"v must have at least {axes} axes, the last {axes} of them not empty; "
                f"got shape {facts.shape}."
            )
        self._demand("normalize", "direct", facts)
        kernel = self.implementation.kernels["normalize", "direct"]
        return kernel(v, axes=axes, kind=kind, overwrite=overwrite)

    # --- the paper's analysis, made of these ---

    def contributions(
        self, X: Any, a: Any = None, *, p: float = 1.0, order: int = 2, route: str = "auto"
    ) -> Any:
        """Similarity of every feature to the l2-normalised result, ``(..., n, d) -> (..., n)``.

        Of weighted pooling with ``a`` (None for weights of 1), or of ``(X^T X)^p``, by a route of
        :meth:`power`; :func:`demopool.reference.contributions` has the formulas.
        """
        p, order, route = validated(p=p, order=order, route=route)
        facts = self.inspect_features(X)
        self._weights_of(a, facts)
        return contributions.contributions(self, X, a, facts, p=p, order=order, route=route)

    def bounds(self, X: Any, *, p: float = 1.0, route: str = "auto") -> Bounds:
        """What the spectrum says about the contributions to ``(X^T X)^p``, one number per image.

        :class:`demopool.reference.Bounds` has their names, :func:`demopool.reference.bounds` the
        formulas. Variances grow as the fourth power of the features: float32 holds them for norms
        up to about 1e9.
        """
        p, route = validated(p=p, route=route)
        facts = self.inspect_features(X)
        return contributions.bounds(self, X, facts, p=p, route=route)

    # --- arrays ---

    def asarray(self, array: Any) -> Any:
        """A NumPy array as this backend's, on its device; a view where the library can."""
        try:
            return self.implementation.asarray(_native(array))
        except TypeError:
            given = getattr(array, "dtype", type(array).__name__)
            raise InvalidInput(
                f"array must be of a dtype that {self.name} has; got {given}, convert it first."
            ) from None

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """This backend's array as NumPy."""
        return self.implementation.to_numpy(array)

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        self.implementation.synchronize()

    def wait(self, result: Any) -> None:
        """Wait until this result is there."""
        self.implementation.wait(result)

    def prepare(self, hashes: Hashes) -> Prepared:
        """Hashes moved to the device once, for many calls; operations take them either way."""
        if not isinstance(hashes, Hashes):
            raise InvalidInput(
                f"hashes must come from demopool.hashes; got a {type(hashes).__name__}."
            )
        return Prepared(self.name, hashes, self.implementation.prepare(hashes))

    # --- what there is ---

    def supports(
        self, operation: str, *, route: str = "auto", dtype: Any = None, order: int = 2
    ) -> Support:
        """State and reason from the capability table; true when the state is ``ok``."""
        operation, route = validated(operation=operation, route=route)
        dtype, order = validated(dtype=dtype, order=order)
        return capabilities.supports(self.name, operation, route=route, dtype=dtype, order=order)

    # --- checks ---

    def _facts(self, array: Any, name: str) -> ArrayFacts:
        """Of an array of floating-point numbers; any other is an error."""
        facts = self.implementation.inspect(array)
        if facts is None:
            where = registry.owner(array)
            given = f"an array of {where}" if where else f"a {type(array).__name__}"
            raise InvalidInput(
                f"{name} must be an array of {self.name} (asarray makes one); got {given}."
            )
        if facts.dtype not in DTYPES:
            raise InvalidInput(
                f"{name} must be a dense array of {', '.join(DTYPES[:-1])} or {DTYPES[-1]}; "
                f"got {facts.dtype}, convert it first."
            )
        return facts

    def check_kind(self, X: Any, name: str = "X") -> None:
        """An array that this backend cannot work with is an error; its shape does not matter."""
        self._facts(X, name)

    def inspect_features(self, X: Any, name: str = "X", shape: str = "(..., n, d)") -> ArrayFacts:
        """Shape, dtype and device of features; anything that is not ``(..., n, d)`` is an error."""
        facts = self._facts(X, name)
        if len(facts.shape) < 2:
            raise InvalidInput(f"{name} must have shape {shape}; got shape {facts.shape}.")
        if 0 in facts.shape[-2:]:
            raise InvalidInput(
                f"{name} must have shape {shape} with n >= 1 and d >= 1; got shape {facts.shape}."
            )
        return facts

    def _weights_of(self, a: Any, features: ArrayFacts) -> None:
        if a is None:
            return
        facts = self._facts(a, "a")
        if facts.shape != features.shape[:-1]:
            raise InvalidInput(
                f"a must have one weight per feature, shape {features.shape[:-1]}; "
                f"got shape {facts.shape}."
            )
        if facts.dtype != Dtype(features.dtype).result:
            raise InvalidInput(
                f"a must be {Dtype(features.dtype).result} for {features.dtype} features; "
                f"got {facts.dtype}."
            )
        if facts.device != features.device:
            raise InvalidInput(
                f"a must be on the device of X, {features.device}; got {facts.device}."
            )

    def _hashes(self, hashes: Any, features: ArrayFacts) -> tuple[Any, int]:
        prepared = hashes if isinstance(hashes, Prepared) else self.prepare(hashes)
        if prepared.backend != self.name:
            raise InvalidInput(
                f"hashes must be prepared for {self.name}; these are for {prepared.backend}."
            )
        if prepared.hashes.d != features.shape[-1]:
            raise InvalidInput(
                f"hashes must be for d = {features.shape[-1]}; got hashes for "
                f"d = {prepared.hashes.d}."
            )
        return prepared.ready, prepared.hashes.k

    def _demand(
        self, operation: str, route: str, facts: ArrayFacts, order: int = 2, p: float | None = None
    ) -> None:
        n, d = facts.shape[-2:] if len(facts.shape) > 1 else (None, None)
        supported = capabilities.supports(
            self.name, operation, route=route, dtype=facts.dtype, order=order, sizes=Sizes(n, d, p)
        )
        if not supported:
            what = operation if route == "auto" else f"{operation} by {route}"
            raise Unsupported(f"{what} on {self.name}", supported.reason)

    def _kernel(self, operation: str, route: str, facts: ArrayFacts, *how: Any, **job: Any) -> Any:
        taken = self.route(operation, route, facts, *how, **job)
        return self.implementation.kernels[operation, taken]

    def route(
        self,
        operation: str,
        route: str,
        facts: ArrayFacts,
        order: int = 2,
        accuracy: str | float = "fast",
        **job: Any,
    ) -> str:
        """The route of a kernel that there is; ``auto`` is the one that ``describe`` would take."""
        route, order = validated(route=route, order=order)
        accuracy = left_to(accuracy, route)
        self._demand(operation, route, facts, order, job.get("p"))
        if route != "auto":
            return route
        shape, dtype = facts.shape, facts.dtype
        if operation == "pool":
            (first, *others) = capabilities.usable_routes(
                self.name, operation, dtype=dtype, order=order
            )
            if not others:  # most backends have one way to pool
                return first
        return auto.pick_route(self.name, operation, shape, dtype, accuracy, order=order, **job)


def _native(array: Any) -> Any:
    """A NumPy array that every library can read: in native byte order and aligned, which fields of
    records may not be."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return array
    usual = array.dtype.isnative and array.flags.aligned
    if usual and not any(stride % max(array.itemsize, 1) for stride in array.strides):
        return array
    return array.astype(array.dtype.newbyteorder("="), order="C")
