"""Square roots by matrix products on a GPU; the iterations are those of ``shared/roots.py``.

Numba has no eigen-solver, no SVD and no inverse: routes that need one are not here.
"""

from __future__ import annotations

import numpy as np

from demopool.implementations.numba_cuda import arrays, kernels, pool
from demopool.implementations.numba_cuda.arrays import Array
from demopool.implementations.numba_cuda.launch import Launcher
from demopool.implementations.shared import grids, roots


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
    images, d, _ = A.shape
    dtype = A.dtype
    A, exponents = arrays.in_range(on, A)
    square = _product(on, A, A)
    bound = _spectrum_bound(on, square)
    Y, Z = on.empty(A.shape, dtype), on.empty(A.shape, dtype)
    blocks, shape = grids.per_image(images, d * d)
    numbers = tuple(dtype.type(value) for value in polynomials[0][:2])
    on.run(kernels.start, shape, A, square, bound, Y, Z, numbers, np.int32(blocks))
    for step, (a, b, c) in enumerate(polynomials[1:], start=2):
        if c:
            M = _product(on, Z, Y)
            h = _product(on, M, M, of=(c, b, a), plus=M)
        else:
            h = _product(on, Z, Y, of=(b, 0.0, a))
        Y = _product(on, Y, h)
        if step < len(polynomials):  # nobody reads the last Z
            Z = _product(on, h, Z)
    out, two = on.empty(A.shape, dtype), dtype.type(np.sqrt(2))
    on.run(kernels.finish, shape, Y, bound, exponents, two, out, np.int32(blocks))
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
    images, d, _ = P.shape
    C = on.empty(P.shape, P.dtype)
    side = grids.tiles(d)
    numbers = tuple(P.dtype.type(value) for value in of)
    other = P if plus is None else plus
    shape = grids.products(images * side * side)
    on.run(kernels.product, shape, P, Q, other, C, np.int32(side), numbers)
    return C


def _spectrum_bound(on: Launcher, square: Array) -> Array:
    images, d, _ = square.shape
    dtype = square.dtype
    traces, squares = on.full((images,), dtype), on.full((images,), dtype)
    blocks, shape = grids.chunks(images, d * d)
    on.run(kernels.moments, shape, square, traces, squares, np.int32(blocks))
    bound = on.empty((images,), dtype)
    numbers = (dtype.type(d), dtype.type(np.finfo(dtype).eps))
    on.run(kernels.bounds, grids.flat(images), traces, squares, *numbers, bound)
    return bound
