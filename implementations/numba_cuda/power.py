"""Square roots by matrix products on a GPU; the iterations are those of ``shared/roots.py``.

Numba has no eigen-solver, no SVD and no inverse: routes that need one are not here.
"""

from __future__ import annotations

import numpy as np

from demopool.implementations.shared import grids, roots

from . import arrays, launches, pool
from .launcher import Array, Launcher


def polar(on: Launcher, A: Array) -> Array:
    lower = roots.TO_ROUNDING if A.dtype == np.float64 else roots.TO_CONDITION_1E4
    return _coupled(on, A, roots.POLYNOMIALS[lower])


def newton_schulz(on: Launcher, A: Array) -> Array:
    steps = roots.NEWTON_SCHULZ_STEPS[A.dtype == np.float64]
    return _coupled(on, A, ((1.5, -0.5, 0.0),) * steps)


ROOTS = {"newton-schulz": newton_schulz, "polar": polar}


def of_features(on: Launcher, X: Array, route: str) -> Array:
    return ROOTS[route](on, pool.direct(on, X, None, order=2))


def _coupled(on: Launcher, A: Array, polynomials: roots.Polynomials) -> Array:
    """Y <- Y h(ZY), Z <- h(ZY) Z for h = aI + bM + cM^2, from Y = A / bound, Z = I."""
    A, exponents = arrays.in_range(on, A)
    square = _product(on, A, A)
    bound = _spectrum_bound(on, square)
    Y, Z, out = (on.empty(A.shape, A.dtype) for _ in range(3))
    on.run(launches.start(A, square, bound, Y, Z, polynomials[0][:2]))
    for step, (a, b, c) in enumerate(polynomials[1:], start=2):
        if c:
            M = _product(on, Z, Y)
            h = _product(on, M, M, of=(c, b, a), plus=M)
        else:
            h = _product(on, Z, Y, of=(b, 0.0, a))
        Y = _product(on, Y, h)
        if step < len(polynomials):  # nobody reads the last Z
            Z = _product(on, h, Z)
    on.run(launches.finish(Y, bound, exponents, out))
    return out


def _product(
    on: Launcher,
    P: Array,
    Q: Array,
    *,
    of: tuple[float, float, float] = (1.0, 0.0, 0.0),
    plus: Array | None = None,
) -> Array:
    """``of[0] P Q + of[1] plus + of[2] I``."""
    C = on.empty(P.shape, P.dtype)
    on.run(launches.product(P, Q, P if plus is None else plus, C, of))
    return C


def _spectrum_bound(on: Launcher, square: Array) -> Array:
    images, d, _ = square.shape
    blocks, _ = grids.chunks(images, d * d)
    traces, squares = (on.empty((images, blocks), square.dtype) for _ in range(2))
    bound = on.empty((images,), square.dtype)
    on.run(launches.moments(square, traces, squares))
    on.run(launches.bounds(traces, squares, d, bound))
    return bound
