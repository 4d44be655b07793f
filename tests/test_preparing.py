"""Centre, triangle and padding: the published formulas, and the reference on every backend."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.conformance.features import real
from demopool.pooling import description, preparing
from demopool.problem.candidates import Subject
from demopool.problem.vocabulary import DESCRIPTORS

Array = Any
EPS = np.finfo(np.float64).eps
X = np.random.default_rng(0).standard_normal((3, 12, 5)) + 3
LENGTHS = [12, 7, 4]
HASHES = dp.hashes(5, k=16, seed=0)
MATRICES = ("sum", "democratic", "power")
OPTIONS: dict[str, dict[str, Any]] = {
    "center": {"center": True},
    "lengths": {"lengths": LENGTHS},
    "upper": {"vectorize": "upper"},
    "center and lengths": {"center": True, "lengths": LENGTHS},
    "all": {"center": True, "lengths": LENGTHS, "vectorize": "upper"},
}


CASES = [
    (descriptor, name)
    for descriptor in DESCRIPTORS
    for name, options in OPTIONS.items()
    if descriptor in MATRICES or "vectorize" not in options  # a sketch has no triangle
]


# --- published formulas ---


def test_centred_sum_pooling_is_n_times_the_covariance() -> None:
    for x in X:
        found = reference.pool(reference.center(x))
        np.testing.assert_allclose(found, len(x) * np.cov(x.T, bias=True), rtol=64 * EPS)


def test_a_centred_power_is_that_of_mpn_cov() -> None:
    """Li et al., ICCV 2017: P = X^T I X with I = (1/n)(1 - 11^T/n), Q = U diag(lambda^1/2) U^T."""
    x, n = X[0], X.shape[1]
    I_bar = (np.eye(n) - np.ones((n, n)) / n) / n
    values, vectors = np.linalg.eigh(x.T @ I_bar @ x)
    Q = (vectors * np.sqrt(values)) @ vectors.T
    found = dp.describe(x, "power", center=True, normalize="none").reshape(5, 5)
    np.testing.assert_allclose(found / np.sqrt(n), Q, atol=64 * EPS * np.abs(Q).max())


def test_its_triangle_is_that_of_isqrt_cov_off_diagonals_times_sqrt_2() -> None:
    """Li et al., CVPR 2018: trace, coupled Newton-Schulz iteration, compensation, triangle."""
    x, n = X[0], X.shape[1]
    P = np.cov(x.T, bias=True)
    Y, Z = P / np.trace(P), np.eye(5)
    for _ in range(40):
        T = (3 * np.eye(5) - Z @ Y) / 2
        Y, Z = Y @ T, T @ Z
    theirs = (Y * np.sqrt(np.trace(P)))[np.triu_indices(5)]
    found = dp.describe(x, "power", center=True, normalize="none", vectorize="upper")
    diagonal = np.equal(*np.triu_indices(5))
    ours = np.where(diagonal, found, found / np.sqrt(2)) / np.sqrt(n)
    np.testing.assert_allclose(ours, theirs, atol=1e4 * EPS * np.abs(theirs).max())


# --- laws ---


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_a_centred_descriptor_does_not_see_the_mean(descriptor: str) -> None:
    options: dict[str, Any] = {"center": True, "k": 16, "normalize": "l2"}
    shifted = dp.describe(X + np.arange(5.0), descriptor, **options)
    np.testing.assert_allclose(shifted, dp.describe(X, descriptor, **options), atol=1e3 * EPS)


@pytest.mark.parametrize("descriptor", MATRICES)
def test_a_triangle_keeps_norms_and_dot_products(descriptor: str) -> None:
    whole = dp.describe(X, descriptor, normalize="signed-sqrt-l2")
    half = dp.describe(X, descriptor, normalize="signed-sqrt-l2", vectorize="upper")
    assert half.shape == (3, 15)
    np.testing.assert_allclose(half @ half.T, whole @ whole.T, rtol=64 * EPS)


@pytest.mark.parametrize("value", [0.1, 1e-3, 7.7, 1e30])
def test_channels_and_images_that_are_constant_become_exactly_zero(value: float) -> None:
    features = X.astype(np.float32)
    features[0] = value
    features[1, :, 2] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for descriptor in ("sum", "democratic"):  # eigenvectors of a power have rounding errors
            found = dp.describe(features, descriptor, center=True).reshape(3, 5, 5)
            assert not found[0].any()
            assert not found[1, 2].any()
    assert not reference.center(features[0]).any()


def test_a_mean_that_is_large_costs_no_more_digits_than_the_features_lost() -> None:
    """Integers, which float32 holds: the difference to a shift of 2**20 is that of rounding."""
    features = np.random.default_rng(1).integers(-8, 8, (2, 12, 5)).astype(np.float32)
    plain = dp.describe(features, "sum", center=True, normalize="l2")
    shifted = dp.describe(features + np.float32(2**20), "sum", center=True, normalize="l2")
    assert np.abs(plain - shifted).max() <= 32 * np.finfo(np.float32).eps


# --- every backend ---


@pytest.mark.parametrize(("descriptor", "options"), CASES)
def test_every_backend_gives_the_references(usable: str, descriptor: str, options: str) -> None:
    asked = OPTIONS[options]
    ops = dp.backend(usable)
    found = dp.describe(ops.asarray(X), descriptor, k=16, normalize="l2", backend=usable, **asked)
    wanted = reference.describe(X, descriptor, hashes=HASHES, normalize="l2", **asked)
    np.testing.assert_allclose(ops.to_numpy(found), wanted, atol=1e4 * EPS)


@pytest.mark.parametrize("name", ["cupy:ptx", "numba:ptx"])
def test_gpu_code_gets_features_that_are_ready(name: str) -> None:
    found = dp.describe(X, "sum", backend=name, **OPTIONS["all"])
    wanted = reference.describe(X, "sum", **OPTIONS["all"])
    np.testing.assert_allclose(found, wanted, atol=1e4 * EPS)


@pytest.mark.parametrize(("descriptor", "options"), CASES)
def test_a_batch_is_its_images_bit_by_bit(usable: str, descriptor: str, options: str) -> None:
    asked = dict(OPTIONS[options])
    lengths = asked.pop("lengths", None)
    ops = dp.backend(usable)
    features = ops.asarray(X.astype(np.float32))
    asked |= {"k": 16, "backend": usable}
    routes = [c.route for c in Subject("descriptor", descriptor).candidates((usable,))]
    asked["route"] = routes[-1]  # not fft, which torch does in batches

    def call(features: Array, lengths: Any) -> Array:
        return ops.to_numpy(dp.describe(features, descriptor, lengths=lengths, **asked))

    together = call(features, lengths)
    for i, image in enumerate(together):
        alone = call(features[i : i + 1], lengths and lengths[i : i + 1])
        assert np.array_equal(alone[0], image)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_precision_is_centred_in_float32(dtype: str) -> None:
    features = real("X224").astype(dtype)
    found = dp.describe(features, "sum", center=True, normalize="l2")
    wanted = reference.describe(features, "sum", center=True, normalize="l2")
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() <= 64 * np.finfo(np.float32).eps


# --- padding ---


def test_padding_may_hold_anything_and_is_no_zero_row() -> None:
    features = X.copy()
    features[1, 7:], features[2, 4:] = np.nan, np.inf
    found = dp.describe(features, "democratic", lengths=LENGTHS, zero_rows="error")
    for i, length in enumerate(LENGTHS):
        alone = dp.describe(X[i, :length], "democratic")
        np.testing.assert_allclose(found[i], alone, atol=1e4 * EPS)


def test_a_zero_row_before_the_padding_is_one() -> None:
    features = X.copy()
    features[1, 2] = 0
    with pytest.raises(dp.InvalidInput, match=r"rows of zeros \(image 1, row 2\)"):
        dp.describe(features, "democratic", lengths=LENGTHS, zero_rows="error")


def test_lengths_of_one_image_and_of_none() -> None:
    one = dp.describe(X[0], "sum", lengths=4)
    np.testing.assert_allclose(one, dp.describe(X[0, :4], "sum"), atol=1e4 * EPS)
    assert dp.describe(X[:0], "sum", lengths=[]).shape == (0, 25)


def test_values_that_are_not_finite_are_named_before_a_mean_spreads_them() -> None:
    features = X.copy()
    features[2, 3, 1] = np.nan
    with pytest.raises(dp.InvalidInput, match=r"in image 2, row 3\."):
        dp.describe(features, "sum", center=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lengths": [12, 7]}, "lengths must be a whole number for each image, shape (3,); got"),
        ({"lengths": [12.0, 7.0, 4.0]}, "got shape (3,) of float64."),
        ({"lengths": [12, 0, 4]}, "lengths must be from 1 to n = 12; got 0 to 12."),
        ({"lengths": [13, 2, 4]}, "lengths must be from 1 to n = 12; got 2 to 13."),
        ({"lengths": [1, 2, 3], "layout": "nchw"}, "lengths are of rows (B, n, d), not of maps"),
        ({"center": 1}, "center must be True or False; got 1."),
        ({"vectorize": "lower"}, "vectorize must be one of full, upper; got 'lower'."),
    ],
)
def test_what_is_wrong_is_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(dp.InvalidInput, match=re.escape(words)):
        dp.describe(X, "sum", **options)


@pytest.mark.parametrize(
    ("descriptor", "options", "reason"),
    [
        ("sum", {"order": 1, "center": True}, "centred features have the sum zero"),
        ("sum", {"order": 1, "vectorize": "upper"}, "only a matrix has a triangle"),
        ("sketched-sum", {"vectorize": "upper"}, "only a matrix has a triangle"),
    ],
)
def test_what_has_no_meaning_says_why(
    descriptor: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(dp.Unsupported, match=reason):
        dp.describe(X, descriptor, **options)


def test_arrays_without_arithmetic_are_refused() -> None:
    with pytest.raises(dp.Unsupported, match=r"center on numpy:cpu .* no arithmetic"):
        preparing.namespace(dp.backend("numpy:cpu"), "center", object())


def test_nothing_is_done_to_features_that_ask_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "preparing", None)
    assert dp.describe(X, "sum").shape == (3, 25)
