"""Straightforward versions of the same jobs, the denominators of every ratio.

They are independent of the product's own code. ``BASELINES`` holds the first version that one would
write with NumPy and SciPy for every descriptor and operation; the functions at the end are the
stricter baselines of ``make ratios``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, linalg
from scipy.linalg.blas import ssymv, ssyrk

Array = NDArray[Any]


# --- first versions; X is (batch, n, d) ---


def weights(X: Array, case: Any) -> Array:
    K = (X @ np.swapaxes(X, -1, -2)) ** 2
    target = K.sum(axis=-1) ** case.gamma
    a = np.ones(X.shape[:-1], X.dtype)
    for _ in range(case.iterations):
        a = a / (a * (K @ a[..., np.newaxis])[..., 0] / target) ** case.tau
    return a


def pool(X: Array, a: Array) -> Array:
    return np.swapaxes(X * a[..., np.newaxis], -1, -2) @ X


def sum_pool(X: Array) -> Array:
    return np.swapaxes(X, -1, -2) @ X


def sketch(X: Array, hashes: Any) -> Array:
    first, second = (
        _count_sketch(X, hashes.h1, hashes.s1, hashes.k),
        _count_sketch(X, hashes.h2, hashes.s2, hashes.k),
    )
    return fft.irfft(fft.rfft(first) * fft.rfft(second), hashes.k)


def pool_sketch(X: Array, hashes: Any, a: Array | None = None) -> Array:
    """Pool image by image, because the sketches of a whole batch would not fit."""
    a = np.ones(X.shape[:-1], X.dtype) if a is None else a
    return np.stack([b @ sketch(x, hashes) for x, b in zip(X, a, strict=True)])


def matrix_power(A: Array, p: float) -> Array:
    values, vectors = np.linalg.eigh(A)
    powers = np.maximum(values, 0.0) ** p
    return (vectors * powers[..., np.newaxis, :]) @ np.swapaxes(vectors, -1, -2)


def scatter(A: Array, hashes: Any) -> Array:
    """Add every entry of A to the bin that its row and column hash to."""
    bins = (hashes.h1[:, np.newaxis] + hashes.h2) % hashes.k
    signs = hashes.s1[:, np.newaxis] * hashes.s2
    rows = [np.bincount(bins.ravel(), (signs * image).ravel(), hashes.k) for image in A]
    return np.stack(rows).astype(A.dtype)


def normalize(v: Array) -> Array:
    flat = v.reshape(len(v), -1)
    roots = np.sign(flat) * np.sqrt(np.abs(flat))
    return roots / np.linalg.norm(roots, axis=-1, keepdims=True)


def _count_sketch(X: Array, h: Array, s: Array, k: int) -> Array:
    out = np.zeros((*X.shape[:-1], k), X.dtype)
    for j in range(X.shape[-1]):
        out[..., h[j]] += s[j] * X[..., j]
    return out


BASELINES: dict[tuple[str, str], Callable[[dict[str, Any], Any], Array]] = {
    ("descriptor", "sum"): lambda g, c: normalize(sum_pool(g["X"])),
    ("descriptor", "democratic"): lambda g, c: normalize(pool(g["X"], weights(g["X"], c))),
    ("descriptor", "power"): lambda g, c: normalize(matrix_power(sum_pool(g["X"]), c.p)),
    ("descriptor", "sketched-sum"): lambda g, c: normalize(pool_sketch(g["X"], g["hashes"])),
    ("descriptor", "sketched-democratic"): lambda g, c: normalize(
        pool_sketch(g["X"], g["hashes"], weights(g["X"], c))
    ),
    ("descriptor", "sketched-power"): lambda g, c: normalize(
        scatter(matrix_power(sum_pool(g["X"]), c.p), g["hashes"])
    ),
    ("operation", "weights"): lambda g, c: weights(g["X"], c),
    ("operation", "pool"): lambda g, c: pool(g["X"], g["a"]),
    ("operation", "sketch"): lambda g, c: sketch(g["X"], g["hashes"]),
    ("operation", "pool_sketch"): lambda g, c: pool_sketch(g["X"], g["hashes"], g["a"]),
    ("operation", "power"): lambda g, c: matrix_power(sum_pool(g["X"]), c.p),
    ("operation", "matrix_power"): lambda g, c: matrix_power(g["A"], c.p),
    ("operation", "power_sketch"): lambda g, c: scatter(
        matrix_power(sum_pool(g["X"]), c.p), g["hashes"]
    ),
    ("operation", "normalize"): lambda g, c: normalize(g["v"]),
}
"""By (kind, subject), a function of the subject's arrays (and hashes) by name, and of the case."""


def elements_held(subject: Any, case: Any) -> float:
    """Approximate number of elements that a baseline holds at once; it streams nothing."""
    held = float(case.batch * case.n * case.d)
    if subject.name.endswith(("weights", "democratic")):
        held += 2 * case.batch * case.n**2
    if subject.name in ("sketch", "pool_sketch", "sketched-sum", "sketched-democratic"):
        images = case.batch if subject.name == "sketch" else 1
        held += 6 * images * case.n * case.k
    if "power" in subject.name or subject.name in ("sum", "democratic", "pool", "normalize"):
        held += 5 * case.batch * case.d**2
    return held


# --- stricter baselines of `make ratios` ---


def two_symmetric_products(X: Array) -> None:
    """``X X^T`` and ``X^T X``, a lower bound for any dense democratic pooling of one image."""
    n, d = X.shape
    ssyrk(1.0, X.T, trans=1, c=np.empty((n, n), X.dtype, order="F"), overwrite_c=1)
    ssyrk(1.0, X.T, trans=0, c=np.empty((d, d), X.dtype, order="F"), overwrite_c=1)


def dense_democratic(X: Array, gamma: float = 0.5, tau: float = 0.5, iterations: int = 10) -> Array:
    """A good dense version: symmetric product, square, symmetric mat-vecs, symmetric product."""
    n = len(X)
    K = ssyrk(1.0, X.T, trans=1, c=np.zeros((n, n), X.dtype, order="F"), overwrite_c=1)
    np.multiply(K, K, out=K)
    a = np.ones(n, X.dtype)
    Ka = ssymv(1.0, K, a)
    target = Ka**gamma
    for iteration in range(iterations):
        if iteration:
            Ka = ssymv(1.0, K, a)
        a = a / (a * Ka / target) ** tau
    A = ssyrk(1.0, (X * np.sqrt(a)[:, np.newaxis]).T, trans=0)
    return np.triu(A) + np.triu(A, 1).T


def plain_democratic(X: Array, iterations: int = 10) -> Array:
    """The descriptor of one image with its final norm, as first written, for gamma = tau = 1/2."""
    K = (X @ X.T) ** 2
    target = K.sum(axis=-1) ** 0.5
    a = np.ones(len(X), X.dtype)
    for _ in range(iterations):
        a = a / (a * (K @ a) / target) ** 0.5
    v = ((X * a[:, np.newaxis]).T @ X).ravel()
    v = np.sign(v) * np.sqrt(np.abs(v))
    return v / np.linalg.norm(v)


def sketch_by_three_transforms(X: Array, hashes: Any, a: Array) -> Array:
    """Two forward transforms and one inverse per feature, then the weighted sum."""
    first = _count_sketch(X, hashes.h1, hashes.s1, hashes.k)
    second = _count_sketch(X, hashes.h2, hashes.s2, hashes.k)
    spectrum = fft.rfft(first, workers=2) * fft.rfft(second, workers=2)
    return a @ fft.irfft(spectrum, hashes.k, workers=2)


def eigh_alone(A: Array) -> None:
    """Only the decomposition of a given A."""
    linalg.eigh(A)


def torch_democratic(X: Any, iterations: int = 10) -> Any:
    """The first version that one would write in torch; X is a tensor (batch, n, d)."""
    K = (X @ X.mT) ** 2
    target = K.sum(-1) ** 0.5
    a = X.new_ones(X.shape[:-1])
    for _ in range(iterations):
        a = a / (a * (K @ a[..., None])[..., 0] / target) ** 0.5
    return (X * a[..., None]).mT @ X


def torch_democratic_of_maps(maps: Any, norm: bool = False, iterations: int = 10) -> Any:
    """As the paper's authors formulate it: conv maps (batch, channels, height, width), batched
    products of whole matrices, and a derivative through all iterations by autograd, in which the
    target is a constant."""
    import torch

    X = maps.flatten(2)
    K = torch.bmm(X.mT, X).square()
    target = K.sum(dim=2, keepdim=True).sqrt().detach()
    a = torch.ones_like(target)
    for _ in range(iterations):
        a = a / (a * torch.bmm(K, a) / target).sqrt()
    A = torch.bmm(X * a.mT, X.mT).flatten(1)
    if not norm:
        return A
    # The root has no derivative at 0, and real features give zeros.
    roots = A.sign() * (A.abs() + torch.finfo(A.dtype).tiny).sqrt()
    return torch.nn.functional.normalize(roots)


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "democratic": lambda X, c: torch_democratic_of_maps(X.mT.unsqueeze(-1), True, c.iterations),
}
"""Descriptors of a tensor ``(batch, n, d)`` whose derivative torch takes by itself."""


def torch_sketch(X: Any, hashes: Any, a: Any) -> Any:
    """Three transforms per feature, in torch; ``hashes`` holds tensors."""
    import torch

    first = X.new_zeros((*X.shape[:-1], hashes.k)).index_add_(-1, hashes.h1, X * hashes.s1)
    second = X.new_zeros((*X.shape[:-1], hashes.k)).index_add_(-1, hashes.h2, X * hashes.s2)
    spectrum = torch.fft.rfft(first) * torch.fft.rfft(second)
    return (a[..., None] * torch.fft.irfft(spectrum, hashes.k)).sum(-2)
