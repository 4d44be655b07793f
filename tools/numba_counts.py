"""What the kernels of numba:cuda do, as counts: ``python -m tools.numba_counts [--write]``.

Each is launched once, from its PTX, on arrays of a few tiles. Counts are the same on every machine;
a test compares them with the file, so that a kernel that gets worse shows in the history.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from demopool.implementations.numba_cuda import kernels, launch
from demopool.implementations.numba_cuda.launch import Shape

FILE = Path(__file__).parents[1] / "tests" / "numba_cuda_counts.json"


class Sizes(NamedTuple):
    """Images, features, their length, and the length of a sketch."""

    images: int
    n: int
    d: int
    k: int


EVEN = Sizes(2, 128, 64, 512)
"""Whole tiles, so that what is counted is what the kernel does, not what its edges do."""

UNEVEN = Sizes(2, 70, 21, 50)
"""More than one tile, and tiles with tails: for results."""

i32 = np.int32

Launch = tuple[Callable[..., None], Shape, tuple[Any, ...]]


def _random(*shape: int, dtype: Any) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _positive(*shape: int, dtype: Any) -> Any:
    return np.abs(_random(*shape, dtype=dtype)) + dtype(0.1)


def _spread(count: int, *, dtype: Any) -> Any:
    """Positive numbers of all magnitudes, subnormal ones among them, and a zero."""
    found = np.logspace(-42, 37, count).astype(dtype)
    found[count // 2] = 0
    return found


def _zeros(*shape: int, dtype: Any) -> Any:
    return np.zeros(shape, dtype)


def _gram(dtype: Any, z: Sizes = EVEN) -> Launch:
    count = launch.triangle(z.n)
    X, K_, sums = (
        _random(z.images, z.n, z.d, dtype=dtype),
        _zeros(z.images, z.n, z.n, dtype=dtype),
        _zeros(z.images, z.n, dtype=dtype),
    )
    args = (X, K_, sums, i32(count), i32(kernels.SQUARE))
    return kernels.gram, launch.products(z.images * count), args


def _step(dtype: Any, z: Sizes = EVEN) -> Launch:
    blocks, shape = launch.rows(z.images, z.n)
    K_ = _positive(z.images, z.n, z.n, dtype=dtype)
    targets = _spread(z.images * z.n, dtype=dtype).reshape(z.images, z.n) + dtype(1e-44)
    a = _positive(z.images, z.n, dtype=dtype)
    a[:, 2:5] = 0
    out = _zeros(z.images, z.n, dtype=dtype)
    return kernels.step, shape, (K_, targets, a, out, dtype(0.5), i32(blocks))


def _small_image(dtype: Any, z: Sizes = EVEN) -> Launch:
    n = min(z.n, 64)
    K_, targets = _positive(z.images, n, n, dtype=dtype), _positive(z.images, n, dtype=dtype)
    shared = launch.small_image_bytes(n, np.dtype(dtype).itemsize)
    args = (K_, targets, _positive(z.images, n, dtype=dtype), dtype(0.5), i32(4))
    return kernels.small_image, Shape(z.images, (kernels.BLOCK,), shared), args


def _row_forms(dtype: Any, z: Sizes = EVEN) -> Launch:
    down, across = launch.tiles(z.n), launch.tiles(z.d)
    M = _random(z.images, z.d, z.d, dtype=dtype)
    args = (_random(z.images, z.n, z.d, dtype=dtype), M, _zeros(z.images, z.n, dtype=dtype))
    shape = launch.products(z.images * down * across)
    return kernels.row_forms, shape, (*args, i32(down), i32(across))


def _outer(dtype: Any, z: Sizes = EVEN) -> Launch:
    count = launch.triangle(z.n)
    X, a = _random(z.images, z.d, z.n, dtype=dtype), _positive(z.images, z.d, dtype=dtype)
    args = (X, a, _zeros(z.images, z.n, z.n, dtype=dtype), i32(count))
    return kernels.outer, launch.products(z.images * count), args


def _weighted_sum(dtype: Any, z: Sizes = EVEN) -> Launch:
    blocks, shape = launch.columns(z.images, z.d)
    X, a = _random(z.images, z.n, z.d, dtype=dtype), _positive(z.images, z.n, dtype=dtype)
    return kernels.weighted_sum, shape, (X, a, _zeros(z.images, z.d, dtype=dtype), i32(blocks))


def _scatter(dtype: Any, z: Sizes = EVEN) -> Launch:
    rng = np.random.default_rng(0)
    blocks, shape = launch.scatters(z.images, z.d, z.k, np.dtype(dtype).itemsize)
    h1, h2 = (rng.integers(0, z.k, z.d).astype(np.int32) for _ in range(2))
    s1, s2 = (rng.choice([-1.0, 1.0], z.d).astype(np.float32) for _ in range(2))
    M, out = _random(z.images, z.d, z.d, dtype=dtype), _zeros(z.images, z.k, dtype=dtype)
    return kernels.scatter, shape, (M, h1, h2, s1, s2, out, i32(blocks))


def _scatter_far(dtype: Any, z: Sizes = EVEN) -> Launch:
    _, shape, args = _scatter(dtype, z)
    return kernels.scatter_far, shape._replace(shared=0), args


def _product(dtype: Any, z: Sizes = EVEN) -> Launch:
    side = launch.tiles(z.n)
    P, Q = _random(z.images, z.n, z.n, dtype=dtype), _random(z.images, z.n, z.n, dtype=dtype)
    numbers = (dtype(0.5), dtype(0.25), dtype(2.0))
    args = (P, Q, P, _zeros(z.images, z.n, z.n, dtype=dtype), i32(side), numbers)
    return kernels.product, launch.products(z.images * side * side), args


def _largest(dtype: Any, z: Sizes = EVEN) -> Launch:
    V = _random(z.images, 5000, dtype=dtype)
    args = (V, _zeros(z.images, dtype=dtype), i32(2))
    return kernels.largest, Shape(2 * z.images, (kernels.BLOCK,)), args


def _power_sums(dtype: Any, z: Sizes = EVEN) -> Launch:
    V, magnitude = _random(z.images, 5000, dtype=dtype), _positive(z.images, dtype=dtype)
    args = (V, magnitude, _zeros(z.images, dtype=dtype), i32(2), i32(1))
    return kernels.power_sums, Shape(2 * z.images, (kernels.BLOCK,)), args


def _normalized(dtype: Any, z: Sizes = EVEN) -> Launch:
    V, magnitude = _random(z.images, 100 * z.n // 10, dtype=dtype), _positive(z.images, dtype=dtype)
    sums, out = _positive(z.images, dtype=dtype), _zeros(z.images, 100 * z.n // 10, dtype=dtype)
    blocks, shape = launch.per_image(*V.shape)
    return kernels.normalized, shape, (V, magnitude, sums, out, i32(1), i32(blocks))


def _scaled(dtype: Any, z: Sizes = EVEN) -> Launch:
    X, magnitude = _random(z.images, 100 * z.n // 10, dtype=dtype), _positive(z.images, dtype=dtype)
    out, exponents = _zeros(z.images, 100 * z.n // 10, dtype=dtype), np.zeros(z.images, np.int32)
    blocks, shape = launch.per_image(*X.shape)
    return kernels.scaled, shape, (X, magnitude, out, exponents, i32(blocks))


def _first_step(dtype: Any, z: Sizes = EVEN) -> Launch:
    sums = _spread(z.images * z.n, dtype=dtype)
    targets, a = np.zeros_like(sums), np.zeros_like(sums)
    numbers = (dtype(0.5), dtype(0.5), i32(10))
    return kernels.first_step, launch.flat(sums.size), (sums, targets, a, *numbers)


def _squared_norms(dtype: Any, z: Sizes = EVEN) -> Launch:
    blocks, shape = launch.rows(z.images, z.n)
    X, norms = _random(z.images, z.n, z.d, dtype=dtype), _zeros(z.images, z.n, dtype=dtype)
    return kernels.squared_norms, shape, (X, norms, _zeros(z.images, dtype=dtype), i32(blocks))


def _doubtful_rows(dtype: Any, z: Sizes = EVEN) -> Launch:
    blocks, shape = launch.per_image(z.images, z.n)
    sums, norms = (_positive(z.images, z.n + i, dtype=dtype)[:, : z.n].copy() for i in range(2))
    norms[:, 3] = 0
    out = np.full((z.images, z.n), -1, np.int32)
    args = (sums, norms, _positive(z.images, dtype=dtype), dtype(1.0), out, i32(blocks))
    return kernels.doubtful_rows, shape, args


def _exact_rows(dtype: Any, z: Sizes = EVEN) -> Launch:
    X, v = _random(z.images, z.n, z.d, dtype=dtype), _positive(z.images, z.n, dtype=dtype)
    doubtful = (np.arange(z.images * z.n).reshape(z.images, z.n) % 5 < 3).astype(np.int32)
    args = (X, doubtful, v, _zeros(z.images, z.n, dtype=dtype))
    return kernels.exact_rows, Shape(z.images * z.n, (kernels.BLOCK,)), args


def _update(dtype: Any, z: Sizes = EVEN) -> Launch:
    forms, a = _spread(z.images * z.n, dtype=dtype), _positive(z.images * z.n, dtype=dtype)
    targets = _positive(z.images * z.n, dtype=dtype)
    a[3:6] = 0
    return kernels.update, launch.flat(a.size), (forms, targets, a, dtype(0.5))


def _restored(dtype: Any, z: Sizes = EVEN) -> Launch:
    a, exponents = _positive(z.images, z.n, dtype=dtype), np.arange(z.images).astype(np.int32)
    blocks, shape = launch.per_image(*a.shape)
    return kernels.restored, shape, (a, exponents, dtype(0.9), i32(blocks))


def _moments(dtype: Any, z: Sizes = EVEN) -> Launch:
    S = _random(z.images, z.n, z.n, dtype=dtype)
    args = (S, _zeros(z.images, dtype=dtype), _zeros(z.images, dtype=dtype), i32(4))
    return kernels.moments, Shape(4 * z.images, (kernels.BLOCK,)), args


LAUNCHES: dict[str, Callable[..., Launch]] = {
    "gram": _gram,
    "step": _step,
    "small_image": _small_image,
    "row_forms": _row_forms,
    "outer": _outer,
    "weighted_sum": _weighted_sum,
    "scatter": _scatter,
    "scatter_far": _scatter_far,
    "product": _product,
    "largest": _largest,
    "power_sums": _power_sums,
    "normalized": _normalized,
    "scaled": _scaled,
    "first_step": _first_step,
    "squared_norms": _squared_norms,
    "doubtful_rows": _doubtful_rows,
    "exact_rows": _exact_rows,
    "update": _update,
    "restored": _restored,
    "moments": _moments,
}
"""A launch of every kernel, by its name, for a dtype."""


def counted() -> dict[str, dict[str, Any]]:
    """In float32, for sm_80."""
    found = {}
    for name, made in LAUNCHES.items():
        kernel, shape, args = made(np.float32)
        module = launch.compiled(kernel, launch.signature(args), "sm_80")
        counts = module.launch(name, shape.blocks, shape.threads, args, shape.shared)
        found[name] = counts.as_dict()
    return found


@click.command()
@click.option("--write", is_flag=True, help="Replace the file.")
def main(write: bool) -> None:
    """Print the counts, or write them."""
    text = json.dumps(counted(), indent=1, sort_keys=True) + "\n"
    if write:
        FILE.write_text(text)
    else:
        click.echo(text, nl=False)


if __name__ == "__main__":
    main()
