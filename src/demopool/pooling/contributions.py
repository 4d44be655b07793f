"""Contributions and their bounds (the paper's Section 3.2) from the operations of any backend.

The reference has the formulas; here they run on the backend's own arrays, on their device and in
their dtype. A backend needs nothing but arithmetic for it: the array namespace of its library.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

from ..contract.interface import ArrayFacts
from ..errors import InvalidInput
from ..problem.vocabulary import Dtype
from ..reference import Bounds
from .preparing import namespace

if TYPE_CHECKING:
    from .operations import Operations


def contributions(
    ops: Operations, X: Any, a: Any, facts: ArrayFacts, *, p: float, order: int, route: str
) -> Any:
    """``a_i x_i^T A x_i / |A|`` with A the pooled matrix; first order ``a_i x_i . v / |v|``.

    The direction of A is that of any multiple of X and a: of those near 1, nothing overflows.
    """
    if p != 1.0 and (a is not None or order == 1):
        raise InvalidInput(
            f"p must be 1 with weights or order 1: the contributions to a matrix power have no "
            f"weights and are second order; got {p:g}."
        )
    xp = namespace(ops, "contributions", X)
    X, c = _in_range(xp, ops.implementation.cast(X, Dtype(facts.dtype).result), axes=2)
    if a is not None:
        a, most = _in_range(xp, a, axes=1)
    pooled = ops.pool(X, a, order=order) if p == 1.0 else ops.power(X, p=p, route=route)
    norm = xp.sum(pooled * pooled, axis=tuple(range(-order, 0)), keepdims=True) ** 0.5
    direction = pooled / xp.where(norm > 0, norm, xp.ones_like(norm))
    if order == 1:
        found = xp.matmul(X, direction[..., None])[..., 0] / c[..., 0]
    else:
        found = xp.sum(xp.matmul(X, direction) * X, axis=-1) / c[..., 0] / c[..., 0]
    return found if a is None else found * a / most


def bounds(ops: Operations, X: Any, facts: ArrayFacts, *, p: float, route: str) -> Bounds:
    """The contributions are the backend's. The spectrum is that of X in float64, as in the
    reference: its smallest value is of interest, and one without vectors costs little."""
    xp = namespace(ops, "bounds", X)
    C = contributions(ops, X, None, facts, p=p, order=2, route=route)
    wide = xp.astype(X, xp.float64)
    values = _eigenvalues(xp, wide)
    norm = xp.sum(values ** (2 * p), axis=-1) ** 0.5
    rho = xp.where(norm > 0, norm, xp.ones_like(norm))
    norms = xp.sum(wide * wide, axis=-1)
    last = values[..., -1] if facts.shape[-2] >= facts.shape[-1] else xp.zeros_like(norm)
    maximum = xp.max(norms, axis=-1) * values[..., 0] ** p / rho
    C = xp.astype(C, xp.float64)
    highest, lowest, mean = (reduce(C, axis=-1) for reduce in (xp.max, xp.min, xp.mean))
    found = Bounds(
        total=xp.sum(values ** (1 + p), axis=-1) / rho,
        maximum=maximum,
        minimum=xp.min(norms, axis=-1) * last**p / rho,
        variance=xp.mean((C - mean[..., None]) ** 2, axis=-1),
        bhatia_davis=(highest - mean) * (mean - lowest),
        popoviciu=(highest - lowest) ** 2 / 4,
        radius=maximum**2 / 4,
    )
    dtype = getattr(xp, Dtype(facts.dtype).result)
    return Bounds._make(xp.astype(each, dtype) for each in found)


def _in_range(xp: Any, array: Any, *, axes: int) -> tuple[Any, Any]:
    """Each image times a power of two that brings its largest value to about 1, and that power."""
    last = tuple(range(-axes, 0))
    largest = xp.max(xp.abs(array), axis=last, keepdims=True)
    exponents = xp.ceil(xp.log2(xp.where(largest > 0, largest, xp.ones_like(largest))))
    limit = -log2(xp.finfo(array.dtype).smallest_normal)
    c = 2.0 ** xp.clip(-exponents, -limit, limit)
    return array * c, c


def _eigenvalues(xp: Any, X: Any) -> Any:
    """Of X^T X, the min(n, d) largest, in descending order; rounded zeros as zeros."""
    singular = xp.linalg.svdvals(X)
    cut = max(X.shape[-2:]) * xp.finfo(X.dtype).eps * xp.max(singular, axis=-1, keepdims=True)
    return xp.where(singular > cut, singular, xp.zeros_like(singular)) ** 2
