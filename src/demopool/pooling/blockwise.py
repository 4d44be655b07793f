"""``describe`` for Dask arrays: the same call, later, for every block of whole images."""

from __future__ import annotations

from math import isnan
from typing import Any

import dask.array as da
import numpy as np

from ..errors import InvalidInput
from . import description

_CORE = {"nchw": "(c,h,w)", "nhwc": "(h,w,c)"}
"""The axes of one image; ``(n,d)`` in any other layout."""


def describe(X: Any, descriptor: str, *, layout: str | None = None, **parameters: Any) -> Any:
    """One descriptor per image of a Dask array, lazily: :func:`demopool.describe` of every block.

    X           a Dask array in blocks of whole images: chunked along the leading axes only
    descriptor  and everything else as for :func:`demopool.describe`

    Returns a Dask array ``(..., D)``, in the blocks of X and of the dtype that ``describe`` gives.
    Wrong parameters are refused at once, wrong values when their block is computed. ``auto``
    decides for each block where it runs; where every bit matters, name ``backend`` and ``route``.
    """
    if not isinstance(X, da.Array):
        raise InvalidInput(
            f"X must be a Dask array; got a {type(X).__name__}. demopool.describe takes arrays, "
            "dask.array.from_array makes a Dask array of one."
        )
    if parameters.get("lengths") is not None:
        raise InvalidInput(
            "lengths are not known to blocks: make the rows of padding zeros, zero_rows='ignore'."
        )
    core = _CORE.get(str(layout), "(n,d)")
    axes = core.count(",") + 1
    if X.ndim < axes:
        raise InvalidInput(f"X must have the axes {core} of an image; got shape {X.shape}.")
    if any(len(chunks) > 1 for chunks in X.chunks[-axes:]):
        wanted = ", ".join(f"{axis}: -1" for axis in range(-axes, 0))
        raise InvalidInput(
            f"X must be in blocks of whole images, but is in chunks of {X.chunksize[-axes:]} of "
            f"their {tuple(X.shape[-axes:])}: X.rechunk({{{wanted}}}) makes such blocks."
        )
    if any(isnan(size) for size in X.shape[-axes:]):
        raise InvalidInput(
            "X must have known sizes of an image: X.compute_chunk_sizes() finds them."
        )
    # Nothing is computed for no images, but everything that was asked for is validated.
    none = np.empty_like(X._meta, shape=(*[0] * max(X.ndim - axes, 1), *X.shape[-axes:]))
    parameters = {"descriptor": descriptor, "layout": layout, **parameters}
    empty = description.describe(none, **parameters)
    return da.apply_gufunc(  # type: ignore[no-untyped-call]
        description.describe,
        f"{core}->(D)",
        X,
        output_sizes={"D": empty.shape[-1]},
        output_dtypes=empty.dtype,
        **parameters,
    )
