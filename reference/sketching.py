"""Tensor Sketch: second-order pooling in k numbers instead of d^2 (Section 3.1, Proposition 3).

``hashes`` is any object with integer arrays ``h1, h2`` (d values in 0..k-1), sign arrays
``s1, s2`` (d values of -1 or +1) and the sketch size ``k``; :func:`demopool.hashes` creates one.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .powers import right_singular_vectors


def count_sketch(X: ArrayLike, h: ArrayLike, s: ArrayLike, k: int) -> NDArray[Any]:
    r"""Sum the coordinates into k bins: :math:`cs(x)[h_j] += s_j x_j`.

    Shapes: ``(..., d) -> (..., k)``. Complexity: O(d + k) for each vector.
    """
    X = np.asarray(X, dtype=np.float64)
    h, s = np.asarray(h), np.asarray(s)
    bins = np.zeros((*X.shape[:-1], k))
    for j in range(X.shape[-1]):
        bins[..., h[j]] += s[j] * X[..., j]
    return bins


def sketch(X: ArrayLike, hashes: Any) -> NDArray[Any]:
    r"""Tensor Sketch of each feature: the circular convolution of two count sketches.

    :math:`ts(x) = \mathcal{F}^{-1}(\mathcal{F}(cs_1(x)) \odot \mathcal{F}(cs_2(x)))`, with
    :math:`E\,\langle ts(x), ts(y)\rangle = (x \cdot y)^2` over random hashes and signs
    (Pham and Pagh, KDD 2013). It is a linear function of :math:`x x^T`: the entry (i, j) goes
    with sign :math:`s_{1i} s_{2j}` into bin :math:`(h_{1i} + h_{2j}) \bmod k`.

    Shapes: ``(..., n, d) -> (..., n, k)``. Complexity: O(n (d + k log k)) time, O(n k) memory.
    """
    first = np.fft.fft(count_sketch(X, hashes.h1, hashes.s1, hashes.k))
    second = np.fft.fft(count_sketch(X, hashes.h2, hashes.s2, hashes.k))
    return np.fft.ifft(first * second).real


def pool_sketch(X: ArrayLike, hashes: Any, a: ArrayLike | None = None) -> NDArray[Any]:
    r"""Weighted sum of the features' sketches, :math:`\sum_i a_i\, ts(x_i)`.

    Shapes: ``(..., n, d), (..., n) -> (..., k)``. Complexity: O(n (d + k log k)) time.
    """
    sketches = sketch(X, hashes)
    if a is None:
        return sketches.sum(axis=-2)
    return (np.asarray(a, dtype=np.float64)[..., np.newaxis] * sketches).sum(axis=-2)


def bilinear_sketch(X: ArrayLike, Y: ArrayLike, first: Any, second: Any) -> NDArray[Any]:
    r"""Tensor Sketch of two streams, :math:`\sum_i cs_1(x_i) * cs_2(y_i)`, a circular convolution.

    ``first`` are hashes for X, whose h1 and s1 are used, ``second`` for Y, with h2 and s2 (Gao et
    al., CVPR 2016, for two different streams Fukui et al., EMNLP 2016).

    Shapes: ``(..., n, d1), (..., n, d2) -> (..., k)``. Complexity: O(n (d1 + d2 + k log k)).
    """
    one = np.fft.fft(count_sketch(X, first.h1, first.s1, first.k))
    other = np.fft.fft(count_sketch(Y, second.h2, second.s2, second.k))
    return np.fft.ifft(one * other).real.sum(axis=-2)


def power_sketch(X: ArrayLike, hashes: Any, *, p: float = 0.5) -> NDArray[Any]:
    r"""Tensor Sketch of the matrix power :math:`A^p`, without forming :math:`A^p`.

    :math:`A^p = \sum_i \lambda_i^p v_i v_i^T` lies in the span of the eigenvectors' outer products
    (Section 3.2, after Proposition 6), so its sketch is the weighted sketch of the eigenvectors:
    :math:`\sum_i \lambda_i^p\, ts(v_i)`.

    Shapes: ``(..., n, d) -> (..., k)``.
    Complexity: O(n d min(n, d)) for the vectors, then the sketch of min(n, d) of them.
    """
    singular, vectors = right_singular_vectors(X)
    return pool_sketch(vectors, hashes, singular ** (2 * p))
