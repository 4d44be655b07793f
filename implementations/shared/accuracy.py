"""How accurate a matrix power from a computed spectrum is, on any array namespace.

A matrix power is only Hoelder continuous. Noise of size delta in the eigenvalues of A enters A^p as
delta^p if the spectrum reaches down to delta, and as delta lambda^(p-1) if it ends at a larger
lambda. (The derivative of lambda^p has a factor p; the coupling of range and null space has not.)
The spectrum itself therefore bounds the error of the power. Where the bound is too large, the
spectrum is computed again in float64, and then from the singular values of X, whose noise is
squared.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

ACCURACY = 0.02
"""Maximum error bound of a power, relative to its largest entry, before a better spectrum is used.
The bound is pessimistic: on real VGG-16 features at p = 1/2, where it is just met, the error of
float32 is 1e-3."""


class Solver(NamedTuple):
    """How well a solver distinguishes values from zero, in units of eps times the largest value.

    cut     values up to this count as zero in float32. Measured on real VGG-16 features (n = 196
            and 784, d = 512, p = 0.1, 0.3, 0.5; the true rank is known from float64): rounded zeros
            reach 1 for eigenvalues and 3 for singular values. The usual rule, max(n, d), discards a
            third of the true spectrum of such features and gives 10 to 30 times the error. In
            float64 their spectrum ends far above that rule, which then removes every rounded zero.
    growth  noise per sqrt(n) + sqrt(d). Measured on exactly low-rank features, especially constant
            images, up to 3136 x 128 and 64 x 1024, with OpenBLAS and MKL: the noise of eigenvalues
            reaches 0.8 times sqrt(n) + sqrt(d), that of singular values 7 times.
    """

    cut: float
    growth: float
    exponent: int  # of the values in the eigenvalues of A


EIGENVALUES = Solver(cut=1.0, growth=1.0, exponent=1)
SINGULAR_VALUES = Solver(cut=3.0, growth=8.0, exponent=2)
BY_ROUTE = {"eigh": EIGENVALUES, "gram": EIGENVALUES, "svd": SINGULAR_VALUES}


def cut(solver: Solver, sizes: tuple[int, ...], single: bool) -> float:
    """The largest value that counts as zero, in units of eps times the largest value."""
    return solver.cut if single else float(max(sizes))


def error(
    solver: Solver,
    smallest: Any,
    largest: Any,
    p: float,
    sizes: tuple[int, ...],
    *,
    eps: float,
    single: bool,
    maximum: Callable[[Any, Any], Any] = max,
) -> Any:
    """A bound on the error of A^p in spectral norm, given the smallest and largest value of a
    possible true spectrum, which must not be all zero."""
    exponent = solver.exponent * p
    units = max(cut(solver, sizes, single), solver.growth * (sqrt(sizes[0]) + sqrt(sizes[1])))
    noise = units * eps * largest
    at = largest if exponent >= 1 else maximum(smallest, noise)
    return noise * max(exponent, 1.0) * at ** (exponent - 1)
