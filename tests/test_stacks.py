"""Small images are pooled as stacks: each as if it were alone, whatever its neighbours are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.implementations.numpy_cpu import stacks

Array = Any

# Small, at the limits of small, and larger; a stack holds fewer than 70 of all but the first.
SIZES = [(3, 2), (49, 64), (64, 64), (65, 64), (95, 8), (96, 8), (100, 16), (8, 300)]


def _images(n: int, d: int, dtype: str) -> Array:
    """Ordinary ones, and among them some that are not."""
    X = np.random.default_rng(0).standard_normal((70, n, d))
    X[1] *= 2.0**-14
    X[2] *= 2.0**14
    X[3, n // 2] = 0
    X[4] = 0
    return X.astype(dtype)


@pytest.mark.parametrize("backend", ["numpy:cpu", "numba:cpu"])
@pytest.mark.parametrize("size", SIZES)
def test_a_stack_has_the_bits_of_its_images(backend: str, size: tuple[int, int]) -> None:
    for dtype in ("float16", "float32", "float64"):
        X = _images(*size, dtype)
        options: dict[str, Any] = {"backend": backend, "route": "dense", "zero_rows": "ignore"}
        stack = dp.describe(X, "democratic", **options)
        alone = [dp.describe(x, "democratic", **options) for x in X]
        np.testing.assert_array_equal(stack, np.stack(alone))
        few = dp.describe(X[:6].reshape(3, 2, *size), "democratic", layout="nd", **options)
        np.testing.assert_array_equal(few.reshape(6, -1), stack[:6])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_weights_and_sums_of_stacks_are_right(size: tuple[int, int], order: int) -> None:
    X = _images(*size, "float64")
    ops = dp.backend("numpy:cpu")
    found = ops.weights(X, order=order, route="dense")
    wanted = np.stack([reference.weights(x, order=order) for x in X])
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    np.testing.assert_allclose(ops.pool(X), X.swapaxes(1, 2) @ X, atol=1e-12 * np.abs(X).max() ** 2)


@pytest.mark.parametrize("size", SIZES)
def test_conv_maps_are_stacked_as_well(size: tuple[int, int]) -> None:
    X = np.ascontiguousarray(_images(*size, "float32").swapaxes(1, 2))
    maps = X.reshape(70, size[1], 1, size[0])
    options: dict[str, Any] = {"layout": "nchw", "backend": "numpy:cpu", "zero_rows": "ignore"}
    stack = dp.describe(maps, "democratic", **options)
    alone = [dp.describe(one, "democratic", **options) for one in maps]
    np.testing.assert_array_equal(stack, np.stack(alone))


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2"])
def test_a_norm_out_of_range_changes_no_other(kind: str) -> None:
    v = np.random.default_rng(0).standard_normal((9, 50)).astype(np.float32)
    v[2] = 0
    v[3] *= np.float32(2.0**-100)
    v[5] *= np.float32(2.0**120)
    ops = dp.backend("numpy:cpu")
    stack = ops.normalize(v, kind=kind)
    np.testing.assert_array_equal(stack, np.stack([ops.normalize(one, kind=kind) for one in v]))
    lengths = np.linalg.norm(stack.astype(np.float64), axis=-1)
    np.testing.assert_allclose(np.delete(lengths, 2), 1, rtol=1e-6)
    assert not stack[2].any()


def test_small_is_what_blas_multiplies_in_one_thread() -> None:
    assert stacks.are_small(64, 64)
    assert not stacks.are_small(65, 64)
    assert not stacks.are_small(64, 65)
    assert stacks.are_small(95, 8)
    assert not stacks.are_small(96, 8)
