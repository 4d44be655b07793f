"""Straightforward versions of the same jobs, the denominators of every ratio.

Written on NumPy and SciPy alone, independently of the product's own code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, linalg
from scipy.linalg.blas import ssymv, ssyrk

Array = NDArray[Any]


def two_symmetric_products(X: Array) -> None:
    """``X X^T`` and ``X^T X``, lower bounds of any dense democratic pooling of one image."""
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


def sketch_by_three_transforms(X: Array, hashes: Any, a: Array) -> Array:
    """Two transforms forward and one back for every feature, then the weighted sum."""
    n, k = len(X), hashes.k
    first, second = np.zeros((n, k), X.dtype), np.zeros((n, k), X.dtype)
    for j in range(X.shape[1]):
        first[:, hashes.h1[j]] += hashes.s1[j] * X[:, j]
        second[:, hashes.h2[j]] += hashes.s2[j] * X[:, j]
    spectrum = fft.rfft(first, workers=2) * fft.rfft(second, workers=2)
    return a @ fft.irfft(spectrum, k, workers=2)


def root_by_eigh(X: Array) -> Array:
    """``A^(1/2)`` through the eigenvectors of the d x d matrix A, computed in float32."""
    values, vectors = linalg.eigh(ssyrk(1.0, X.T, trans=0), lower=False)
    roots = np.sqrt(np.maximum(values, 0.0))
    return (vectors * roots) @ vectors.T


def eigh_alone(A: Array) -> None:
    """Only the decomposition of a given A."""
    linalg.eigh(A)
