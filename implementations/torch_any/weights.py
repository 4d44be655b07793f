"""Gamma-democratic weights on tensors; see ``demopool.reference.weights``."""

from __future__ import annotations

from torch import Tensor

from . import tensors
from .autograd import Sinkhorn, weights_and_iterates


def dense(
    X: Tensor, *, gamma: float, tau: float, iterations: int, order: int, ordinary: bool = False
) -> Tensor:
    """Build K once, then one mat-vec per iteration."""
    return _weights(X, gamma, tau, iterations, order, "dense", "unrolled", ordinary)


def matrix_free(
    X: Tensor, *, gamma: float, tau: float, iterations: int, order: int, ordinary: bool = False
) -> Tensor:
    """Never build K: ``(K v)_i = x_i^T (X^T diag(v) X) x_i``, in O(nd + d^2) memory."""
    return _weights(X, gamma, tau, iterations, order, "matrix-free", "unrolled", ordinary)


def implicit(X: Tensor, *, gamma: float, tau: float, iterations: int, route: str) -> Tensor:
    """Second-order weights with the gradient of the fixed point, for any number of iterations."""
    return _weights(X, gamma, tau, iterations, 2, route, "implicit")


def _weights(
    X: Tensor,
    gamma: float,
    tau: float,
    iterations: int,
    order: int,
    route: str,
    backward: str,
    ordinary: bool = False,
) -> Tensor:
    """A derivative finds the range of features again, so its forward pass looks too."""
    images = tensors.as_given_images(X)
    settings = (gamma, tau, iterations, order, route)
    if tensors.is_plain(images) and not tensors.needs_derivative(images):
        # No iterates are kept, and torch does not look up the function's signature.
        a, _ = weights_and_iterates(images, *settings, keep=False, ordinary=ordinary)
    else:
        a, _ = Sinkhorn.apply(images, *settings, backward)
    return a.reshape(X.shape[:-1])
