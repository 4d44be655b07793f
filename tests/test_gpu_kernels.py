"""What the GPU kernels of both libraries must do beyond the conformance suite, from their PTX."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.pathfinder")

import demopool as dp
from demopool import reference
from demopool.conformance import tolerance
from demopool.contract import registry
from demopool.implementations.shared import scaling

Array = Any
EMULATED = [name for name in registry.available() if name.endswith(":ptx")]
FLOATS = (np.float32, np.float64)


@pytest.fixture(params=EMULATED)
def ops(request: pytest.FixtureRequest) -> dp.Operations:
    return dp.backend(request.param)


def _features(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("route", "order"), [("dense", 1), ("dense", 2), ("matrix-free", 2)])
def test_nan_features_give_nan_weights(
    ops: dp.Operations, route: str, order: int, images: int
) -> None:
    """Of their image, and of no other one."""
    X = _features(images, 12, 5)
    X[0, 3, 2] = np.nan
    found = ops.weights(X, route=route, order=order)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1:]).all()


@pytest.mark.parametrize("values", [7, 13_000])
def test_nan_is_not_normalized_away(ops: dp.Operations, values: int) -> None:
    v = _features(3, values)
    v[0, 1] = np.nan
    v[1] = np.nan
    found = ops.normalize(v)
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2]).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("route", ["dense", "matrix-free"])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize(
    ("gamma", "tau", "iterations"), [(0.2, 0.9, 1), (0.3, 0.5, 10), (0, 0.3, 4)]
)
def test_the_scale_of_features_is_put_back_to_the_last_units(
    ops: dp.Operations,
    dtype: Any,
    route: str,
    scale: float,
    gamma: float,
    tau: float,
    iterations: int,
) -> None:
    """With so few features that nothing else rounds much."""
    X = (_features(2, 2, 1, dtype=dtype) * dtype(scale)).astype(dtype)
    settings = {"gamma": gamma, "tau": tau, "iterations": iterations}
    found = ops.weights(X, route=route, **settings)
    wanted = reference.weights(X, **settings)
    allowed = tolerance.for_weights(X, np.dtype(dtype).name, iterations=iterations)
    assert (np.abs(found / wanted - 1).max(axis=-1) <= allowed).all()


def test_weights_that_just_fit_are_not_lost_on_the_way(ops: dp.Operations) -> None:
    """The factor of the scale alone is too small for float32; the weights are not."""
    X = (np.array([[-0.13], [0.64]]) * 1e12).astype(np.float32)
    settings = {"gamma": 0.0, "tau": 0.95, "iterations": 5}
    wanted = reference.weights(X, **settings)
    assert wanted.max() < 1e-36
    error = np.abs(ops.weights(X, **settings) / wanted - 1).max()
    assert error <= tolerance.for_weights(X, "float32", iterations=5)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-21), (np.float64, 1e-160)])
@pytest.mark.parametrize("route", ["dense", "matrix-free"])
def test_rows_of_zeros_have_no_weight_whatever_the_scale(
    ops: dp.Operations, dtype: Any, scale: float, route: str
) -> None:
    """The weights of the others do not fit the dtype, and are infinite."""
    X = _features(1, 5, 3, dtype=dtype) * dtype(scale)
    X[0, 2] = 0
    found = ops.weights(X, gamma=0.0, route=route)
    assert found[0, 2] == 0
    assert np.isinf(found[0, [0, 1, 3, 4]]).all()


def _rotated(n: int, d: int, *, live: int, faint: float, dtype: Any) -> Array:
    """Every sixth row is ``faint`` and orthogonal to all others, in no coordinate of its own: of d
    coordinates ``live`` are not zero, and they are rotated."""
    rng = np.random.default_rng(n + d + live)
    X, half = np.zeros((n, d)), live // 2
    X[:, :half] = rng.standard_normal((n, half))
    X[::6, :half] = 0
    X[::6, half:live] = faint * rng.standard_normal((len(X[::6]), live - half))
    X[:, :live] = X[:, :live] @ np.linalg.qr(rng.standard_normal((live, live)))[0]
    return X.astype(dtype)


def _error(ops: dp.Operations, X: Array, **settings: Any) -> float:
    """Over the tolerance; not finite where a weight is not."""
    route = settings.pop("route", "matrix-free")
    found = ops.weights(X, route=route, **settings)
    wanted = reference.weights(X, **settings)
    allowed = tolerance.for_weights(X, X.dtype.name, **settings)
    return float((np.abs(found / wanted - 1).max(axis=-1) / allowed).max())


@pytest.mark.parametrize(
    ("d", "live", "faint", "gamma", "tau"),
    [
        (12, 12, 1e-3, 0.0, 1.0),
        (12, 12, 1e-3, 0.0, 0.9),
        (12, 12, 0.1, 0.0, 1.0),
        (40, 4, 1e-2, 0.0, 1.0),
        (64, 2, 0.03, 0.5, 0.5),
    ],
)
def test_rows_in_directions_that_others_do_not_have(
    ops: dp.Operations, d: int, live: int, faint: float, gamma: float, tau: float
) -> None:
    """Their forms x^T M x cancel at first. With large tau they then gain weights with which those
    of all others do: which rows must be summed exactly is another question in every iteration."""
    X = _rotated(48, d, live=live, faint=faint, dtype=np.float32)
    assert _error(ops, X, gamma=gamma, tau=tau) <= 1


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_such_rows_at_other_scales_and_in_batches(ops: dp.Operations, scale: float) -> None:
    X = np.stack(
        [_rotated(48, 12, live=12, faint=f, dtype=np.float32) for f in (1e-3, 0.1)]
    ) * np.float32(scale)
    assert _error(ops, X, gamma=0.0, tau=0.9, iterations=4) <= 1


def test_an_image_of_one_colour(ops: dp.Operations) -> None:
    """All terms of a sum are the same, and so are the signs of their rounding errors."""
    X = np.full((2, 4096, 1), 0.9, np.float32)
    wanted = reference.pool(X)
    error = np.abs(ops.pool(X) / wanted - 1).max()
    assert error <= tolerance.for_pool(X, None, wanted, "float32", order=2)


def test_such_rows_in_double(ops: dp.Operations) -> None:
    X = _rotated(48, 12, live=12, faint=1e-6, dtype=np.float64)
    assert _error(ops, X, gamma=0.0, tau=1.0) <= 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_power_in_two_parts_is_exact_with_every_exponent(dtype: Any) -> None:
    most = 2 - int(np.finfo(dtype).minexp) + int(np.finfo(dtype).nmant)
    for power in map(Fraction, ("1/10", "1/3", "1999/1000", "4", "-7/10")):
        first, rest = scaling.in_two_parts(power, dtype)
        assert abs(Fraction(first) + Fraction(rest) - power) < 2.0**-60
        assert dtype(first) == first
        for exponent in (1, 39, most - 1, most):
            assert float(dtype(exponent) * dtype(first)) == exponent * first
