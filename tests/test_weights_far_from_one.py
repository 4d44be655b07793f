"""Faint rows beside others, and features far from 1: nothing vanishes when it is squared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.conformance import tolerance
from demopool.contract import registry

Array = np.ndarray[Any, Any]
ROUTES = ("dense", "matrix-free")


@pytest.fixture(params=["numpy:cpu", "numba:cpu", "torch:cpu"])
def ops(request: pytest.FixtureRequest) -> Any:
    found = registry.probe(request.param)
    if found.state != "ok":
        pytest.skip(f"{request.param}: {found.reason}")
    return dp.backend(request.param)


def _agree(ops: Any, X: Array, **options: Any) -> None:
    expected = reference.weights(X, **options)
    allowed = tolerance.for_weights(X, X.dtype.name, **options)
    for route in ROUTES:
        found = ops.to_numpy(ops.weights(ops.asarray(X), **options, route=route))
        error = np.abs(found / expected - 1).max(axis=-1)
        assert (error <= allowed).all(), (route, error, allowed)


@pytest.mark.parametrize("images", [1, 4])
def test_a_faint_row_of_tiny_features(ops: Any, images: int) -> None:
    """Its norm is squared after the image is brought into range: numba's groups did it before."""
    X = 1e-17 * np.random.default_rng(0).standard_normal((images, 30, 24))
    X[:, 3] *= 1e-6
    _agree(ops, X.astype(np.float32))


def test_a_faint_row_with_one_coordinate_of_many(ops: Any) -> None:
    """The largest norm alone says that features are in range. The fourth power of this row's norm,
    5e-9 of the largest value, was not."""
    X = np.random.default_rng(1).uniform(0.5, 1.0, (40, 512))
    X *= 0.07 / np.sqrt((X**2).sum(axis=-1)).max()
    X[:, 0] = 0.0
    X[:2] = 0.0
    X[1, 0] = 6e-9 * X.max()
    present = X[1:].astype(np.float32)
    _agree(ops, present)
    for route in ROUTES:  # a first row of zeros tells nothing about the scale
        found = ops.to_numpy(ops.weights(ops.asarray(X.astype(np.float32)), route=route))
        assert found[0] == 0
        assert (found[1:] > 0).all()


def test_a_row_that_vanishes_when_squared_is_not_a_zero_row(ops: Any) -> None:
    X = np.ones((5, 20), np.float32)
    X[2] = 1e-30
    for options in ({"gamma": 1.0}, {"iterations": 0}):
        for route in ROUTES:
            found = ops.to_numpy(ops.weights(ops.asarray(X), **options, route=route))
            np.testing.assert_allclose(found, 1, rtol=4 * np.finfo(np.float32).eps)
