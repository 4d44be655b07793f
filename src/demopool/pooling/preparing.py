"""Before pooling and after it: padding, the mean of an image's rows, the triangle of a matrix.

The reference has the formulas. Here they run in the library that the features are in, before they
go to a backend and after descriptors come back, so that every backend has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, Unsupported

if TYPE_CHECKING:
    from .operations import Operations

Mask = NDArray[np.bool_]


def namespace(ops: Operations, what: str, array: Any) -> Any:
    """The functions of an array's library, if it has any."""
    if not array_api_compat.is_array_api_obj(array):
        raise Unsupported(
            f"{what} on {ops.name}",
            "its arrays have no arithmetic (cupy:cuda takes them where they are)",
        )
    return array_api_compat.array_namespace(array)


def padded(ops: Operations, X: Any, lengths: Any, layout: str | None) -> tuple[Any, Mask]:
    """Features ``(..., n, d)`` without their padding, and which rows ``(..., n)`` are none."""
    if layout in ("nchw", "nhwc"):
        raise InvalidInput(f"lengths are of rows (B, n, d), not of maps; got layout={layout!r}.")
    *batch, n, _ = ops.inspect_features(X).shape
    if array_api_compat.is_array_api_obj(lengths):
        lengths = array_api_compat.to_device(lengths, "cpu")
    given = np.asarray(lengths)
    if given.shape != tuple(batch) or (given.size and given.dtype.kind not in "iu"):
        raise InvalidInput(
            f"lengths must be a whole number for each image, shape {tuple(batch)}; "
            f"got shape {given.shape} of {given.dtype}."
        )
    if given.size and (given.min() < 1 or given.max() > n):
        raise InvalidInput(
            f"lengths must be from 1 to n = {n}; got {given.min()} to {given.max()}."
        )
    present: Mask = np.arange(n) < given[..., np.newaxis]
    return without_padding(namespace(ops, "lengths", X), X, present), present


def without_padding(xp: Any, X: Any, present: Any) -> Any:
    """Rows of padding as zeros, whatever they held: these add nothing to any descriptor."""
    if present is None:
        return X
    return xp.where(xp.asarray(present[..., None], device=X.device), X, 0.0)


def centered(xp: Any, X: Any, present: Any) -> Any:
    """Minus the mean of an image's rows, without its padding, which must be zeros and stays so.

    The first row is subtracted before, as in the reference: a constant channel becomes zero.
    """
    shifted = without_padding(xp, X - X[..., :1, :], present)
    if present is None:
        return shifted - shifted.mean(axis=-2, keepdims=True)
    count = xp.asarray(present.sum(axis=-1)[..., None, None], dtype=X.dtype, device=X.device)
    return without_padding(xp, shifted - shifted.sum(axis=-2, keepdims=True) / count, present)


def upper(xp: Any, v: Any, d: int) -> Any:
    """The upper triangle of d x d matrices that are given row by row, ``(..., d * d)``.

    Off-diagonal entries are multiplied by the square root of 2, for the ones below the diagonal.
    """
    rows, columns = np.triu_indices(d)
    factors = np.where(rows == columns, 1.0, np.sqrt(2.0))
    taken = xp.take(v, xp.asarray(rows * d + columns, device=v.device), axis=-1)
    return taken * xp.asarray(factors, dtype=v.dtype, device=v.device)
