"""Derivatives that torch would compute badly, or not at all.

Every function here is differentiable once; a second derivative raises an error. The functions save
X and little else, and recompute what a backward pass needs in the precision of the forward pass,
regardless of autocast.

Hashes are passed one by one, because torch.compile mistakes ``*hashes`` for an older interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from demopool.errors import Unsupported
from demopool.implementations.shared import scaling

from . import sinkhorn, sketching, spectra, tensors, triangles
from .sketching import PreparedHashes


class _DifferentiableOnce(torch.autograd.Function):
    """The identity on a derivative, which raises an error when differentiated by its sources."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derivative: Tensor, *sources: Tensor) -> Tensor:
        return derivative.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise Unsupported("a second derivative", "pooling can be differentiated once")


def once(backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Make a second derivative an error. torch's ``once_differentiable`` checks only the incoming
    gradients: if the first derivative depends on saved tensors (``sum().backward()``), it silently
    gives a wrong second derivative."""

    @wraps(backward)
    @tensors.in_full_precision
    def only_once(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        with torch.no_grad():
            found = backward(ctx, *gradients)
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return found
        used = (*gradients, *ctx.saved_tensors)
        sources = [t for t in used if isinstance(t, Tensor) and t.requires_grad]
        if not sources:
            return found
        return tuple(None if f is None else _DifferentiableOnce.apply(f, *sources) for f in found)

    return only_once


class Sinkhorn(torch.autograd.Function):
    """Weights of images; the second output holds the iterates, for the backward pass.

    Each image is scaled into range first, and its weights are scaled back as in shared/scaling.py.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        X: Tensor, gamma: float, tau: float, iterations: int, order: int, route: str, backward: str
    ) -> tuple[Tensor, Tensor]:
        keep = backward == "unrolled"
        return weights_and_iterates(X, gamma, tau, iterations, order, route, keep=keep)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        X, *ctx.settings = inputs
        ctx.save_for_backward(X, *output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # do not allocate zero gradients for all iterates

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        X, a, way = ctx.saved_tensors
        gamma, tau, iterations, order, route, backward = ctx.settings
        nothing = (None,) * len(ctx.settings)
        if gradient is None:  # the weights were not used
            return None, *nothing
        if iterations == 0 or gamma == 1:
            return torch.zeros_like(X), *nothing
        found = []
        for images, *rest in _together(X, a, way, a * gradient):
            c = tensors.range_factor(images)
            K = sinkhorn.kernel(tensors.scaled(images, c), order, route, differentiable=True)
            weights, steps, w = rest
            if backward == "implicit":
                in_range = weights / _back(c, gamma, tau, iterations, order)
                pairs = sinkhorn.implicit(K, gamma, in_range, w)
            else:
                pairs = sinkhorn.unrolled(K, gamma, tau, steps, w)
            found.append(tensors.scaled(K.pull_back(pairs), c))
        return found[0] if len(found) == 1 else torch.cat(found), *nothing


def weights_and_iterates(
    X: Tensor,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
    route: str,
    *,
    keep: bool,
    ordinary: bool = False,
) -> tuple[Tensor, Tensor]:
    """Of images, which are not scaled if they are ordinary; iterates if they are to be kept."""
    found = []
    for given in tensors.chunks(X, sinkhorn.image_bytes(X)):
        images = tensors.working(given)
        c = None if ordinary else tensors.range_factor(images)
        K = sinkhorn.kernel(images if c is None else tensors.scaled(images, c), order, route)
        a, way = sinkhorn.forward(K, gamma, tau, iterations, keep=keep)
        found.append((a if c is None else a * _back(c, gamma, tau, iterations, order), way))
    if len(found) == 1:
        return found[0]
    return torch.cat([a for a, _ in found]), torch.cat([way for _, way in found])


def _back(c: Tensor, gamma: float, tau: float, iterations: int, order: int) -> Tensor:
    """The factor from the weights of c X to those of X, ``(images, 1)``."""
    # In float64: for features far from 1 the rounding of the exponent alone would be visible.
    first, rest = _exponent(gamma, tau, iterations, order)
    wide = c.squeeze(-1).double()
    return (torch.pow(wide, first) * torch.pow(wide, rest)).to(c.dtype)


@tensors.constant
def _exponent(gamma: float, tau: float, iterations: int, order: int) -> tuple[float, float]:
    power = scaling.weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    return scaling.in_two_parts(power, np.float64)


def _together(X: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split several tensors into the same chunks of images."""
    start = 0
    for images in tensors.chunks(X, sinkhorn.image_bytes(X)):
        stop = start + images.shape[0]
        yield images, *(other[start:stop] for other in others)
        start = stop


class Pool(torch.autograd.Function):
    """``X^T diag(a) X`` of images; ``a`` is None for weights of 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(X: Tensor, a: Tensor | None) -> Tensor:
        return triangles.weighted_moment(X, a)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        X, a = ctx.saved_tensors
        return triangles.through_moment(X, a, gradient)


class PoolNormalized(torch.autograd.Function):
    """The same with the final norm; the second output holds the norms.

    Neither direction has matrices beside the result: it is normalised in place, and the derivative
    by the moment follows from the result.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(X: Tensor, a: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
        return triangles.normalized_moment(X, a, kind)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        X, a, ctx.kind = inputs
        ctx.save_for_backward(X, a, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        X, a, y, norms = ctx.saved_tensors
        return *triangles.through_moment(X, a, gradient, (y, norms, ctx.kind)), None


class PoolSketch(torch.autograd.Function):
    """Weighted sum of Tensor Sketches, which is linear in ``x x^T``, as is its derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        X: Tensor,
        a: Tensor | None,
        route: str,
        h1: Tensor,
        h2: Tensor,
        s1: Tensor,
        s2: Tensor,
        k: int,
    ) -> Tensor:
        compute = sketching.pool_fft if route == "fft" else sketching.pool_moment
        return compute(X, PreparedHashes(h1, h2, s1, s2, k), a)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        X, a, _, *hashes, ctx.k = inputs
        ctx.save_for_backward(X, a, *hashes)

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        X, a, *hashes = ctx.saved_tensors
        by_moment = sketching.spread(gradient, PreparedHashes._make((*hashes, ctx.k)))
        return *triangles.through_moment(X, a, by_moment), *(None,) * 6


class Normalize(torch.autograd.Function):
    """Signed square root and l2 norm; the second output holds the norms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, axes: int, kind: str) -> tuple[Tensor, Tensor]:
        return triangles.normalized(v, axes, kind)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, ctx.axes, ctx.kind = inputs
        ctx.save_for_backward(*output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        y, norms = ctx.saved_tensors
        return triangles.through_norm(y, norms, ctx.axes, ctx.kind, gradient), None, None


class Power(torch.autograd.Function):
    """``A^p = F^T F`` from the factor F of a route, or its Tensor Sketch.

    ``how`` is ``matrix``, ``fft`` or ``moment``; the last two take hashes. With A = V diag(l) V^T
    on its numerical range and S the symmetric derivative by A^p, the derivative by A is
    V (D * (V^T S V)) V^T plus the terms between range and null space, with D the divided
    differences of l^p. Terms within the null space do not affect X, which has no component there.
    Eigenvalues are those of c^2 A, in range; powers of c undo this scaling.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        X: Tensor,
        p: float,
        route: str,
        how: str,
        h1: Any,
        h2: Any,
        s1: Any,
        s2: Any,
        k: Any,
    ) -> tuple[Tensor, ...]:
        c = tensors.range_factor(X)
        values, vectors, kept = spectra.of_features(X * c, p, route)
        factor = vectors * (spectra.powers(values, kept, p / 2).unsqueeze(-2) * c**-p)
        hashes = PreparedHashes(h1, h2, s1, s2, k)
        if how == "fft":
            result = sketching.pool_fft(factor.mT, hashes, None)
        else:
            result = triangles.symmetric_product(factor, factor.mT)
            if how == "moment":
                result = sketching.sketch_of_matrices(result, hashes)
        return result, c, values, vectors, kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        X, ctx.p, _, _, *hashes, ctx.k = inputs
        ctx.save_for_backward(X, *output[1:], *hashes)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        nothing = (None,) * 8
        if gradient is None:  # the result was not used
            return None, *nothing
        X, c, values, V, kept, *hashes = ctx.saved_tensors
        if ctx.k is not None:
            gradient = sketching.spread(gradient, PreparedHashes._make((*hashes, ctx.k)))
        S = (gradient + gradient.mT) / 2
        VS = V.mT @ S
        within, across = _derivatives_of_power(values, kept, ctx.p)
        # ``across * VS`` also covers pairs within the range: subtract it there.
        both = kept.unsqueeze(-1) & kept.unsqueeze(-2)
        by_A = (torch.where(both, within - across, 0.0) * (VS @ V)) @ V.mT + across * VS
        XV = torch.where(kept.unsqueeze(-2), (X * c) @ V, 0.0)
        return 2 * c ** (1 - 2 * ctx.p) * (XV @ by_A), *nothing


class MatrixPower(torch.autograd.Function):
    """``A^p`` of given matrices by their eigenvectors; the derivative by A is that of `Power`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(A: Tensor, p: float) -> tuple[Tensor, ...]:
        values, vectors, kept = spectra.of_matrices(A, p)
        factor = vectors * spectra.powers(values, kept, p / 2).unsqueeze(-2)
        return triangles.symmetric_product(factor, factor.mT), values, vectors, kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, ctx.p = inputs
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None
        values, V, kept = ctx.saved_tensors
        S = (gradient + gradient.mT) / 2
        within, across = _derivatives_of_power(values, kept, ctx.p)
        row, column = kept.unsqueeze(-1), kept.unsqueeze(-2)
        of_pairs = torch.where(row & column, within, torch.where(row, across, across.mT))
        return V @ (of_pairs * (V.mT @ S @ V)) @ V.mT, None


def _derivatives_of_power(values: Tensor, kept: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """For pairs within the range: divided differences of ``l^p``, ``(..., r, r)``. Between range
    and null space: ``l^p / l``, ``(..., r, 1)``, and 0 for values that are not kept."""
    within = _divided_differences(torch.where(kept, values, 1.0), p)
    return within, spectra.powers(values, kept, p - 1).unsqueeze(-1)


def _divided_differences(values: Tensor, p: float) -> Tensor:
    """``(l_i^p - l_j^p) / (l_i - l_j)``, accurate also where the two are equal or nearly so."""
    one, other = values.unsqueeze(-1), values.unsqueeze(-2)
    larger, smaller = torch.maximum(one, other), torch.minimum(one, other)
    ratio = torch.log(smaller / larger)
    safe = torch.where(ratio < 0, ratio, -1.0)
    quotient = torch.where(ratio < 0, torch.expm1(p * safe) / torch.expm1(safe), p)
    return larger ** (p - 1) * quotient


class SketchMatrices(torch.autograd.Function):
    """Tensor Sketch of symmetric matrices; the transpose of scattering is gathering."""

    generate_vmap_rule = True

    @staticmethod
    def forward(M: Tensor, h1: Tensor, h2: Tensor, s1: Tensor, s2: Tensor, k: int) -> Tensor:
        return sketching.sketch_of_matrices(M, PreparedHashes(h1, h2, s1, s2, k))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *hashes, ctx.k = inputs
        ctx.save_for_backward(*hashes)

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hashes = PreparedHashes._make((*ctx.saved_tensors, ctx.k))
        return sketching.spread(gradient, hashes), *(None,) * 5
