"""Kernels of a backend whose work is done on ``(images, ...)``, for arrays of any leading axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from demopool.contract import Kernel

Array = Any
Work = Callable[..., Array]
Place = Callable[[Array], tuple[Any, Array]]
"""Who works on an array, and the array as it wants it: in its working
dtype, contiguous, on the device."""


def as_images(array: Array, axes: int, reshape: Callable[..., Array]) -> Array:
    """All leading axes as one; ``axes`` are those of an image."""
    shape = tuple(array.shape)
    leading = len(shape) - axes
    return reshape(array, (prod(shape[:leading]), *shape[leading:]))


def kernels(works: Mapping[tuple[str, str], Work], place: Place) -> dict[tuple[str, str], Kernel]:
    """By operation and route; a work takes who works, the images, and what the kernel takes."""
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
    """Weights as ``(images, n)``, prepared hashes where the features are; None stays None."""
    if hasattr(other, "dtype"):
        return as_images(place(other)[1], 1, on.reshape)
    return other.to(on) if hasattr(other, "to") else other


def _normalizing(work: Work, place: Place) -> Kernel:
    def kernel(v: Array, *, axes: int, kind: str, overwrite: bool) -> Array:
        on, v = place(v)
        with on.active():
            shape = tuple(v.shape)
            leading = prod(shape[: len(shape) - axes])
            rows = on.reshape(v, (leading, prod(shape[len(shape) - axes :])))
            return on.reshape(work(on, rows, kind=kind), shape)

    return kernel
