"""The values of features, from the largest magnitude of each row: NaN, zero rows, range."""

from __future__ import annotations

import warnings
from functools import lru_cache
from math import floor, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..problem.vocabulary import Dtype
from .operations import Operations
from .plans import Wanted

SAFE_EXPONENT = 20
"""Features of up to 2**20, and down to 2**-20, need no scaling in any dtype of the work."""

ORDINARY_BITS = 13


@lru_cache(maxsize=256)
def ordinary_range(n: int, d: int) -> tuple[float, float]:
    """Rows whose largest magnitude is in this range, 2^-P to 2^P, are neither zero nor faint, and
    need no scaling in any dtype of the work, whatever is asked for.

    Up to P = 13 none of the checks below finds anything. Weights meet no number beyond
    2^(6 P + 2.5 log2(n d)) or its inverse (docs/explanation/mathematics.md derives it), which must
    fit float32, so P is less for more than 600,000 values of an image.
    """
    most = (126 - 2.5 * log2(n * d)) / 6
    bits = min(ORDINARY_BITS, floor(most))
    return 2.0**-bits, 2.0**bits


def are_ordinary(
    magnitudes: NDArray[Any], low: float, high: float, *, zero_rows: bool = False
) -> bool:
    """As ``Implementation.looks_ordinary``; NaN is in no range."""
    if zero_rows:
        magnitudes = np.where(magnitudes == 0, low, magnitudes)
    # Not the methods of the same meaning, which go through Python.
    return bool(
        np.minimum.reduce(magnitudes, axis=None) >= low
        and np.maximum.reduce(magnitudes, axis=None) <= high
    )


def checked(
    ops: Operations,
    X: Any,
    present: NDArray[np.bool_] | None,
    wanted: Wanted,
) -> tuple[Any, bool]:
    """The features, scaled where that is needed and allowed, and whether all are ordinary but for
    rows of zeros; an error if they cannot be pooled."""
    is_democratic = wanted.descriptor.method == "democratic"
    zero_rows = wanted.zero_rows if is_democratic else "ignore"
    low, high = ordinary_range(*X.shape[-2:])
    if ops.implementation.looks_ordinary(X, low, high, zero_rows=_are_known(zero_rows)):
        return X, True
    magnitudes = ops.implementation.row_magnitudes(X)
    if are_ordinary(magnitudes, low, high):
        return X, True
    is_ordinary = are_ordinary(magnitudes, low, high, zero_rows=True)
    magnitudes = magnitudes.astype(np.float64)
    work = wanted.work(ops.inspect_features(X).dtype)
    if present is not None:  # the zeros of padding are no zero rows
        magnitudes = np.where(present, magnitudes, magnitudes.max(axis=-1, keepdims=True))
    check_finite(magnitudes, zero_rows)
    if wanted.normalize == "none":
        _check_range(magnitudes, X.shape[-2:], work)
    else:
        X = into_range(ops, X, magnitudes, work)
    if is_democratic and wanted.gamma < 1 and wanted.iterations > 0:
        _check_faint(magnitudes, work, wanted.order)
    return X, is_ordinary


def check_finite(magnitudes: NDArray[Any], zero_rows: str) -> None:
    """NaN, infinities and zero rows, from the largest magnitude of each row."""
    bad = ~np.isfinite(magnitudes)
    if bad.any():
        raise InvalidInput(f"X must be finite; there is a NaN or an infinity in {_row(bad)}.")
    zero = magnitudes == 0
    if zero_rows == "error" and zero.any():
        raise InvalidInput(
            f"X has rows of zeros ({_row(zero)}), which have no democratic weight; "
            'zero_rows="ignore" gives them weight 0.'
        )
    if zero_rows == "warn" and zero.any():
        _warn_of_zero_rows(_row(zero))


_warned: set[str] = set()


def _are_known(zero_rows: str) -> bool:
    """Whether nothing is left to say about rows of zeros."""
    return zero_rows == "ignore" or (zero_rows == "warn" and bool(_warned))


def _warn_of_zero_rows(where: str) -> None:
    """Once in a process: networks give such rows, in every batch, and the descriptor is right."""
    if _warned:
        return
    _warned.add(where)
    warnings.warn(
        f"X has rows of zeros ({where}); such rows get weight 0, as if they were not there. "
        'zero_rows="ignore" says that this is known, zero_rows="error" refuses them.',
        RuntimeWarning,
        stacklevel=5,
    )


def _check_range(magnitudes: NDArray[Any], n_and_d: tuple[int, ...], work: str) -> None:
    """Without a final norm the result has the scale of squared features, which must fit."""
    limits = np.finfo(work)
    largest = magnitudes.max(axis=-1)
    too_large = largest > np.sqrt(float(limits.max) / np.prod(n_and_d))
    too_small = (largest > 0) & (largest < np.sqrt(float(limits.tiny)))
    if (too_large | too_small).any():
        extreme = largest[too_large | too_small].flat[0]
        raise InvalidInput(
            f"X has values of size {extreme:.3g}, whose squares do not fit {work}; scale the "
            "features, or use dtype='float64' or another normalize than 'none'."
        )


def into_range(ops: Operations, X: Any, magnitudes: NDArray[Any], work: str) -> Any:
    """Descriptors with a final norm do not depend on the scale of an image's features.

    So features whose products might leave the range of the dtype are multiplied by a power of two,
    which is exact, one for each image. Usually there is nothing to do, and nothing is copied.
    """
    exponents = np.frexp(magnitudes.max(axis=-1))[1]
    if (np.abs(exponents) <= SAFE_EXPONENT).all():
        return X
    # Before the change of dtype where that makes the range smaller, after it where larger.
    if work != "float32" or Dtype(ops.inspect_features(X).dtype).is_half:
        X = ops.implementation.cast(X, work)
    limits = np.finfo(ops.inspect_features(X).dtype)
    factors = np.ldexp(1.0, -np.clip(exponents, limits.minexp, -limits.minexp))
    return ops.implementation.scaled(X, factors[..., np.newaxis, np.newaxis].astype(limits.dtype))


def _check_faint(magnitudes: NDArray[Any], work: str, order: int) -> None:
    """A row's entry of K goes with its norm to the power 2 order, and must not vanish."""
    largest = magnitudes.max(axis=-1, keepdims=True)
    smallest = float(np.finfo(work).tiny) ** (1 / (2 * order)) * 16
    faint = (magnitudes > 0) & (magnitudes < largest * smallest)
    if faint.any():
        raise InvalidInput(
            f"X has rows ({_row(faint)}) so much smaller than the largest of their image that "
            f"their weights do not fit {work}; leave them out, make them zero, or use "
            "dtype='float64'."
        )


def _row(where: NDArray[Any]) -> str:
    index = np.argwhere(where)[0].tolist()
    image = f"image {index[:-1] if len(index) > 2 else index[0]}, " if len(index) > 1 else ""
    more = int(where.sum()) - 1
    others = f" and {more} more row{'s' if more > 1 else ''}" if more else ""
    return f"{image}row {index[-1]}{others}"
