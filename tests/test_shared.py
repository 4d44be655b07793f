"""Array-level code shared by the libraries: square roots and the scale law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_api_compat import numpy as xp

from demopool import reference
from demopool.conformance import tolerance
from demopool.implementations.shared import polynomials, roots
from demopool.implementations.shared.scaling import weights_factor

SIZE = 96


def _matrix(spectrum: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix with these eigenvalues, and its square root."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((spectrum.size, spectrum.size)))[0]
    return (vectors * spectrum) @ vectors.T, (vectors * np.sqrt(spectrum)) @ vectors.T


class Counter:
    """A matrix product that counts."""

    def __init__(self) -> None:
        self.products = 0

    def __call__(self, a: Any, b: Any) -> Any:
        self.products += 1
        return a @ b


SPECTRA = {
    "flat": np.ones(SIZE),
    "uniform": np.linspace(1e-4, 1, SIZE),
    "logarithmic": np.logspace(-4, 0, SIZE),
    "two clusters": np.repeat([1e-4, 1.0], SIZE // 2),
    "one outlier": np.concatenate([np.full(SIZE - 1, 1e-4), [1.0]]),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_polar_needs_twenty_products_at_condition_number_1e4(name: str) -> None:
    A, wanted = _matrix(SPECTRA[name])
    count = Counter()
    found = roots.polar(A, xp=xp, product=count)
    assert count.products <= 20
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("route", ["newton", "newton_schulz", "polar"])
def test_roots_are_accurate_in_double_precision(route: str, name: str) -> None:
    A, wanted = _matrix(SPECTRA[name])
    options: dict[str, Any] = {"product": np.matmul}
    if route == "newton":
        options["inverse"] = np.linalg.inv
    if route == "polar":
        options["to_rounding"] = True
    found = getattr(roots, route)(A, xp=xp, **options)
    assert np.abs(found - wanted).max() < 1e-11 * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("route", ["newton_schulz", "polar"])
def test_roots_of_singular_matrices_are_finite(route: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((5, 40)).astype(dtype)
    batch = np.stack([X.T @ X, np.zeros((40, 40), dtype), np.ones((40, 40), dtype)])
    found = getattr(roots, route)(batch, xp=xp, product=np.matmul)
    assert np.isfinite(found).all()
    assert not found[1].any()
    error = np.abs(found @ found - batch).max(axis=(-2, -1))
    assert (error <= 1e-3 * np.abs(batch).max()).all()


def test_polynomials_are_the_derived_ones() -> None:
    for lower, table in roots.POLYNOMIALS.items():
        derived = polynomials.coefficients(lower, len(table))
        np.testing.assert_allclose(table, derived, rtol=1e-6, atol=1e-9)


def test_smallest_iterate_of_polar_is_that_of_its_polynomials() -> None:
    for dtype, (lower, table) in zip(
        ("float32", "float64"), sorted(roots.POLYNOMIALS.items(), reverse=True), strict=True
    ):
        x = np.linspace(lower**0.5, 1, 100_000)
        for polynomial in table[:2]:
            x = polynomials.evaluate(polynomial, x)
        # The worst root lies between two points of the grid.
        assert tolerance.SMALLEST["polar", dtype] == pytest.approx(x.min(), rel=0.02)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_polar_is_within_its_tolerance_on_many_images(dtype: str) -> None:
    """Rounding is amplified on rare ones, by cancellation in the second step."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 9, 5)) + 1.0
    X = X.astype(dtype).astype(np.float64)
    spectrum = reference.spectrum(X)
    A = np.swapaxes(X, -1, -2) @ X
    expected = reference.matrix_power(A, p=0.5)
    found = roots.polar(A.astype(dtype), xp=xp, product=np.matmul, to_rounding=True)
    used = np.abs(found - expected).max(axis=(-2, -1)) / np.abs(expected).max(axis=(-2, -1))
    allowed = tolerance.for_power(spectrum, 9, expected, dtype, p=0.5, route="polar")
    assert (used <= allowed).all()
    assert (used > 0.01 * allowed).any()


def test_weights_factor_is_one_without_scaling_or_iterations() -> None:
    options: dict[str, Any] = {"gamma": 0.2, "tau": 0.5, "order": 2}
    assert weights_factor(1.0, iterations=10, **options) == 1.0
    assert weights_factor(8.0, iterations=0, **options) == 1.0
    assert weights_factor(8.0, iterations=10, **{**options, "gamma": 1.0}) == 1.0
