"""Laws of the final norm, alone and at once with pooling."""

from __future__ import annotations

import numpy as np

from .. import reference
from ..problem.vocabulary import Dtype
from . import tolerance
from .claims import Distance, Law, Run, distance, excess
from .features import Array, representable


def _unit_length(run: Run, X: Array, dtype: str) -> Distance:
    v = X.reshape(-1)
    length = float(np.sqrt((run(v).astype(np.float64) ** 2).sum()))
    return Distance(
        abs(length - (1.0 if v.any() else 0.0)), float(tolerance.for_normalize(dtype, X.size))
    )


def _scale_free(run: Run, X: Array, dtype: str) -> Distance:
    """Also of what features far from 1 are pooled to, which half precision cannot hold."""
    v = X.reshape(-1)
    far = () if Dtype(dtype).is_half else _far_from_one(v, dtype, 2 * _FAR)
    allowed = tolerance.for_normalize(dtype, X.size)
    claims = [
        distance(run(scaled, kind=kind), run(v, kind=kind), allowed)
        for kind in ("signed-sqrt-l2", "l2")
        for scaled in ((v * 4).astype(X.dtype), *far)
    ]
    return max(claims, key=excess)


_FAR, _FAR_IN_HALF = 40, 10
"""Powers of two: about 1e12, the scale of features that every kernel takes, and 1e3."""


def _far_from_one(X: Array, dtype: str, bits: int) -> tuple[Array, Array]:
    """X with its largest value brought to ``2**bits``, and to the inverse of that."""
    own = int(np.frexp(np.abs(X).max(initial=0.0))[1])
    large, small = (np.ldexp(X, exponent - own) for exponent in (bits, -bits))
    return representable(large, dtype), representable(small, dtype)


NORMALIZED = "pooled and normalised at once"
"""A law only of backends that have ``pools_normalized``."""

# Features enough for several tiles of any kernel, and few of them: tiles are what matters here.
_ROWS, _SIDE = 9, 150


def pooled_and_normalized(run: Run, X: Array, dtype: str) -> Distance:
    """As if it were pooled first; of one image, and of several, which may go another way; and of
    features whose pooled values have squares out of the range of float32."""
    wide = np.resize(X, (_ROWS, _SIDE))
    far = _far_from_one(wide, dtype, _FAR_IN_HALF if Dtype(dtype).is_half else _FAR)
    claims = []
    for given in (
        wide[np.newaxis],
        np.stack([wide, wide[::-1]]),
        far[0][np.newaxis],
        np.stack(far),
    ):
        pooled = run(given)
        for kind in ("signed-sqrt-l2", "l2"):
            found = run(given, norm=kind)
            if (found != found.swapaxes(-1, -2)).any():
                return Distance(float(np.abs(found - found.swapaxes(-1, -2)).max()), 0.0)
            claims += [
                _normalized(one, A, kind, tolerance.for_pool(image, None, A, dtype, order=2), dtype)
                for one, A, image in zip(found, pooled, given, strict=True)
            ]
    return max(claims, key=excess)


def _normalized(found: Array, A: Array, kind: str, pooled: Array, dtype: str) -> Distance:
    """Of a matrix that was ``pooled`` twice, with so much error. Roots are squared again: they make
    much of the rounding of small entries."""
    found, wanted = found.astype(np.float64), reference.normalize(A, axes=2, kind=kind)
    power = 2
    if kind == "signed-sqrt-l2":
        found, wanted, power = found * np.abs(found), wanted * np.abs(wanted), 1
    # The norm of errors that are all as large as may be, over that of A.
    sizes = np.abs(A.astype(np.float64))
    norm = (sizes**power).sum() ** (1 / power)
    errors = A.size ** (1 / power) * sizes.max() / (norm or 1.0)
    allowed = pooled * (1 + errors) + 2 * tolerance.for_normalize(dtype, A.size)
    return distance(found, wanted, allowed)


LAWS_OF_NORMALIZE: dict[str, Law] = {
    "unit length": _unit_length,
    "scale free": _scale_free,
}
