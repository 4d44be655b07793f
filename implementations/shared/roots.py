"""Square roots of symmetric positive semi-definite matrices, on any array namespace.

Three iterations return Z with Z Z ~= A for A of shape (..., d, d), batched over the leading axes.
The number of steps depends only on the dtype, and no value is read back: there is no
synchronisation on a GPU, and torch.compile and autograd work.

Each step amplifies the components of small eigenvalues until they converge, and with them the
rounding errors in the null space of A.  The iterations stop at the rounding level of A: eigenvalues
above it have converged (but see polar).  For a rank-deficient A the error is of the order
sqrt(c eps lambda_1), which no method avoids, because the root is only Hoelder continuous at zero.
No shift is added to A.

References: Denman and Beavers 1976; Higham, Functions of Matrices, 2008, chapter 6; Byers and Xu
2008 (scaling of Newton's iteration for the polar factor); Amsel et al., The Polar Express, 2025.
"""

import math
from collections.abc import Callable
from typing import Any

Inverse = Callable[[Any], Any]
Product = Callable[[Any, Any], Any]
Polynomials = tuple[tuple[float, float, float], ...]

# Pairs of constants are for float32 and float64, indexed by ``dtype == float64``.
# Newton: (l, steps), where l^2 lambda_1 is the smallest eigenvalue to be resolved.  With l^2 ten
# times smaller, the negative eigenvalues that rounding gives a rank-deficient A disturb the
# inverses.  After these steps the scalar recurrence of _scalings has converged to eps.
NEWTON = ((2e-3, 5), (3e-7, 7))

# Newton-Schulz: after these steps all eigenvalues that the dtype resolves have converged.  Measured
# on a 512 x 512 matrix of rank 196: rounding errors dominate from step 22 (float32) and 46
# (float64) on, and NaN follows.
NEWTON_SCHULZ_STEPS = (17, 38)

# Polar: (a, b, c) per step, by the lower bound of the spectrum relative to its upper bound; derived
# and printed by polynomials.py.  1.6e-5 is condition number 1e4 with an upper bound 6.25 times too
# large, which _spectrum_bound does not exceed for d <= 5000; it is also the rounding level of
# float32 for d > 130.  2.5e-13 is that of float64.
TO_CONDITION_1E4, TO_ROUNDING = 1.6e-5, 2.5e-13
POLYNOMIALS: dict[float, Polynomials] = {
    TO_CONDITION_1E4: (  # 20 products, relative error 1.8e-06
        (5.081701783707884, -4.9616462116469675, 0.0),
        (4.0427926607618385, -2.9505044722104374, 0.5451396006857172),
        (3.593792396260574, -2.6392659627934876, 0.5109001271051629),
        (2.6344609826369485, -1.9239142237917195, 0.43341301180925035),
        (1.9443100400116133, -1.3119591636462775, 0.3711822716007855),
        (1.8777676426457426, -1.2553530827622013, 0.3775849484288236),
    ),
    TO_ROUNDING: (  # 48 products, relative error 2.3e-12
        (5.144697399683671, -5.043324014640691, 0.0),
        (4.214978463537025, -3.067261961326013, 0.5580165334671616),
        (4.214905606810966, -3.0672128245657717, 0.5580111118245222),
        (4.214598550009281, -3.06700573385558, 0.5579882619086156),
        (4.2133049157954785, -3.0661332154807677, 0.5578919905805598),
        (4.207863073590115, -3.0624620976797887, 0.5574869356701161),
        (4.18511659904523, -3.0471038351881536, 0.5557924864227021),
        (4.092525129280436, -2.9843602505042988, 0.5488721764740824),
        (3.7535507968471795, -2.7512473270374938, 0.5232006606851646),
        (2.89628788511957, -2.1286131677461024, 0.45530264381797153),
        (2.037797208642868, -1.4051722554678332, 0.38022012222801177),
        (1.8622007597003376, -1.223088993550747, 0.36091151695791884),
        (1.8751055153533713, -1.2502110425826878, 0.3751055272297621),
    ),
}


def newton(A: Any, *, xp: Any, inverse: Inverse, product: Product | None = None) -> Any:
    """The scaled Denman-Beavers iteration, with the second matrix stored as its inverse W = Z^-1.

    Y <- (Y + Z^-1) / 2, Z <- (Z + Y^-1) / 2 from Y = A, Z = I becomes in terms of W

        V = ((Y + W) / 2)^-1,    Y <- (Y + W) / 2,    W <- 2 W - W V W,

    the arithmetic and the harmonic mean of Y and W.  Both tend to A^(1/2).  The iterates are those
    of Denman and Beavers, but A itself is never inverted, so a singular A needs no shift.  W is
    returned: it is 0 on the null space, where Y only tends to 0.  Cost for k steps: k inverses,
    2k - 2 products (xp.matmul unless given); k = 5 (float32) or 7 (float64).
    """
    product = product or xp.matmul
    first, *scalings = _scalings(*NEWTON[A.dtype == xp.float64])
    A, scale = _rescaled(A, xp)
    bound = _spectrum_bound(A, xp)
    # In the first step W is a multiple of the identity, which saves both products.
    eye = xp.eye(A.shape[-1], dtype=A.dtype, device=getattr(A, "device", None))
    Y = (first / 2) * (A / bound) + eye / (2 * first)
    W = (2 / first) * eye - inverse(Y) / first**2
    for scaling in scalings:
        W = W / scaling
        Y = (scaling / 2) * Y + W / 2
        W = 2 * W - product(product(W, inverse(Y)), W)
    return _finished(W, bound, scale, xp)


def newton_schulz(A: Any, *, xp: Any, product: Product) -> Any:
    """The coupled Newton-Schulz iteration (Higham, chapter 6), products only.

        T = (3 I - Z Y) / 2,    Y <- Y T,    Z <- T Z,    from Y = A / bound, Z = I.

    Y tends to the root, Z to its inverse.  Cost for k steps: 3k - 3 products, so 48 (float32) or
    111 (float64).
    """
    steps = NEWTON_SCHULZ_STEPS[A.dtype == xp.float64]
    return _coupled(A, ((1.5, -0.5, 0.0),) * steps, xp=xp, product=product)


def polar(A: Any, *, xp: Any, product: Product, to_rounding: bool = False) -> Any:
    """The coupled iteration with the best polynomial for every step (The Polar Express).

        M = Z Y,    h = a I + b M + c M^2,    Y <- Y h,    Z <- h Z,    from Y = A / bound, Z = I.

    Cost for k steps: 4k - 4 products, k = 6, so 20 products: relative error 1.8e-6 for condition
    numbers up to 1e4.  Smaller eigenvalues come out too small, with an error of at most
    4e-4 sqrt(bound).  That is rounding in float32 but not in float64, where to_rounding=True takes
    13 steps, 48 products, down to the rounding level (float32 ignores it).
    """
    lower = TO_ROUNDING if to_rounding and A.dtype == xp.float64 else TO_CONDITION_1E4
    return _coupled(A, POLYNOMIALS[lower], xp=xp, product=product)


def _coupled(A: Any, polynomials: Polynomials, *, xp: Any, product: Product) -> Any:
    """Y <- Y h(ZY), Z <- h(ZY) Z for h = aI + bM + cM^2; the first polynomial must have c = 0."""
    A, scale = _rescaled(A, xp)
    square = product(A, A)
    bound = _spectrum_bound(square, xp) ** 0.5  # much tighter than the bound of A itself
    # First step: Z = I and M = Y = A / bound, so the square is the only product.
    eye = xp.eye(A.shape[-1], dtype=A.dtype, device=getattr(A, "device", None))
    a, b, _ = polynomials[0]
    Z = a * eye + (b / bound) * A
    Y = (a / bound) * A + (b / bound**2) * square
    for step, (a, b, c) in enumerate(polynomials[1:], start=2):
        M = product(Z, Y)
        h = a * eye + b * M
        h = h + c * product(M, M) if c != 0 else h
        Y = product(Y, h)
        Z = product(h, Z) if step < len(polynomials) else None  # the last Z is not needed
    return _finished(Y, bound, scale, xp)


def _spectrum_bound(B: Any, xp: Any) -> Any:
    """An upper bound of lambda_1(B), B positive semi-definite, of shape (..., 1, 1), never zero.

    mean + sqrt((d - 1) variance) of the eigenvalues (Samuelson's inequality; for matrices,
    Wolkowicz and Styan 1980), from tr B and ||B||_F.  Never above ||B||_F; exact when all or all
    but the largest eigenvalues are equal.  The worst case is half of them equal and half zero:
    with B = A^2, the root of the bound is then about (d / 4)^(1/4) lambda_1(A).
    """
    B, d = _constant(B), B.shape[-1]
    mean = xp.linalg.trace(B)[..., None, None] / d
    mean_square = xp.sum(B * B, axis=(-2, -1), keepdims=True) / d
    variance = mean_square - mean * mean
    # Add the rounding error of this difference, so that the bound remains an upper bound.
    variance = xp.abs(variance) + 32 * xp.finfo(B.dtype).eps * mean_square
    bound = mean + ((d - 1) * variance) ** 0.5
    return xp.where(bound > 0, bound, 1 + bound)  # 1 if B = 0


def _rescaled(A: Any, xp: Any) -> tuple[Any, Any]:
    """A / max |A| and max |A|: fourth powers of large entries would overflow float32."""
    scale = xp.max(xp.abs(_constant(A)), axis=(-2, -1), keepdims=True)
    return A / xp.where(scale > 0, scale, 1 + scale), scale  # A / 1 if A = 0


def _finished(root: Any, bound: Any, scale: Any, xp: Any) -> Any:
    """Undo the scaling, and remove the asymmetry caused by rounding."""
    return (root + xp.matrix_transpose(root)) * (0.5 * bound**0.5 * scale**0.5)


def _scalings(low: float, steps: int) -> list[float]:
    """Factors s = (low high)^(-1/2) of Byers and Xu for x <- (s x + 1 / (s x)) / 2 on [low, 1]."""
    result, high = [], 1.0
    for _ in range(steps):
        result.append(1 / math.sqrt(low * high))
        low, high = 1.0, (math.sqrt(high / low) + math.sqrt(low / high)) / 2
    return result


def _constant(a: Any) -> Any:
    """The value without gradient: the root does not depend on how A was scaled."""
    return a.detach() if hasattr(a, "detach") else a
