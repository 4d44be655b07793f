"""``demopool.dask``: lazy, in blocks of whole images, with the values of ``describe``."""

from __future__ import annotations

import re
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import demopool as dp
from demopool.dask import describe
from demopool.problem.vocabulary import DESCRIPTORS

X = np.random.default_rng(0).standard_normal((7, 10, 4), dtype=np.float32)
OPTIONS: dict[str, Any] = {"backend": "numpy:cpu", "k": 16}


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_blocks_are_those_of_x_and_values_those_of_describe(descriptor: str) -> None:
    found = describe(da.from_array(X, chunks=(3, -1, -1)), descriptor, **OPTIONS)
    wanted = dp.describe(X, descriptor, **OPTIONS)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert found.chunks[0] == (3, 3, 1)
    assert np.array_equal(found.compute(), wanted)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_dtype_is_that_of_the_result(dtype: str) -> None:
    found = describe(da.from_array(X.astype(dtype), chunks=(4, -1, -1)), "sum", **OPTIONS)
    assert found.dtype == found.compute().dtype


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_conv_maps(layout: str) -> None:
    maps = X.reshape(7, 4, 5, 2) if layout == "nchw" else X.reshape(7, 5, 2, 4)
    found = describe(da.from_array(maps, chunks=(2, -1, -1, -1)), "sum", layout=layout, **OPTIONS)
    assert np.array_equal(found.compute(), dp.describe(maps, "sum", layout=layout, **OPTIONS))


def test_one_image_and_any_leading_axes() -> None:
    one = describe(da.from_array(X[0]), "sum", **OPTIONS)
    assert np.array_equal(one.compute(), dp.describe(X[0], "sum", **OPTIONS))
    many = X[:6].reshape(2, 3, 10, 4)
    found = describe(da.from_array(many, chunks=(1, 2, -1, -1)), "sum", layout="nd", **OPTIONS)
    assert np.array_equal(found.compute(), dp.describe(many, "sum", layout="nd", **OPTIONS))


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    def fail(block: Any) -> Any:
        raise AssertionError("computed")

    lazy = da.from_array(X, chunks=(2, -1, -1)).map_blocks(fail, meta=np.empty((0, 0, 0), "f4"))
    found = describe(lazy, "democratic", **OPTIONS)
    with pytest.raises(AssertionError, match="computed"):
        found.compute()


def test_a_number_of_images_that_is_not_known_yet() -> None:
    lazy = da.from_array(X, chunks=(2, -1, -1))
    some = lazy[lazy[:, 0, 0] > 0]
    wanted = dp.describe(X[X[:, 0, 0] > 0], "sum", **OPTIONS)
    assert np.array_equal(describe(some, "sum", **OPTIONS).compute(), wanted)


@pytest.mark.parametrize(
    ("features", "options", "words"),
    [
        (X, {}, "X must be a Dask array; got a ndarray."),
        (
            da.from_array(X, chunks=(3, 5, -1)),
            {},
            "X must be in blocks of whole images, but is in chunks of (5, 4) of their (10, 4): "
            "X.rechunk({-2: -1, -1: -1}) makes such blocks.",
        ),
        (da.from_array(X.reshape(7, 5, 2, 4)), {}, "unless layout is given"),
        (da.from_array(X[0]), {"layout": "nchw"}, "X must have the axes (c,h,w) of an image"),
        (da.from_array(X[0, 0]), {}, "X must have the axes (n,d) of an image; got shape (4,)."),
        (da.from_array(X), {"gamma": 2}, "gamma must be a number from 0 up to 1; got 2."),
        (da.from_array(X.astype(int)), {}, "got int64, convert it first."),
        (da.from_array(X), {"lengths": [1] * 7}, "lengths are not known to blocks: make the rows"),
    ],
)
def test_what_is_wrong_is_said_at_once(features: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(dp.InvalidInput, match=re.escape(words)):
        describe(features, "sum", **options)


def test_the_advice_for_blocks_helps() -> None:
    rechunked = da.from_array(X, chunks=(3, 5, 2)).rechunk({-2: -1, -1: -1})
    found = describe(rechunked, "sum", **OPTIONS)
    assert np.array_equal(found.compute(), dp.describe(X, "sum", **OPTIONS))


def test_images_of_unknown_size_are_refused() -> None:
    rows = da.from_array(X[0], chunks=-1)
    with pytest.raises(dp.InvalidInput, match="compute_chunk_sizes"):
        describe(rows[rows[:, 0] > 0], "sum", **OPTIONS)


def test_with_apply_ufunc_of_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    named = xarray.DataArray(X, dims=("image", "n", "d")).chunk(image=2)
    found = xarray.apply_ufunc(
        describe,
        named,
        "sum",
        kwargs=OPTIONS,
        input_core_dims=[["n", "d"], []],
        output_core_dims=[["D"]],
        dask="allowed",
    )
    assert found.dims == ("image", "D")
    assert np.array_equal(found.to_numpy(), dp.describe(X, "sum", **OPTIONS))
