"""Images brought to about 1 before their products are squared, and weights brought back, on any
array namespace. No value is read, so tracers and devices are fine.

``demopool.implementations.shared.scaling`` has the law; its other functions are for NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .scaling import in_two_parts, weights_power


def magnitude(X: Any, xp: Any) -> Any:
    """The largest ``|x|`` of each image, ``(..., 1, 1)``; 1 for an image of zeros.

    Results that undo the division by it do not depend on it: it has no derivative.
    """
    largest = xp.max(xp.abs(X), axis=(-2, -1), keepdims=True)
    return xp.where(largest > 0, largest, xp.ones_like(largest))


def are_ordinary(magnitudes: Any, xp: Any, low: float, high: float, zero_rows: bool) -> Any:
    """Whether all are from ``low`` to ``high``, or with ``zero_rows`` exactly 0, as an array: who
    reads it waits. NaN is in no range."""
    fine = (magnitudes >= low) & (magnitudes <= high)
    return xp.all(fine | (magnitudes == 0) if zero_rows else fine)


def weights_factor(
    scale: Any, xp: Any, *, gamma: float, tau: float, iterations: int, order: int
) -> Any:
    """The factor in ``weights(X) = factor * weights(X / scale)``, in the shape of ``scale``."""
    power = weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    # The first part has few digits, so it is exact in every dtype.
    first, rest = in_two_parts(power, np.float32)
    return scale**-first * scale**-rest
