"""jit, vmap and grad go through ``describe(check=False)``, and through the shared array code."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import demopool as dp
from demopool.implementations.shared import accuracy, roots

JOBS = [
    ("democratic", "dense"),
    ("democratic", "matrix-free"),
    ("power", "eigh"),
    ("power", "polar"),
    ("sketched-power", "gram+fft"),
]


# Without square roots: empty bins hold rounding errors, and a root has no slope at zero.
NORM = "l2"


def _described(X: Any, descriptor: str, route: str) -> Any:
    named = {"backend": "jax:cpu", "route": route, "check": False}
    return dp.describe(X, descriptor, k=16, normalize=NORM, **named)


@pytest.fixture(scope="module")
def images() -> Any:
    return np.random.default_rng(0).standard_normal((2, 9, 5)).astype(np.float32)


@pytest.mark.parametrize(("descriptor", "route"), JOBS)
def test_jit_of_vmap_gives_what_numpy_gives(images: Any, descriptor: str, route: str) -> None:
    of_batch = jax.jit(jax.vmap(lambda X: _described(X, descriptor, route)))
    found = of_batch(jnp.asarray(images))
    assert isinstance(found, jax.Array)
    expected = dp.describe(images.astype(np.float64), descriptor, k=16, normalize=NORM)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(("descriptor", "route"), JOBS)
def test_the_gradient_is_that_of_differences(images: Any, descriptor: str, route: str) -> None:
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        X, direction = images[0].astype(np.float64), rng.standard_normal(images[0].shape)
        by = rng.standard_normal(_described(jnp.asarray(X), descriptor, route).shape)
        total = jax.jit(lambda X: jnp.sum(_described(X, descriptor, route) * by))
        slope = float(np.sum(np.asarray(jax.grad(total)(jnp.asarray(X))) * direction))
        step = 1e-6
        ends = [float(total(jnp.asarray(X + s * step * direction))) for s in (1, -1)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-7)


def test_the_gradient_is_finite_where_eigenvalues_are_equal_and_rows_are_zero() -> None:
    X = jnp.zeros((8, 5)).at[:3, :3].set(jnp.eye(3))
    for descriptor, route in (("power", "eigh"), ("democratic", "dense")):
        by_X = jax.grad(lambda X, d=descriptor, r=route: _described(X, d, r)[1])(X)
        assert bool(jnp.isfinite(by_X).all()), descriptor


def test_shared_array_code_can_be_traced() -> None:
    X = np.random.default_rng(2).standard_normal((2, 20, 6)).astype(np.float32)
    A = X.swapaxes(-1, -2) @ X
    options = {"xp": jnp, "product": jnp.matmul}
    for root in (
        lambda A: roots.newton(A, inverse=jnp.linalg.inv, **options),
        lambda A: roots.newton_schulz(A, **options),
        lambda A: roots.polar(A, **options),
    ):
        found = np.asarray(jax.jit(root)(jnp.asarray(A)))
        assert np.abs(found @ found - A).max() < 1e-4 * np.abs(A).max()
    error = jax.jit(
        lambda low, high: accuracy.error(
            accuracy.EIGENVALUES, low, high, 0.5, (20, 6), eps=1e-7, single=True,
            maximum=jnp.maximum,
        )
    )  # fmt: skip
    expected = accuracy.error(accuracy.EIGENVALUES, 0.1, 2.0, 0.5, (20, 6), eps=1e-7, single=True)
    assert float(error(0.1, 2.0)) == pytest.approx(expected, rel=1e-5)


def test_the_switch_for_float64_stays_as_it_was() -> None:
    ops = dp.backend("jax:cpu")
    ops.power(ops.asarray(np.eye(3)), route="eigh")
    assert jnp.ones(2).dtype == jnp.float32
