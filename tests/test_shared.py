"""Array-level code shared by the libraries: square roots and the scale law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from array_api_compat import numpy as xp

from demopool import reference
from demopool.conformance import tolerance
from demopool.implementations.shared import accuracy, polynomials, ranges, roots
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


# --- a library that has the array API standard and nothing else ---


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("route", ["newton", "newton_schulz", "polar"])
def test_roots_need_the_standard_only(route: str, dtype: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    A, _ = _matrix(SPECTRA["uniform"])
    batch = np.stack([A, np.zeros_like(A), 1e12 * A]).astype(dtype)

    def found(namespace: Any, given: Any) -> Any:
        options: dict[str, Any] = {"product": namespace.matmul}
        if route == "newton":
            options["inverse"] = namespace.linalg.inv
        return getattr(roots, route)(given, xp=namespace, **options)

    expected, got = found(xp, batch), np.asarray(found(strict, strict.asarray(batch)))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
    np.testing.assert_array_equal(got[1], 0)


def test_the_error_of_a_power_needs_the_standard_only() -> None:
    strict = pytest.importorskip("array_api_strict")
    smallest, largest = np.array([1e-9, 0.1]), np.array([1.0, 2.0])
    options: dict[str, Any] = {"eps": 1e-7, "single": True}
    for solver in (accuracy.EIGENVALUES, accuracy.SINGULAR_VALUES):
        for p in (0.3, 0.5, 1.5):
            expected = [
                accuracy.error(solver, low, high, p, (40, 30), **options)
                for low, high in zip(smallest.tolist(), largest.tolist(), strict=True)
            ]
            given = (strict.asarray(smallest), strict.asarray(largest))
            found = accuracy.error(solver, *given, p, (40, 30), maximum=strict.maximum, **options)
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


@pytest.mark.parametrize("zero_rows", [False, True])
def test_whether_rows_are_ordinary_needs_the_standard_only(zero_rows: bool) -> None:
    strict = pytest.importorskip("array_api_strict")
    low, high = 0.5, 2.0
    answers = {low: True, high: True, 0.0: zero_rows, 0.4: False, 2.1: False}
    for value, wanted in (answers | {float("inf"): False, float("nan"): False}).items():
        magnitudes = strict.asarray([[1.0, value], [1.0, 1.0]])
        assert bool(ranges.are_ordinary(magnitudes, strict, low, high, zero_rows)) is wanted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ranges_need_the_standard_only_and_obey_the_scale_law(dtype: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    X = np.random.default_rng(0).standard_normal((3, 6, 4))
    X = (X * np.array([1e-12, 0.0, 1e12])[:, None, None]).astype(dtype)
    scale = ranges.magnitude(strict.asarray(X), strict)
    np.testing.assert_array_equal(np.asarray(scale)[:, 0, 0][[0, 2]], np.abs(X).max((1, 2))[[0, 2]])
    assert float(scale[1, 0, 0]) == 1.0
    settings: dict[str, Any] = {"gamma": 0.3, "tau": 0.4, "iterations": 7, "order": 2}
    factor = np.asarray(ranges.weights_factor(scale[..., 0], strict, **settings))
    wide = X.astype(np.float64) / np.asarray(scale)
    expected = reference.weights(X.astype(np.float64), **settings)
    rounding = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(
        reference.weights(wide, **settings) * factor, expected, rtol=rounding
    )
