"""Scale features into a range where squares of products fit, and undo it in the results."""

from fractions import Fraction
from functools import lru_cache
from math import floor, frexp, inf, ldexp, sqrt
from typing import Any

import numpy as np

from . import blas
from .blas import Array

# If the largest squared norm is in this range, it can be squared again and summed in float32.
_SAFE_LOW, _SAFE_HIGH = 2.0**-8, 2.0**40

# Features that need only such a factor are near 1: their products fit even before scaling.
MILD_LOW, MILD_HIGH = 2.0**-16, 2.0**16


@lru_cache(maxsize=256)
def weights_power(*, gamma: float, tau: float, iterations: int, order: int) -> Fraction:
    """The power in weights(cX) = c^-power weights(X).

    K(cX) = c^4 K(X) for order 2, c^2 K(X) for order 1. If a becomes f a, a Sinkhorn step changes
    the logarithm of f geometrically, so after T steps the power is exactly this.
    """
    return order * (1 - Fraction(gamma)) * (1 - (1 - 2 * Fraction(tau)) ** iterations)


def in_two_parts(power: Fraction, dtype: Any) -> tuple[float, float]:
    """Split a power of at most 4 into a part with few digits, whose product with any exponent of
    the dtype is exact, and the rest. A rounded power would cause an error of many units in the last
    place for features far from 1."""
    return _in_two_parts(power, 10 if dtype == np.float32 else 36)


@lru_cache(maxsize=256)
def _in_two_parts(power: Fraction, digits: int) -> tuple[float, float]:
    first = Fraction(round(power * 2**digits), 2**digits)
    return float(first), float(power - first)


@lru_cache(maxsize=256)
def weights_factor(c: float, *, gamma: float, tau: float, iterations: int, order: int) -> float:
    """The factor in weights(X) = factor * weights(c X), c a power of two.

    The exponent is not rounded: for features far from 1 that alone would be visible.
    """
    power = weights_power(gamma=gamma, tau=tau, iterations=iterations, order=order)
    exponent = power * (frexp(c)[1] - 1)
    whole = floor(exponent)
    try:
        return ldexp(2.0 ** float(exponent - whole), whole)
    except OverflowError:
        return inf


def weights_factors(c: Array | float, dtype: Any, **settings: Any) -> Any:
    """:func:`weights_factor` for one c, or as a column for those of a stack."""
    if isinstance(c, np.ndarray):
        factors = {each: weights_factor(each, **settings) for each in set(c.tolist())}
        return np.array([[factors[each]] for each in c.tolist()], dtype)
    return dtype.type(weights_factor(c, **settings))


def gram_in_range(image: Array, out: Array) -> float:
    """Compute the lower triangle of the Gram matrix of c X and return c, a power of two.

    The first row usually gives the right scale; the diagonal shows whether it did. Products are
    scaled after they are computed, so features far from 1 are scaled first, in a copy.
    """
    c = near_one(blas.norm(image[0]), image.dtype)
    if MILD_LOW < c < MILD_HIGH:
        blas.gram(image, out, scale=c * c)
        if is_safe(out.diagonal()):
            return c
    image, c = into_range(image)
    blas.gram(image, out)
    return c


def is_safe(squared_norms: Array) -> Any:
    """Whether features with these norms need no scaling: no square of a norm is too large to be
    summed, and none underflows to zero. Of a stack ``(images, n)``, for each image."""
    smallest = np.minimum.reduce(squared_norms, axis=-1)
    largest = np.maximum.reduce(squared_norms, axis=-1)
    if np.logical_or.reduce(smallest == 0, axis=None):
        smallest = np.min(squared_norms, axis=-1, where=squared_norms != 0, initial=inf)
    fit = (largest > _SAFE_LOW) & (largest < _SAFE_HIGH)
    return fit & (smallest >= _least(squared_norms.dtype))


def need_no_scaling(squared_norms: Array) -> bool:
    """Whether all are such that any images with them are safe: a quick look at the usual case."""
    low = np.minimum.reduce(squared_norms, axis=None)
    high = np.maximum.reduce(squared_norms, axis=None)
    return bool(low > _SAFE_LOW and high < _SAFE_HIGH)


@lru_cache(maxsize=8)
def _least(dtype: Any) -> float:
    """The smallest number whose square does not underflow."""
    return sqrt(float(np.finfo(dtype).tiny))


def into_range(image: Array) -> tuple[Array, float]:
    """A copy scaled so that its largest value is near 1, and the factor; zeros and NaN are kept."""
    dtype = blas.working_dtype(image)
    c = near_one(max(float(image.max()), -float(image.min())), dtype)
    return image * dtype(c), c


def near_one(size: float, dtype: Any) -> float:
    """The power of two that brings ``size`` to between 1/2 and 1, or near it for subnormals."""
    largest = -int(np.finfo(dtype).minexp)
    return ldexp(1.0, min(-frexp(size)[1], largest)) if 0.0 < size < inf else 1.0
