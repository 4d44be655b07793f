"""The operations: arguments, parameters, whether there is a choice of routes, shape of the result.

Each has a signature that a type checker sees, which its kernels have in every backend: arrays by
position, parameters by name. ``a`` is ``(..., n)``, or None for weights of 1; ``hashes`` is what
the backend's ``prepare`` returned. The rest of the package reads these facts from
:data:`OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, Protocol

from ..errors import Unsupported
from .vocabulary import Descriptor


class Weights(Protocol):
    """``(..., n, d) -> (..., n)``"""

    def __call__(
        self, X: Any, /, *, gamma: float, tau: float, iterations: int, order: int
    ) -> Any: ...


class Pool(Protocol):
    """``(..., n, d) -> (..., d, d)``, or ``(..., d)`` for order 1"""

    def __call__(self, X: Any, a: Any, /, *, order: int) -> Any: ...


class Sketch(Protocol):
    """``(..., n, d) -> (..., n, k)``"""

    def __call__(self, X: Any, hashes: Any, /) -> Any: ...


class PoolSketch(Protocol):
    """``(..., n, d) -> (..., k)``"""

    def __call__(self, X: Any, hashes: Any, a: Any, /) -> Any: ...


class Power(Protocol):
    """``(..., n, d) -> (..., d, d)``"""

    def __call__(self, X: Any, /, *, p: float) -> Any: ...


class MatrixPower(Protocol):
    """``(..., d, d) -> (..., d, d)``"""

    def __call__(self, A: Any, /, *, p: float) -> Any: ...


class PowerSketch(Protocol):
    """``(..., n, d) -> (..., k)``"""

    def __call__(self, X: Any, hashes: Any, /, *, p: float) -> Any: ...


class Normalize(Protocol):
    """Any shape, unchanged; ``overwrite=True`` allows a kernel to write its result into ``v``."""

    def __call__(self, v: Any, /, *, axes: int, kind: str, overwrite: bool) -> Any: ...


class Sized(Protocol):
    """What the shape of a result depends on: a case, for one."""

    @property
    def n(self) -> int: ...
    @property
    def d(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def order(self) -> int: ...


@dataclass(frozen=True)
class Operation:
    """``is_routed``: there is a choice of routes, and so an argument ``route``.

    shape   of the result for one image
    """

    name: str
    signature: type
    shape: Callable[[Sized], tuple[int, ...]]
    is_routed: bool = False

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """Names of the array arguments, in order; ``hashes`` is among them."""
        return self._named(Parameter.POSITIONAL_ONLY)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the others."""
        return self._named(Parameter.KEYWORD_ONLY)

    @property
    def has_order(self) -> bool:
        return "order" in self.parameters

    def _named(self, kind: Any) -> tuple[str, ...]:
        arguments = list(signature(self.signature.__call__).parameters.values())
        return tuple(a.name for a in arguments[1:] if a.kind is kind)


def _matrix(case: Sized) -> tuple[int, ...]:
    return (case.d,) * case.order


_TABLE = (
    Operation("weights", Weights, lambda c: (c.n,), is_routed=True),
    Operation("pool", Pool, _matrix, is_routed=True),
    Operation("sketch", Sketch, lambda c: (c.n, c.k)),
    Operation("pool_sketch", PoolSketch, lambda c: (c.k,), is_routed=True),
    Operation("power", Power, _matrix, is_routed=True),
    Operation("matrix_power", MatrixPower, _matrix, is_routed=True),
    Operation("power_sketch", PowerSketch, lambda c: (c.k,), is_routed=True),
    Operation("normalize", Normalize, lambda c: (c.d**c.order,)),
)
OPERATIONS = {operation.name: operation for operation in _TABLE}
"""By name. Iterating gives the names, in the order of the support matrix."""

PARAMETERS = tuple(dict.fromkeys(name for op in _TABLE for name in op.parameters))
"""Of all operations."""


def demand_defined(descriptor: Descriptor, *, order: int, center: bool, vectorize: str) -> None:
    """A combination of parameters that means nothing is an error, whatever the features are."""
    if order == 1 and not all(OPERATIONS[step].has_order for step in descriptor.operations):
        raise Unsupported(f"{descriptor} of order 1", "only sum and democratic have a first order")
    if order == 1 and center:
        raise Unsupported("center=True with order 1", "centred features have the sum zero")
    if vectorize == "upper" and (order == 1 or descriptor.is_sketched):
        raise Unsupported(
            f"vectorize='upper' of {descriptor} of order {order}", "only a matrix has a triangle"
        )
