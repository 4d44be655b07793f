"""The reference against the paper, against hand computation and against independent judges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import ot
import pytest
from scipy.linalg import fractional_matrix_power
from sklearn.kernel_approximation import PolynomialCountSketch

import demopool as dp
from demopool import reference
from demopool.conformance.features import real

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 20, 7))


def test_the_papers_worked_example_of_a_square_root() -> None:
    root = reference.power([[1.0, 0.0], [1.0, 1.0]])
    wanted = [[3 / np.sqrt(5), 1 / np.sqrt(5)], [1 / np.sqrt(5), 2 / np.sqrt(5)]]
    np.testing.assert_allclose(root, wanted, rtol=1e-14)
    np.testing.assert_allclose(reference.matrix_power([[2.0, 1.0], [1.0, 1.0]]), root, rtol=1e-14)


def test_kernel_is_the_inner_product_of_outer_products() -> None:
    outer = np.einsum("bni,bnj->bnij", X, X).reshape(3, 20, 49)
    wanted = outer @ outer.swapaxes(-1, -2)
    np.testing.assert_allclose(reference.kernel(X), wanted, atol=1e-14 * wanted.max())
    assert (reference.kernel(X, order=1) >= 0).all()


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_converged_weights_solve_the_equation(gamma: float) -> None:
    a = reference.weights(X, gamma=gamma, iterations=200)
    K = reference.kernel(X)
    left = a * (K @ a[..., np.newaxis])[..., 0]
    np.testing.assert_allclose(left, K.sum(axis=-1) ** gamma, rtol=1e-10)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_converged_weights_agree_with_optimal_transport(gamma: float) -> None:
    image = X[0]
    K = reference.kernel(image)
    target = K.sum(axis=-1) ** gamma
    # POT wants equal masses of total 1; scaling the target scales the plan.
    mass = target / target.sum()
    _, log = ot.sinkhorn(mass, mass, -np.log(K), 1.0, numItermax=10000, stopThr=1e-14, log=True)
    judged = np.sqrt(log["u"] * log["v"] * target.sum())
    ours = reference.weights(image, gamma=gamma, iterations=300)
    np.testing.assert_allclose(ours, judged, rtol=1e-8)


def test_weights_of_zero_iterations_are_ones_and_zero_rows_get_zero() -> None:
    padded = np.concatenate([X, np.zeros((3, 2, 7))], axis=1)
    assert (reference.weights(X, iterations=0) == 1).all()
    a = reference.weights(padded)
    assert (a[:, -2:] == 0).all()
    np.testing.assert_allclose(a[:, :-2], reference.weights(X), rtol=1e-12)


def test_sketch_agrees_with_scikit_learn() -> None:
    h = dp.hashes(7, k=16, seed=3)
    judge = PolynomialCountSketch(degree=2, n_components=16, coef0=0).fit(X[0])
    judge.indexHash_ = np.array([h.h1, h.h2])
    judge.bitHash_ = np.array([h.s1, h.s2])
    np.testing.assert_allclose(reference.sketch(X[0], h), judge.transform(X[0]), atol=1e-13)


def test_count_sketch_by_hand() -> None:
    found = reference.count_sketch([1.0, 2.0, 4.0], h=[0, 2, 0], s=[1, -1, -1], k=3)
    np.testing.assert_array_equal(found, [-3.0, 0.0, -2.0])


def test_sketch_is_linear_in_the_outer_product() -> None:
    h = dp.hashes(7, k=12, seed=1)
    A = reference.pool(X)
    scattered = np.zeros((3, 12))
    for i in range(7):
        for j in range(7):
            scattered[:, (h.h1[i] + h.h2[j]) % 12] += int(h.s1[i]) * int(h.s2[j]) * A[:, i, j]
    np.testing.assert_allclose(reference.pool_sketch(X, h), scattered, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("p", [0.3, 0.5, 1.0])
def test_power_agrees_with_scipy_where_a_has_full_rank(p: float) -> None:
    A = reference.pool(X[0])
    np.testing.assert_allclose(reference.power(X[0], p=p), fractional_matrix_power(A, p), rtol=1e-9)
    np.testing.assert_allclose(
        reference.matrix_power(A, p=p), reference.power(X[0], p=p), rtol=1e-9
    )


def test_power_of_rank_deficient_real_features_is_accurate() -> None:
    """A^(1/2) A^(1/2) = A to rounding, which a clamped eigh of A does not reach at small p."""
    image = real("X224")[0].astype(np.float64)
    A = reference.pool(image)
    root = reference.power(image)
    assert np.abs(root @ root - A).max() < 1e-12 * np.abs(A).max()
    tenth = reference.power(image, p=0.1)
    values, vectors = np.linalg.eigh(A)
    clamped = (vectors * np.maximum(values, 0) ** 0.1) @ vectors.T
    assert np.abs(clamped - tenth).max() > 1e-3 * np.abs(tenth).max()


def test_power_sketch_is_the_sketch_of_the_power() -> None:
    h = dp.hashes(7, k=9, seed=2)
    Z = reference.power(X[0], p=0.4)
    scattered = np.zeros(9)
    for i in range(7):
        for j in range(7):
            scattered[(h.h1[i] + h.h2[j]) % 9] += int(h.s1[i]) * int(h.s2[j]) * Z[i, j]
    np.testing.assert_allclose(reference.power_sketch(X[0], h, p=0.4), scattered, rtol=1e-10)


def test_contributions_sum_to_the_norm_and_are_equal_when_democratic() -> None:
    a = reference.weights(X, gamma=0.0, iterations=200)
    C = reference.contributions(X, a)
    norm = np.sqrt((reference.pool(X, a) ** 2).sum(axis=(-2, -1)))
    np.testing.assert_allclose(C.sum(axis=-1), norm, rtol=1e-12)
    np.testing.assert_allclose(C, C[:, :1] * np.ones_like(C), rtol=1e-9)
    assert reference.contributions(X).std(axis=-1).min() > 0.1 * reference.contributions(X).mean()


def test_first_order_contributions_sum_to_the_norm_of_the_pooled_vector() -> None:
    v = reference.pool(X, order=1)
    C = reference.contributions(X, order=1)
    np.testing.assert_allclose(C.sum(axis=-1), np.sqrt((v**2).sum(axis=-1)), rtol=1e-10)


def test_contributions_to_a_power_take_no_weights() -> None:
    with pytest.raises(ValueError, match="no weights"):
        reference.contributions(X, np.ones((3, 20)), p=0.5)


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("features", [X, X[:, :4], real("X224")[:1]], ids=["n>d", "n<d", "VGG-16"])
def test_bounds_hold_in_the_papers_order(features: np.ndarray, p: float) -> None:
    C = reference.contributions(features, p=p)
    b = reference.bounds(features, p=p)
    room = 1 + 1e-9
    np.testing.assert_allclose(C.sum(axis=-1), b.total, rtol=1e-9)
    assert (C.max(axis=-1) <= b.maximum * room).all()
    assert (C.min(axis=-1) * room >= b.minimum).all()
    np.testing.assert_allclose(b.variance, C.var(axis=-1))
    chain = [b.variance, b.bhatia_davis, b.popoviciu, b.radius]
    for smaller, larger in pairwise(chain):
        assert (smaller <= larger * room).all()


def test_spectrum_has_d_values_largest_first() -> None:
    values = reference.spectrum(X[:, :4])
    assert values.shape == (3, 7)
    assert (np.diff(values) <= 0).all()
    assert (values[:, 4:] == 0).all()
    np.testing.assert_allclose(values.sum(axis=-1), (X[:, :4] ** 2).sum(axis=(-2, -1)))


def test_normalize_by_hand() -> None:
    found = reference.normalize([4.0, -9.0, 0.0])
    np.testing.assert_allclose(found, np.array([2.0, -3.0, 0.0]) / np.sqrt(13))
    np.testing.assert_array_equal(reference.normalize(np.zeros((2, 3))), np.zeros((2, 3)))
    np.testing.assert_allclose(reference.normalize([3.0, -4.0], kind="l2"), [0.6, -0.8])
    matrix = reference.normalize(X, axes=2)
    np.testing.assert_allclose((matrix**2).sum(axis=(-2, -1)), 1.0)
