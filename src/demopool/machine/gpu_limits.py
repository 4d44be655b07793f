"""How fast a GPU multiplies and copies at best, by torch and CuPy, whichever can be used.

A candidate of any library must respect the best of them. Kept per machine as the host's limits are.

The products of float32 are without TF32, as in the workers. A kernel may reach the accuracy of
float32 with tensor cores all the same, by three or more products of half precision: so a third of
their speed counts too, if that is more. Features of half precision may be multiplied as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from . import limits as of_host
from .limits import Limits

_PRODUCT = 4096
_SMALL, _LARGE = 1 << 22, 1 << 28
"""Bytes of a copy: what the cache of a GPU holds, and what none holds."""

_REPEATS = 20
"""Of what is shorter than its launch, one after the other."""

_SPLIT = 3
"""Products of half precision, at least, for one of float32."""

Work = Callable[[], Any]


class Library(NamedTuple):
    """What is measured with: work that only starts, and waiting for it.

    product(dtype, size)   of two square matrices
    copy(size)             of so many bytes on the device
    free()                 gives back the memory that the library keeps for later
    """

    product: Callable[[str, int], Work]
    copy: Callable[[int], Work]
    wait: Callable[[], object]
    free: Callable[[], object]


def limits(dtype: str, *, again: bool = False) -> Limits | None:
    """For features of this dtype; None if no library here can be asked."""
    return of_host.kept(f"{dtype}, GPU", lambda: measured(dtype), again=again)


def measured(dtype: str, *, split: bool = True) -> Limits | None:
    """Right now: the best of all libraries that can be used.

    Without ``split``, products of float32 are those of float32 alone: what a kernel that multiplies
    in float32 can be compared with.
    """
    found = []
    for make in _LIBRARIES:
        with suppress(Exception):  # not installed, without CUDA, no GPU, no memory
            library = make()
            try:
                found.append(_measured(dtype, library, split))
            finally:
                library.free()
    return Limits(*map(max, zip(*found, strict=True))) if found else None


def _measured(dtype: str, library: Library, split: bool) -> Limits:
    def seconds(work: Work, repeats: int) -> float:
        def finished() -> None:
            for _ in range(repeats):
                work()
            library.wait()

        finished()  # compiles, and wakes the GPU
        return of_host.best(finished) / repeats

    def flops(dtype: str) -> float:
        return 2.0 * _PRODUCT**3 / seconds(library.product(dtype, _PRODUCT), 1)

    def copied(size: int, repeats: int) -> float:
        return 2.0 * size / seconds(library.copy(size), repeats)  # read and written

    if dtype == "float32" and split:
        products = max(flops(dtype), flops("float16") / _SPLIT)
    elif dtype in ("float32", "float64"):
        products = flops(dtype)
    else:
        products = flops("float16")
    memory = copied(_LARGE, 1)
    return Limits(products, max(copied(_SMALL, _REPEATS), memory), memory)


def by_torch(device: str = "cuda") -> Library:
    """Raises unless torch can use the device."""
    import torch

    torch.empty(1, device=device)
    torch.backends.cuda.matmul.allow_tf32 = False

    def product(dtype: str, size: int) -> Work:
        A = torch.ones((size, size), dtype=getattr(torch, dtype), device=device)
        out = torch.empty_like(A)
        return lambda: torch.mm(A, A, out=out)

    def copy(size: int) -> Work:
        source = torch.ones(size, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    return Library(product, copy, wait, torch.cuda.empty_cache)


def by_cupy() -> Library:
    """Raises unless CuPy can use a GPU."""
    cupy: Any = import_module("cupy")
    cupy.empty(1)

    def product(dtype: str, size: int) -> Work:
        A = cupy.ones((size, size), dtype)
        out = cupy.empty_like(A)
        return lambda: cupy.matmul(A, A, out=out)

    def copy(size: int) -> Work:
        source = cupy.ones(size, cupy.uint8)
        target = cupy.empty_like(source)
        return lambda: cupy.copyto(target, source)

    free = cupy.get_default_memory_pool().free_all_blocks
    return Library(product, copy, cupy.cuda.Device().synchronize, free)


_LIBRARIES: tuple[Callable[[], Library], ...] = (by_torch, by_cupy)
