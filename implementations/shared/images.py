"""Turn functions on ``(images, ...)`` into kernels for arrays with any leading axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from demopool.contract import ArrayFacts, Kernel
from demopool.errors import InvalidInput

Array = Any
Work = Callable[..., Array]
Place = Callable[[Array], tuple[Any, Array]]
"""Returns the execution context for an array, and the array prepared for it: in the working dtype,
contiguous, on the device."""


def facts(array: Any, index: Callable[[Any], int]) -> ArrayFacts | None:
    """Of an array of another library, by CUDA's array interface; ``index`` finds its GPU."""
    try:
        shown = getattr(array, "__cuda_array_interface__", None)
    except RuntimeError as problem:  # torch's, of a tensor that requires grad
        raise InvalidInput(f"an array cannot be taken from its library: {problem}") from problem
    if shown is None:
        return None
    dtype = np.dtype(shown["typestr"]).name
    return ArrayFacts(tuple(shown["shape"]), dtype, f"cuda:{index(array)}")


def as_images(array: Array, axes: int, reshape: Callable[..., Array]) -> Array:
    """Merge all leading axes into one; ``axes`` is the number of axes of an image."""
    shape = tuple(array.shape)
    leading = len(shape) - axes
    return reshape(array, (prod(shape[:leading]), *shape[leading:]))


def kernels(works: Mapping[tuple[str, str], Work], place: Place) -> dict[tuple[str, str], Kernel]:
    """Kernels by operation and route.

    A ``Work`` function receives the execution context, the images, and the kernel's own arguments.
    """
    return {
        key: _normalizing(work, place) if key[0] == "normalize" else _working(work, place)
        for key, work in works.items()
    }


def _working(work: Work, place: Place) -> Kernel:
    def kernel(X: Array, *others: Any, **options: Any) -> Array:
        on, X = place(X)
        with on.active():
            ready = [_ready(on, other, place) for other in others]
            found = work(on, as_images(X, 2, on.reshape), *ready, **options)
            return on.reshape(found, (*X.shape[:-2], *found.shape[1:]))

    return kernel


def _ready(on: Any, other: Any, place: Place) -> Any:
    """Weights as ``(images, n)``, prepared hashes on the features' device; None stays None."""
    if hasattr(other, "dtype"):
        there, found = place(other)
        on.after(there)
        return as_images(found, 1, on.reshape)
    return other.to(on) if hasattr(other, "to") else other


def _normalizing(work: Work, place: Place) -> Kernel:
    def kernel(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
        on, v = place(v)
        with on.active():
            shape = tuple(v.shape)
            leading = prod(shape[: len(shape) - axes])
            rows = on.reshape(v, (leading, prod(shape[len(shape) - axes :])))
            return on.reshape(work(on, rows, kind=kind, overwrite=overwrite), shape)

    return kernel
