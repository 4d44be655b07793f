"""How far a right answer may be from the reference, derived, never a fixed number.

u is the rounding unit of the working dtype (eps of float32 for half-precision input: the input is
taken exactly, as the reference takes it, and worked in float32) plus that of the reference, which
is itself rounded in float64. Rounding errors of a sum of m terms behave like a random walk, so
they grow as sqrt(m) u; every bound below is one constant, 4, times such growth, for each image.
Errors are relative to the largest entry of the expected result of the same image, except weights,
which are all positive and well determined one by one: theirs are relative to each entry.

weights     In log a an iteration is (1 - tau) log a - tau log(K a) + tau log r. Its derivative is
            J = (1 - tau) I - tau P with P = diag(1 / K a) K diag(a), whose rows sum to 1 and whose
            eigenvalues lie in [0, 1] (K is positive semi-definite, or nearly: order 1). So an
            error never grows, for any tau <= 1, but it may stay: with eigenvalue 1 of P it
            changes its sign in every step at tau = 1, and so do weights and their rounding errors.
            T steps with an error e in log(K a) add up to at most e times the larger of 1 and
            A = tau (1 + |1 - 2 tau| + ... ), T terms: 1/2 at tau = 1/2, T at tau = 1. The rounding
            of the weights themselves is a random walk, sqrt(T).
            K a is a sum of n terms, sqrt(n). Their dot products G = x_i . x_j of d terms are wrong
            by u sqrt(d) D, D^2 = sum_k x_ik^2 x_jk^2. That is u sqrt(d) of K a unless dot
            products cancel; then it is C times that, with C the largest sum_j a_j (|G| D + D^2
            times the error itself) / (K a)_i over rows and iterations (order 1: D / 2, where G is
            not surely negative): 4 u (A (sqrt(n) + C sqrt(d)) + sqrt(T)). C and A suppose that all
            errors point one way; where they do not, this is over 50 times the error seen.
            A route by three products of TF32 leaves out LEFT_OUT of S = sum_k |x_ik x_jk|, in dot
            products that are squared: twice that of |G| S, and its square of S^2, beside D.
pool        a sum of n terms, sqrt(n) + 1. The largest entry of A is on its diagonal, where nothing
            cancels. First order can cancel: times (sum |a x|) / |sum a x|, largest entries of each.
            By three products of TF32: LEFT_OUT more, since no sum of |a x x'| is larger either.
tf32        With u = 2^-24 and x = h + l + r, both parts of 11 bits, l h' + h l' + h h' leaves out
            8 u of |x x'| (docs/reference/ptx.md). Tensor cores cut sums off: 2 u (k + k / 4) for k
            terms from zero, 80 u for the 32 of Triton, where 8 terms of our own kernels have 20 u.
            Additions of these parts are rounding as above. LEFT_OUT, 88 u, is over 50 times the
            error seen here, where the cores' sums are rounded, and once.
sketch      Fourier transforms add log2 k. By Parseval the error's energy is at most u S, with
            S = sum_i a_i |x_i|^2, and spreads over k bins: relative to max(S / sqrt(k), largest
            entry of the sketch).
powers      A^p is Hoelder continuous only: with |E| <= q lambda_1, q = 4 u (sqrt(n) + sqrt(d)),
            |(A + E)^p - A^p| <= (q lambda_1)^p, and where the smallest eigenvalue lambda is above
            q lambda_1 at most p q lambda_1 (lambda - q lambda_1)^(p-1): the steepest slope that A
            or A + E meets. Where A has a null space that a route sets to zero, the terms between
            range and null space have the slope lambda^p / lambda, without the factor p; so has
            gram, which divides lengths by eigenvalues of another product. A route by the SVD of X
            is the same with singular values and 2p. Putting A^p together of min(n, d) vectors is
            a sum like others. Compared entry by entry, so times lambda_1^p / (largest entry of
            A^p). This is over 50 times the error seen wherever the spectrum has a gap at zero that
            rounding happens not to fill, or errors of single eigenvalues do not point the same
            way; the bound cannot know either.
            In float64, routes that see the spectrum must cut it at max(n, d) eps lambda_1, as the
            reference does; what is left has a smallest value, which takes the place of lambda, and
            values below the cut may be lost.
            Routes that see the spectrum know how far they can be off: they promise PROMISED of the
            largest entry, by float64 and singular values where that is what it takes; 4 times that
            and the bound of those is all they are allowed.
            polar stands on polynomials that approximate to a stated error, which is added. And
            each makes some root as small as the smallest, by the difference of larger numbers:
            after the second step one may be x = SMALLEST of its final value, with an error of
            order u, so u / x of itself, and later steps do not undo that. (Steps after it are
            milder: x is four times as large.) A product of two matrices of norm 1 is wrong by
            u in norm, whatever its size: 4 u / x more, seen on one image in thousands.
            Their sketches: the error's Frobenius norm is at most sqrt(min(n, d)) as large and
            spreads over k bins, but no less than the relative error of A^p where few entries make
            a bin; plus the rounding of the sketch itself.
normalize   a square root and a division, and a norm of m terms: 4 u (1 + log2(m) / 8); blocked and
            pairwise sums of positive terms are far better than sqrt(m).
"""

from __future__ import annotations

from math import log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import reference
from ..problem.routes import left_out
from ..problem.vocabulary import Dtype

Array = NDArray[Any]

CONSTANT = 4.0

APPROXIMATION = {("polar", "float32"): 1.8e-6, ("polar", "float64"): 2.3e-12}
"""Relative to lambda_1^p: what a route leaves out by design, in the dtype of its work."""

SMALLEST = {("polar", "float32"): 0.082, ("polar", "float64"): 1.08e-5}
"""How small an iterate of ``polar`` may be after the second step, relative to its limit."""

PROMISED = 0.02
"""Relative to the largest entry: a route that sees the spectrum, and could be off by more, must
work in float64, and then by singular values."""

CUTTING = ("eigh", "gram", "svd")
"""Routes that know the spectrum and set to zero what cannot be told from it."""


def unit(dtype: str) -> float:
    """The rounding unit of the work done on this input dtype, and of the reference."""
    return float(np.finfo(Dtype(dtype).result).eps) + float(np.finfo(np.float64).eps)


def for_weights(
    X: Array,
    dtype: str,
    *,
    gamma: float = 0.5,
    tau: float = 0.5,
    iterations: int = 10,
    order: int = 2,
    route: str = "dense",
) -> Array:
    n, d = X.shape[-2:]
    of_products = CONSTANT * unit(dtype) * sqrt(d)
    more = 2 * left_out(route) / of_products
    condition = _condition_of_weights(X, of_products, more, gamma, tau, iterations, order)
    staying = max(1.0, tau * sum(abs(1 - 2 * tau) ** t for t in range(iterations)))
    of_sums = CONSTANT * unit(dtype) * sqrt(n) + of_products * condition
    return staying * of_sums + CONSTANT * unit(dtype) * sqrt(iterations)


def _condition_of_weights(
    X: Array, rounding: float, more: float, gamma: float, tau: float, iterations: int, order: int
) -> Array:
    """How much more than ``rounding`` the sums K a are wrong by, in the worst row and iteration:
    the way of the weights, and what an error of the dot products does on it. ``more`` of the sum of
    their terms' sizes comes to D."""
    X = X.astype(np.float64)
    present = (X != 0).any(axis=-1)
    G, D = X @ X.swapaxes(-1, -2), np.sqrt(X**2 @ (X**2).swapaxes(-1, -2))
    if more:
        D += more * (np.abs(X) @ np.abs(X).swapaxes(-1, -2))
    if order == 2:
        K, wrong = G**2, np.abs(G) * D + rounding / 4 * D**2
    else:
        K, wrong = np.maximum(G, 0.0), np.where(rounding / 2 * D + G > 0, D / 2, 0.0)
    worst = np.ones(X.shape[:-2])
    a = present.astype(np.float64)
    target = np.where(present, K.sum(axis=-1), 1.0) ** gamma
    for _ in range(max(iterations, 1)):
        Ka = np.where(present, (K @ a[..., np.newaxis])[..., 0], 1.0)
        share = (wrong @ a[..., np.newaxis])[..., 0] / Ka
        worst = np.maximum(worst, share.max(axis=-1))
        a = a / np.where(present, a * Ka / target, 1.0) ** tau
    return worst


def for_pool(
    X: Array,
    a: Array | None,
    expected: Array,
    dtype: str,
    *,
    order: int,
    of_weights: Array | float = 0.0,
    route: str = "direct",
) -> Array:
    """``of_weights``: what the weights, relative to each, are wrong by."""
    bound = CONSTANT * unit(dtype) * (sqrt(X.shape[-2]) + 1) + left_out(route) + of_weights
    if order == 2:
        return np.asarray(bound)
    without_cancellation = reference.pool(np.abs(X), a, order=1).max(axis=-1)
    return bound * _relative(without_cancellation, expected, axes=1)


def for_sketch(X: Array, a: Array | None, expected: Array, k: int, dtype: str) -> Array:
    """Of sketches pooled over n features, ``(..., k)``."""
    n, d = X.shape[-2:]
    energy = (X.astype(np.float64) ** 2).sum(axis=-1)
    energy = (energy if a is None else energy * a).sum(axis=-1)
    return _sketch_rounding(energy, n, d, expected, k, dtype)


def for_power(
    spectrum: Array,
    n: int,
    expected: Array,
    dtype: str,
    *,
    p: float,
    route: str,
    best: str = "svd",
) -> Array:
    """``spectrum``: the eigenvalues of A, largest first; ``best``: the most accurate way there is,
    which for a given A is ``eigh``."""
    entry = np.abs(expected).max(axis=(-2, -1), initial=0.0)
    return _relative(_power_error(spectrum, n, entry, dtype, p, route, best), expected, axes=2)


def for_power_sketch(
    spectrum: Array, n: int, expected: Array, k: int, dtype: str, *, p: float, route: str
) -> Array:
    d = spectrum.shape[-1]
    rank = min(n, d)
    largest = spectrum[..., 0] ** p
    spectral = _power_error(spectrum, n, largest, dtype, p, route)
    relative = np.divide(spectral, largest, out=np.zeros_like(largest), where=largest > 0)
    spread = _relative(spectral * sqrt(rank / k), expected, axes=1)
    trace = (spectrum**p).sum(axis=-1)
    rounding = _sketch_rounding(trace, rank, d, expected, k, dtype)
    return rounding + np.maximum(spread, relative)


def for_contributions(
    X: Array,
    a: Array | None,
    expected: Array,
    dtype: str,
    *,
    p: float,
    order: int,
    route: str = "eigh",
) -> Array:
    """Second order: ``a x^T A^p x / rho`` moves by ``a |x|^2`` times the relative error of A^p.
    With v in place of A, ``a |x|``; the error of v is that of pooling, which can cancel."""
    n, d = X.shape[-2:]
    X = X.astype(np.float64)
    a = np.ones(X.shape[:-1]) if a is None else a.astype(np.float64)
    rounding = CONSTANT * unit(dtype) * (sqrt(n) + sqrt(d) + 1)
    sizes = np.sqrt((X**2).sum(axis=-1))
    if order == 1:
        v = reference.pool(X, a, order=1)
        lengths = np.sqrt((v**2).sum(axis=-1))
        cancelled = np.sqrt((reference.pool(np.abs(X), a, order=1) ** 2).sum(axis=-1))
        ratio = np.divide(cancelled, lengths, out=np.ones_like(lengths), where=lengths > 0)
        return _relative(rounding * (1 + ratio) * (a * sizes).max(axis=-1), expected, axes=1)
    relative = np.full(X.shape[:-2], rounding)
    if p != 1.0:
        spectrum = reference.spectrum(X)
        rho = np.sqrt((spectrum ** (2 * p)).sum(axis=-1))
        entry = np.abs(reference.power(X, p=p)).max(axis=(-2, -1), initial=0.0)
        error = _power_error(spectrum, n, entry, dtype, p, route)
        # Once in A^p and once, at most sqrt(rank) times as large, in rho.
        relative += np.divide(error, rho, out=np.zeros_like(rho), where=rho > 0) * (
            1 + sqrt(min(n, d))
        )
    return _relative(relative * (a * sizes**2).max(axis=-1), expected, axes=1)


def for_normalize(dtype: str, size: int) -> Array:
    return np.asarray(CONSTANT * unit(dtype) * (1 + log2(size) / 8))


def _sketch_rounding(energy: Array, n: int, d: int, expected: Array, k: int, dtype: str) -> Array:
    growth = log2(k + 1) + sqrt(n) + sqrt(d / k)
    spread = _relative(energy / sqrt(k), expected, axes=1)
    return CONSTANT * unit(dtype) * growth * np.maximum(spread, 1.0)


def _power_error(
    spectrum: Array, n: int, entry: Array, dtype: str, p: float, route: str, best: str = "svd"
) -> Array:
    """Bound of the spectral norm of the error of A^p, for each image; ``entry``: its largest."""
    name = route.partition("+")[0]
    bound = _continuity(spectrum, n, dtype, p, name)
    if name not in CUTTING:
        return bound
    rounding = _product_error(n, spectrum.shape[-1], dtype) * spectrum[..., 0] ** p
    promised = CONSTANT * PROMISED * entry + rounding
    return np.minimum(bound, promised + _continuity(spectrum, n, "float64", p, best))


def _product_error(n: int, d: int, dtype: str) -> float:
    return CONSTANT * unit(dtype) * sqrt(min(n, d))


def _continuity(spectrum: Array, n: int, dtype: str, p: float, name: str) -> Array:
    """What rounding errors of size q lambda_1, or q sigma_1, make of A^p in spectral norm."""
    d = spectrum.shape[-1]
    svd, double = name == "svd", Dtype(dtype).result == "float64"
    q = cut = CONSTANT * unit(dtype) * (sqrt(n) + sqrt(d))
    values, exponent = (np.sqrt(spectrum), 2 * p) if svd else (spectrum, p)
    largest = values[..., 0]
    key = name, Dtype(dtype).result
    left_out = 0.0
    if key in APPROXIMATION:
        left_out = APPROXIMATION[key] + CONSTANT * unit(dtype) / SMALLEST[key]
    if exponent >= 1:
        return (exponent * q + left_out) * largest**exponent
    # A thin SVD gives only min(n, d) vectors: the rest of the null space is exact.
    smallest = values[..., min(n, d) - 1 if svd else d - 1]
    slope = 1.0 if (svd and n < d) or name == "gram" else exponent
    if name in CUTTING and double:
        positive = np.where(values > 0, values, np.inf).min(axis=-1)
        smallest = np.where(np.isfinite(positive), positive, 0.0)
        slope, cut = 1.0, max(q, max(n, d) * unit(dtype))
    ratio = np.divide(smallest, largest, out=np.zeros_like(largest), where=largest > 0)
    above = slope * q * np.maximum(ratio - q, q) ** (exponent - 1)
    relative = np.where(ratio > cut, np.minimum(above, cut**exponent), cut**exponent)
    return (relative + _product_error(n, d, dtype) + left_out) * largest**exponent


def _relative(absolute: Array, expected: Array, *, axes: int) -> Array:
    """Relative to the largest entry of each image; 0 where all of it is 0 and must be exact."""
    scale = np.abs(expected).max(axis=tuple(range(-axes, 0)), initial=0.0)
    return np.divide(absolute, scale, out=np.zeros(scale.shape), where=scale > 0)
