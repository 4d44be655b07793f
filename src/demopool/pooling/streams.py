"""Two streams of features: the sum of x_i y_i^T instead of x_i x_i^T, and its Tensor Sketch.

The reference has the formulas. There is one algorithm, in the library of the arrays: a product, and
for the sketch the entries of that product added into k bins.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, Unsupported
from ..problem.hashing import hashes
from ..problem.vocabulary import Descriptor
from .operations import Operations
from .preparing import namespace

ROUTES = ("auto", "direct", "moment")
_REASONS = {
    "democratic": "their weights are of the contributions of x x^T, and x y^T has others",
    "power": "X^T Y is not symmetric and has no such power",
}


def refuse(descriptor: Descriptor, order: int, vectorize: str, route: str) -> None:
    """What has no meaning for two streams, and why."""
    reason = _REASONS.get(descriptor.method)
    if order == 1:
        reason = "the first order has no products of two features"
    elif vectorize == "upper":
        reason = "X^T Y is not symmetric, its triangle is not all of it"
    elif route not in ROUTES:
        reason = f"there is no route {route}, sketches are made of X^T Y (moment)"
    if reason:
        raise Unsupported(f"{descriptor} of two streams", reason)


def joined(ops: Operations, X: Any, Y: Any) -> Any:
    """Features ``(..., n, d1)`` and ``(..., n, d2)`` as one array ``(..., n, d1 + d2)``."""
    first, second = (ops.inspect_features(X, "X"), ops.inspect_features(Y, "Y"))
    if first.shape[:-1] != second.shape[:-1] or first[1:] != second[1:]:
        raise InvalidInput(
            "Two streams must have the same images and rows, dtype and device; got "
            f"{first.shape} of {first.dtype} and {second.shape} of {second.dtype}."
        )
    xp = namespace(ops, "two streams", X)
    with ops.implementation.arithmetic():
        return xp.concat([X, Y], axis=-1)


def pooled(ops: Operations, both: Any, d1: int, sketch: tuple[int, int] | None) -> Any:
    """``X^T Y``, or its sketch of length k for ``(k, seed)``, of features that were joined."""
    xp = namespace(ops, "two streams", both)
    with ops.implementation.arithmetic():
        with _without_autocast(both):
            M = product(both, d1)
        if sketch is None:
            return M
        k, seed = sketch
        bins, signs = places(d1, M.shape[-1], k, seed)
        bins = xp.asarray(bins, device=M.device)
        return scattered(M, bins, xp.asarray(signs, dtype=M.dtype, device=M.device), k)


def product(both: Any, d1: int) -> Any:
    """``X^T Y`` of features that were joined."""
    return both[..., :d1].mT @ both[..., d1:]


def places(d1: int, d2: int, k: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """The bin and the sign of every entry of ``X^T Y``, row by row."""
    first, second = hashes(d1, k, seed), hashes(d2, k, seed)
    bins = (first.h1[:, np.newaxis] + second.h2) % k
    return bins.ravel(), np.multiply.outer(first.s1, second.s2).ravel()


def scattered(M: Any, bins: Any, signs: Any, k: int) -> Any:
    """The entries of matrices, with their signs, added into k bins."""
    entries = M.reshape((*M.shape[:-2], M.shape[-2] * M.shape[-1])) * signs
    if hasattr(M, "index_add"):  # torch, with a derivative
        return M.new_zeros((*M.shape[:-2], k)).index_add(-1, bins, entries)
    xp = array_api_compat.array_namespace(M)
    if 0 in M.shape:
        return xp.zeros((*M.shape[:-2], k), dtype=M.dtype)
    lines = entries.reshape((-1, entries.shape[-1]))
    sums = xp.stack([xp.bincount(bins, weights=line, minlength=k) for line in lines])
    return xp.astype(sums, M.dtype).reshape((*M.shape[:-2], k))


def _without_autocast(array: Any) -> Any:
    """In the dtype of the features, whatever autocast says."""
    if not array_api_compat.is_torch_array(array):
        return nullcontext()
    return import_module("torch").autocast(array.device.type, enabled=False)
