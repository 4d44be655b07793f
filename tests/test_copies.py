"""Features are read where they are: conv maps by stride, half precision block by block."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool.implementations.shared import blas, democratic

Array = Any
ROUTES: list[dict[str, Any]] = [
    {"descriptor": "sum"},
    {"descriptor": "sum", "order": 1},
    {"descriptor": "democratic", "route": "matrix-free"},
    {"descriptor": "sketched-sum", "route": "moment", "k": 16},
]
DENSE = {"descriptor": "democratic", "route": "dense"}


@pytest.fixture(params=["numpy:cpu", "numba:cpu"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With blocks that are small beside the features below, as usual ones are beside large ones."""
    monkeypatch.setattr(blas, "CHUNK_BYTES", 2**14)
    monkeypatch.setattr(democratic, "BLOCK_BYTES", 2**14)
    name: str = request.param
    return name


def _features(*shape: int, dtype: str) -> Array:
    return np.random.default_rng(0).standard_normal((1, *shape)).astype(dtype)


def _rows(X: Array) -> Array:
    return np.ascontiguousarray(X.reshape(*X.shape[:2], -1).swapaxes(-1, -2))


def _peak(call: Callable[[], Array]) -> tuple[int, Array]:
    """Extra memory of the second call, and what it returns."""
    call()
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("job", [*ROUTES, DENSE], ids=str)
def test_conv_maps_are_not_copied(backend: str, job: dict[str, Any]) -> None:
    X = _features(32, 40, 30, dtype="float32")
    peak, found = _peak(lambda: dp.describe(X, layout="nchw", backend=backend, **job))
    plain, wanted = _peak(lambda: dp.describe(_rows(X), backend=backend, **job))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    # The call on rows includes the copy that makes them.
    assert peak < plain - X.nbytes / 2


@pytest.mark.parametrize("layout", ["nchw", "nd"])
@pytest.mark.parametrize("job", ROUTES, ids=str)
def test_half_precision_is_never_converted_as_a_whole(
    backend: str, job: dict[str, Any], layout: str
) -> None:
    X = _features(64, 50, 50, dtype="float16")
    X = X if layout == "nchw" else _rows(X)
    options = {**job, "layout": layout, "backend": backend}
    peak, found = _peak(lambda: dp.describe(X, **options))
    np.testing.assert_allclose(found, dp.describe(X.astype(np.float32), **options), atol=1e-5)
    assert found.dtype == np.float32
    assert peak < X.nbytes  # half of what float32 features take


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(3, 8, 5, 5), (2, 3, 4, 9), (1, 40, 2, 3)])
def test_every_route_takes_conv_maps(backend: str, shape: tuple[int, ...], dtype: str) -> None:
    X = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    for job in (*ROUTES, DENSE, {"descriptor": "sketched-sum", "route": "fft", "k": 16}):
        found = dp.describe(X, layout="nchw", backend=backend, **job)
        wanted = dp.describe(_rows(X), backend=backend, **job)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    for route in ("eigh", "gram", "svd"):
        found = dp.describe(X, "power", layout="nchw", backend=backend, route=route)
        wanted = dp.describe(_rows(X), "power", backend=backend, route=route)
        np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_faint_rows_in_half_precision(backend: str) -> None:
    """Rows whose products cancel are computed again, also from blocks."""
    X = np.random.default_rng(0).standard_normal((600, 32)).astype(np.float16)
    X[:3] *= np.float16(1e-3)
    options: dict[str, Any] = {"gamma": 0.0, "tau": 1.0, "backend": backend}
    found = dp.describe(X, "democratic", route="matrix-free", **options)
    wanted = dp.describe(X.astype(np.float64), "democratic", route="dense", **options)
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_magnitudes_of_half_precision() -> None:
    implementation = dp.backend("numpy:cpu").implementation
    X = np.random.default_rng(0).standard_normal((2, 50, 7)).astype(np.float16)
    X[0, 0], X[0, 1], X[1, 2] = 0, -0.0, np.abs(X[1, 2])
    X[1, 3], X[0, 4, 2], X[1, 4, 1] = -np.abs(X[1, 3]), np.nan, -np.inf
    for given in (X, X.swapaxes(1, 2), X[..., ::2]):
        wanted = np.abs(given.astype(np.float32)).max(axis=-1)
        np.testing.assert_array_equal(implementation.row_magnitudes(given), wanted)


def test_products_by_stride() -> None:
    rng = np.random.default_rng(0)
    for A, B in (
        (rng.random((5, 3)), rng.random((3, 4))),
        (rng.random((1, 3)), rng.random((3, 1))),
    ):
        for a in (A, np.asfortranarray(A), np.repeat(A, 2, axis=1)[:, ::2]):
            for b in (B, np.asfortranarray(B), np.repeat(B, 2, axis=0)[::2]):
                np.testing.assert_allclose(blas.product(a, b), A @ B)
                np.testing.assert_allclose(blas.product_transposed(a, b.T), A @ B)
                np.testing.assert_allclose(blas.transposed_product(a.T, b), A @ B)
            lower = np.tril(blas.gram(a, np.zeros((len(A), len(A)))))
            np.testing.assert_allclose(lower, np.tril(A @ A.T))
            lower = np.tril(blas.outer(a, np.zeros((3, 3))))
            np.testing.assert_allclose(lower, np.tril(A.T @ A))
            np.testing.assert_allclose(blas.matrix_times_vector(a, B[:, 0].copy()), A @ B[:, 0])
            np.testing.assert_allclose(blas.vector_times(A[:, 0].copy(), a), A[:, 0] @ A)
