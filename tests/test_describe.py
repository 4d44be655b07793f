"""``describe``: every descriptor, layout, dtype and option against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import demopool as dp
from demopool import reference
from demopool.conformance.features import real
from demopool.pooling import values
from demopool.problem.candidates import Subject
from demopool.problem.routes import descriptor_routes
from demopool.problem.vocabulary import DESCRIPTORS, NORMALIZATIONS

X = np.random.default_rng(0).standard_normal((3, 30, 8))


def _expected(descriptor: str, features: np.ndarray = X, **options: object) -> np.ndarray:
    hashes = dp.hashes(features.shape[-1], k=16, seed=1)
    return reference.describe(features, descriptor, hashes=hashes, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_descriptor_is_the_references(descriptor: str, normalize: str) -> None:
    found = dp.describe(X, descriptor, k=16, seed=1, normalize=normalize)
    wanted = _expected(descriptor, normalize=normalize)
    assert found.shape == wanted.shape
    # The signed square root turns an error e of a small entry into sqrt(e).
    np.testing.assert_allclose(found, wanted, atol=1e-7 * np.abs(wanted).max())


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_every_route_of_a_descriptor_gives_the_same(descriptor: str) -> None:
    wanted = _expected(descriptor, normalize="l2")
    for backend, route in Subject("descriptor", descriptor).candidates(("numpy:cpu",)):
        asked = {"backend": backend, "route": route}
        found = dp.describe(X, descriptor, k=16, seed=1, normalize="l2", **asked)
        np.testing.assert_allclose(found, wanted, atol=1e-11, err_msg=route)


@pytest.mark.parametrize("descriptor", ["sum", "democratic"])
def test_first_order(descriptor: str) -> None:
    found = dp.describe(X, descriptor, order=1)
    assert found.shape == (3, 8)
    np.testing.assert_allclose(found, _expected(descriptor, order=1), atol=1e-7)


def test_full_descriptor_is_the_matrix_row_by_row() -> None:
    found = dp.describe(X, "sum", normalize="none")
    np.testing.assert_allclose(found.reshape(3, 8, 8), reference.pool(X), rtol=1e-12)


def test_layouts_of_conv_maps() -> None:
    maps = np.random.default_rng(1).standard_normal((2, 8, 5, 6))
    rows = maps.reshape(2, 8, 30).swapaxes(1, 2)
    wanted = dp.describe(rows, "democratic")
    np.testing.assert_allclose(dp.describe(maps, "democratic", layout="nchw"), wanted, atol=1e-9)
    last = np.ascontiguousarray(maps.transpose(0, 2, 3, 1))
    np.testing.assert_allclose(dp.describe(last, "democratic", layout="nhwc"), wanted, atol=1e-9)
    for image, layout in ((maps[1], "nchw"), (last[1], "nhwc")):
        found = dp.describe(image, "democratic", layout=layout)
        np.testing.assert_allclose(found, wanted[1], atol=1e-9)


def test_any_leading_axes_with_layout_nd() -> None:
    many = np.random.default_rng(2).standard_normal((2, 3, 10, 4))
    found = dp.describe(many, "democratic", layout="nd")
    assert found.shape == (2, 3, 16)
    np.testing.assert_allclose(found[1, 2], dp.describe(many[1, 2], "democratic"), atol=1e-9)


def test_one_image_and_no_image() -> None:
    assert dp.describe(X[0], "democratic").shape == (64,)
    assert dp.describe(X[:0], "democratic").shape == (0, 64)
    assert dp.describe(X[:0], "sketched-power", k=16).shape == (0, 16)
    assert dp.describe(X[:0], "sum", order=1).shape == (0, 8)


def test_zero_rows_have_no_say_which_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    padded = np.concatenate([X, np.zeros((3, 4, 8))], axis=1)
    with pytest.raises(dp.InvalidInput, match="image 0, row 30 and 11 more"):
        dp.describe(padded, "democratic", zero_rows="error")
    monkeypatch.setattr(values, "_warned", set())
    with pytest.warns(RuntimeWarning, match="image 0, row 30 and 11 more") as caught:
        told = [dp.describe(padded, "democratic") for _ in range(3)]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(told[0], dp.describe(padded, "democratic", zero_rows="ignore"))
    ignored = dp.describe(padded, "democratic", zero_rows="ignore")
    np.testing.assert_allclose(ignored, dp.describe(X, "democratic"), atol=1e-8)
    np.testing.assert_allclose(dp.describe(padded, "sum"), dp.describe(X, "sum"), atol=1e-8)


def test_an_all_zero_image_gives_zeros() -> None:
    for descriptor in DESCRIPTORS:
        found = dp.describe(np.zeros((2, 5, 3)), descriptor, k=8, zero_rows="ignore")
        assert not found.any(), descriptor


@pytest.mark.parametrize(
    ("given", "asked", "out"),
    [
        ("float32", None, "float32"),
        ("float64", None, "float64"),
        ("float16", None, "float32"),
        ("float16", "float16", "float16"),
        ("float32", "float64", "float64"),
        ("float64", np.float32, "float32"),
    ],
)
def test_dtype_out(given: str, asked: object, out: str) -> None:
    found = dp.describe(X.astype(given), "democratic", dtype=asked)
    assert found.dtype == out
    np.testing.assert_allclose(found, _expected("democratic"), atol=3e-2)


def test_work_in_a_wider_dtype_is_more_accurate() -> None:
    image = real("X224")[0]
    wanted = reference.describe(image, "power", p=0.5, normalize="l2")
    single = dp.describe(image, "power", normalize="l2")
    double = dp.describe(image, "power", normalize="l2", dtype="float64")
    assert np.abs(double - wanted).max() < 1e-3 * np.abs(single - wanted).max()


def test_a_descriptor_does_not_depend_on_the_scale_of_the_features() -> None:
    single = X.astype(np.float32)
    wanted = dp.describe(single, "democratic")
    for exponent in (-140, -100, -40, 40, 100, 120):
        scaled = np.ldexp(single, exponent)
        exact = exponent > -120
        found = dp.describe(scaled, "democratic")
        np.testing.assert_allclose(found, wanted, atol=(1e-3 if exact else 1e-1) * wanted.max())
    far = X * 1e200
    np.testing.assert_allclose(dp.describe(far, "democratic", dtype="float32"), wanted, atol=1e-3)
    odd = dp.describe(X * 1e-100, "democratic", gamma=0.0, tau=1.0, iterations=1)
    assert np.isfinite(odd).all()


def test_numpys_own_types_are_taken() -> None:
    wanted = dp.describe(X[0], "sketched-democratic", k=16)
    given = {"k": np.int64(16), "order": np.int64(2), "gamma": np.float32(0.5)}
    np.testing.assert_array_equal(dp.describe(X[0], "sketched-democratic", **given), wanted)
    assert dp.Case(n=np.int64(3), dtype=np.float32) == dp.Case(n=3, dtype="float32")


def test_lists_memory_maps_and_views_are_taken(tmp_path: Path) -> None:
    wanted = dp.describe(X, "democratic")
    np.save(tmp_path / "features.npy", X)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(dp.describe(mapped, "democratic"), wanted)
    np.testing.assert_array_equal(dp.describe(X.tolist(), "democratic"), wanted)
    big_endian = X.astype(">f8")
    np.testing.assert_allclose(dp.describe(big_endian, "democratic"), wanted, atol=1e-12)
    frozen = X.copy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(dp.describe(frozen, "democratic"), wanted)


def test_the_input_is_left_alone() -> None:
    for descriptor in DESCRIPTORS:
        for normalize in NORMALIZATIONS:
            before = X.copy()
            dp.describe(X, descriptor, k=16, normalize=normalize)
            np.testing.assert_array_equal(X, before)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_check_can_be_turned_off_and_bad_values_stay_in_their_image() -> None:
    for bad in (np.nan, np.inf):
        broken = X.copy()
        broken[0, 0, 0] = bad
        for route in descriptor_routes("power"):
            found = dp.describe(broken, "power", check=False, route=route, normalize="none")
            assert np.isnan(found[0]).any(), route
            assert np.isfinite(found[1:]).all(), route
