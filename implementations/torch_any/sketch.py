"""Tensor Sketch on tensors; sketching.py computes it, autograd.py differentiates it."""

from __future__ import annotations

from torch import Tensor

from . import sketching, tensors
from .autograd import PoolSketch
from .sketching import PreparedHashes


def sketch_fft(X: Tensor, hashes: PreparedHashes) -> Tensor:
    """The sketch of every feature."""
    found = sketching.sketch(tensors.as_images(X), hashes.to(X.device))
    return found.reshape(*X.shape[:-1], hashes.k)


def pool_fft(X: Tensor, hashes: PreparedHashes, a: Tensor | None) -> Tensor:
    """Sum in the frequency domain."""
    return _pooled(X, hashes, a, "fft")


def pool_moment(X: Tensor, hashes: PreparedHashes, a: Tensor | None) -> Tensor:
    """Pool the second moment, then scatter it."""
    return _pooled(X, hashes, a, "moment")


def _pooled(X: Tensor, hashes: PreparedHashes, a: Tensor | None, route: str) -> Tensor:
    images = tensors.as_images(X)
    weights = None if a is None else a.reshape(images.shape[:-1])
    pooled: Tensor = PoolSketch.apply(images, weights, route, *hashes.to(X.device))
    return pooled.reshape(*X.shape[:-2], hashes.k)
