"""The exact scale law of the weights, which lets every image be brought into range first."""

from math import inf


def weights_factor(c: float, *, gamma: float, tau: float, iterations: int, order: int) -> float:
    """weights(X) = factor * weights(c X).

    K(cX) = c^4 K(X) for order 2, c^2 for order 1. Follow one Sinkhorn step with a -> f a: the
    logarithm of f relaxes geometrically, so after T steps
    weights(cX) = c^(-order (1 - gamma) (1 - (1 - 2 tau)^T)) weights(X), exactly.
    """
    exponent = order * (1.0 - gamma) * (1.0 - (1.0 - 2.0 * tau) ** iterations)
    try:
        return float(c**exponent)
    except OverflowError:
        return inf
