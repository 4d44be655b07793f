"""What a computed spectrum can be trusted for, on any array namespace.

A matrix power is only Hoelder continuous: noise of size delta in the eigenvalues of A enters A^p as
delta^p where the spectrum comes down to it, and as delta lambda^(p-1) where it ends at a lambda
above. (The derivative of lambda^p has a factor p; what couples range and null space has not.) So a
spectrum says itself how far the power can be off, and where that is too much it is computed again,
in float64, and then from the singular values of X, whose noise is squared.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

ACCURACY = 0.02
"""How far a power may be off before a better spectrum is asked for, relative to its largest entry.
An upper bound: on real VGG-16 features at p = 1/2, where it is just met, float32 is off by 1e-3."""


class Solver(NamedTuple):
    """How well it tells values from zero, in units of eps times the largest value.

    cut     in float32, what counts as zero. Measured on real VGG-16 features (n = 196 and 784,
            d = 512, p = 0.1, 0.3, 0.5; the true rank is known from float64): rounded zeros come out
            at up to 1 for eigenvalues and 3 for singular values. The usual rule, max(n, d), throws
            away a third of the true spectrum of such features and costs 10 to 30 times the error.
            In float64 their spectrum ends far above that rule, which then catches every rounded
            zero.
    growth  noise by sqrt(n) + sqrt(d). Measured on exactly low-rank features, constant images
            above all, up to 3136 x 128 and 64 x 1024, with OpenBLAS and MKL: eigenvalues reach 0.8
            of it, singular values 7 times.
    """

    cut: float
    growth: float
    exponent: int  # of the values in the eigenvalues of A


EIGENVALUES = Solver(cut=1.0, growth=1.0, exponent=1)
SINGULAR_VALUES = Solver(cut=3.0, growth=8.0, exponent=2)
BY_ROUTE = {"eigh": EIGENVALUES, "gram": EIGENVALUES, "svd": SINGULAR_VALUES}


def cut(solver: Solver, sizes: tuple[int, ...], single: bool) -> float:
    """What counts as zero, in units of eps times the largest value."""
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
    """How far A^p can be off in spectral norm, given the ends of what may be its true spectrum,
    not all zero."""
    exponent = solver.exponent * p
    units = max(cut(solver, sizes, single), solver.growth * (sqrt(sizes[0]) + sqrt(sizes[1])))
    noise = units * eps * largest
    at = largest if exponent >= 1 else maximum(smallest, noise)
    return noise * max(exponent, 1.0) * at ** (exponent - 1)
