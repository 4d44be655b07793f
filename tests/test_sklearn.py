"""``demopool.sklearn``: scikit-learn's own checks, and the values of ``describe``."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from inspect import signature
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags

import demopool as dp
from demopool.problem.vocabulary import DESCRIPTORS
from demopool.sklearn import SecondOrderPooling

FIXED: dict[str, Any] = {"backend": "numpy:cpu", "zero_rows": "ignore"}
X = np.random.default_rng(0).standard_normal((6, 10, 4), dtype=np.float32)


class OfOneRow(SecondOrderPooling):
    """The checks have tables of two axes: each row of one is here an image of one feature."""

    def fit(self, X: Any, y: Any = None) -> OfOneRow:
        super().fit(_images(X), y)
        return self

    def transform(self, X: Any) -> Any:
        return super().transform(_images(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def _images(X: Any) -> Any:
    if hasattr(X, "toarray"):
        return X
    X = np.asarray(X)
    return X[:, np.newaxis] if X.ndim == 2 else X


RULED_OUT = {
    "check_estimators_empty_data_messages": "it wants a message with a shape of two axes",
}


@estimator_checks.parametrize_with_checks(
    [OfOneRow(**FIXED), OfOneRow("sketched-power", k=16, **FIXED)],
    expected_failed_checks=lambda estimator: RULED_OUT,
    xfail_strict=True,
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "name",
    [
        "check_set_output_transform",
        "check_transformer_get_feature_names_out",
    ],
)
def test_checks_that_scikit_learn_makes_of_its_own_transformers(name: str) -> None:
    """Without those that give a frame of pandas, which has two axes: the next test is for them."""
    getattr(estimator_checks, name)("OfOneRow", OfOneRow(**FIXED))


def test_set_output_makes_a_frame_with_the_names_of_the_features() -> None:
    pooling = SecondOrderPooling("sketched-sum", k=3, **FIXED).set_output(transform="pandas")
    frame = pooling.fit_transform(X)
    assert list(frame.columns) == [f"secondorderpooling{i}" for i in range(3)]
    wanted = dp.describe(X, "sketched-sum", k=3, **FIXED)
    assert np.array_equal(frame.to_numpy(), wanted)


def test_an_image_without_features_is_refused() -> None:
    """In place of the check that is ruled out."""
    with pytest.raises(dp.InvalidInput, match="d >= 1"):
        SecondOrderPooling().fit(X[..., :0])


def test_it_says_that_it_wants_three_axes() -> None:
    tags = get_tags(SecondOrderPooling()).input_tags
    assert (tags.two_d_array, tags.three_d_array) == (False, True)


def test_parameters_and_defaults_are_those_of_describe() -> None:
    own, theirs = (signature(f).parameters for f in (SecondOrderPooling, dp.describe))
    # The features, and what is said of each image: a list of images needs no lengths.
    assert list(own) == [name for name in theirs if name not in ("X", "lengths")]
    for name, parameter in own.items():
        assert parameter.annotation == theirs[name].annotation, name
        assert name == "descriptor" or parameter.default == theirs[name].default, name


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_descriptors_are_those_of_describe(descriptor: str) -> None:
    options: dict[str, Any] = {"k": 32, "gamma": 0.3, "normalize": "l2", "backend": "numpy:cpu"}
    pooling = SecondOrderPooling(descriptor, **options)
    found = pooling.fit_transform(X)
    assert np.array_equal(found, dp.describe(X, descriptor, **options))
    assert len(pooling.get_feature_names_out()) == found.shape[1]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_conv_maps_with_a_layout(layout: str) -> None:
    maps = X.reshape(6, 4, 5, 2) if layout == "nchw" else X.reshape(6, 5, 2, 4)
    pooling = SecondOrderPooling(layout=layout, **FIXED)
    found = pooling.fit_transform(maps)
    assert pooling.n_features_in_ == 4
    assert np.array_equal(found, dp.describe(maps, "democratic", layout=layout, **FIXED))
    assert np.array_equal(found, pooling.transform(list(maps)))


def test_images_of_a_list_may_differ_in_n_and_keep_their_order() -> None:
    images = [X[0], X[1, :7], X[2], X[3, :7].astype(np.float64), X[4, :3].tolist()]
    found = SecondOrderPooling(**FIXED).fit_transform(images)
    wanted = [dp.describe(np.asarray(x), "democratic", **FIXED) for x in images]
    assert np.array_equal(found, np.stack(wanted))


def test_integers_become_float64() -> None:
    found = SecondOrderPooling(**FIXED).fit_transform(np.arange(12).reshape(2, 3, 2))
    assert found.dtype == np.float64


def test_in_a_pipeline_and_a_grid_search() -> None:
    y = [0, 0, 0, 1, 1, 1]
    model = make_pipeline(SecondOrderPooling(**FIXED), LogisticRegression())
    search = GridSearchCV(model, {"secondorderpooling__gamma": [0.0, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["secondorderpooling__gamma"] in (0.0, 1.0)
    ragged = [x[: 5 + i] for i, x in enumerate(X)]
    found = GridSearchCV(model, {"secondorderpooling__gamma": [0.0, 1.0]}, cv=3).fit(ragged, y)
    assert found.predict(ragged).shape == (6,)


def test_cloned_and_pickled() -> None:
    pooling = SecondOrderPooling("power", p=0.25, **FIXED).fit(X)
    again = pickle.loads(pickle.dumps(pooling))
    assert np.array_equal(again.transform(X), pooling.transform(X))
    assert clone(pooling).get_params() == pooling.get_params()


@pytest.mark.parametrize(
    ("features", "options", "words"),
    [
        (X[0], {}, "X must be (N, n, d); got shape (10, 4). Reshape your data, or give layout="),
        (X.reshape(6, 4, 5, 2), {}, "or give layout='nchw' or 'nhwc' for conv maps."),
        (X, {"layout": "nchw"}, "X must be (N, C, H, W); got shape (6, 10, 4). Reshape your data."),
        ([X[0], X[0, 0]], {}, "image 1 of X must be (n, d); got shape (4,)."),
        ([X[0], X[1, :, :3]], {}, "X must have images of one d, at least one; got 3 and 4."),
        ([], {}, "X must have images of one d, at least one; got no image."),
        ([X[0], X[1] * np.nan], {}, "Input image 1 of X contains NaN."),
        (X, {"gamma": 2}, "gamma must be a number from 0 up to 1; got 2."),
        (X, {"descriptor": "mean"}, "descriptor must be one of sum,"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_fitted(
    features: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        SecondOrderPooling(**options).fit(features)


def test_a_wrong_image_of_a_list_is_named_by_its_place() -> None:
    pooling = SecondOrderPooling(**FIXED).fit(X)
    images = [X[0], X[1, :5], X[2].copy(), X[3, :5]]
    images[2][7, 1] = np.inf
    with pytest.raises(
        dp.InvalidInput, match=r"^Image 2 of X is refused: X must be finite.* row 7"
    ):
        pooling.transform(images)


def test_other_images_must_have_the_same_d() -> None:
    with pytest.raises(dp.InvalidInput, match="X has 3 features, but SecondOrderPooling is exp"):
        SecondOrderPooling(**FIXED).fit(X).transform(X[..., :3])


@pytest.mark.parametrize("library", ["sklearn", "dask"])
def test_without_the_library_a_sentence_says_what_to_install(library: str) -> None:
    code = f"""
import sys, demopool

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{library}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name="{library}")

sys.meta_path.insert(0, Absent())
try:
    import demopool.{library}
except demopool.BackendUnavailable as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    start, end = f"demopool.{library} is not available: ", "(in a clone)\n"
    assert done.stdout.startswith(start), done.stderr
    assert done.stdout.endswith(end)


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, demopool; demopool.describe; print({'sklearn', 'dask'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
