"""Launches of the products in ``tensor.cu``, with operands as the kernels round them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demopool import ptx

Array = Any
SOURCE = Path(__file__).with_name("tensor.cu")
ARCHITECTURES = tuple(arch for arch in ptx.ARCHITECTURES if arch != "sm_75")
"""Those whose tensor cores have TF32, and that copy asynchronously."""


def to_tf32(x: Array) -> Array:
    """The nearest numbers with 11 bits; those halfway go away from zero."""
    m, e = np.frexp(x.astype(float))
    return np.ldexp(np.sign(m) * np.floor(np.abs(m) * 2**11 + 0.5), e - 11)


def to_bf16(x: Array) -> Array:
    """The nearest numbers with 8 bits; those halfway go to the even one."""
    m, e = np.frexp(x.astype(float))
    return np.ldexp(np.rint(m * 2**8), e - 8)


def to_float(x: Array) -> Array:
    return x.astype(float)


ROUNDED: dict[str, Callable[[Array], Array]] = {
    "product_tf32": to_tf32,
    "product_bf16": to_bf16,
    "product_3xtf32": to_float,
    "product_f16": to_float,
    "product_copied": to_tf32,
}


# m, n, k that end in the first and in the second half of a tile and of a slab, n odd and even.
_ANY = ((37, 11, 21), (12, 6, 34), (1, 1, 1))
CASES = dict.fromkeys(ROUNDED, _ANY) | {"product_copied": ((37, 11, 20), (44, 6, 12), (12, 1, 4))}


def features(kernel: str, case: tuple[int, ...]) -> tuple[Array, Array]:
    """A (m, k) and B, as the kernel takes them: (n, k), or (k, n) in float16."""
    m, n, k = case
    rng = np.random.default_rng(sum(case))
    is_short = kernel == "product_f16"
    A, B = rng.standard_normal((m, k)), rng.standard_normal((k, n) if is_short else (n, k))
    dtype = np.float16 if is_short else np.float32
    return A.astype(dtype), B.astype(dtype)


def launch(kernel: str, A: Array, B: Array) -> tuple[Any, ...]:
    """Grid, block, arguments, the array for the result and what must be there after it."""
    is_short = A.dtype == np.float16
    m, k = A.shape
    n = B.shape[1] if is_short else B.shape[0]
    C = ptx.empty((m, n))
    given = [x.view(np.uint16) if is_short else x for x in (A, B)]
    warps = 2 if kernel == "product_copied" else 1
    grid = (-(-n // 8), -(-m // (16 * warps)))
    wide = [ROUNDED[kernel](x) for x in (A, B)]
    wanted = wide[0] @ (wide[1] if is_short else wide[1].T)
    return grid, 32 * warps, [*given, C, *map(np.int32, (m, n, k))], C, wanted
