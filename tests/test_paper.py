"""`demopool paper`: its numbers are the reference's, and its verdicts follow from its numbers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("matplotlib")

from demopool import reference
from demopool.commands import cli
from demopool.errors import InvalidInput
from demopool.paper import bounds, images, sinkhorn, sketches, spectra, statements
from demopool.paper.analysis import Findings, analyse
from demopool.paper.images import Analysed, analysed, drawn
from demopool.paper.statements import FAILS, HOLDS, OPEN, Statement
from demopool.problem.hashing import hashes


def _features(n: int, d: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    X = np.maximum(rng.standard_normal((n, d)) - 0.5, 0.0)
    return X * rng.lognormal(size=(n, 1)) + 0.01


def _image(n: int = 30, d: int = 12, seed: int = 0) -> Analysed:
    found = analysed(_features(n, d, seed), np.random.default_rng(0))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def found() -> Findings:
    some = [_features(24 + 2 * seed, 10, seed) for seed in range(8)]
    return analyse(drawn(some, "eight", most=50, seed=0), lambda *_: None)


def _of(said: list[Statement], words: str) -> Statement:
    (one,) = [s for s in said if words in s.text]
    return one


# --- numbers ---


@pytest.mark.parametrize(("n", "d"), [(30, 12), (9, 20)])
def test_contributions_and_bounds_over_p_are_those_of_the_reference(n: int, d: int) -> None:
    image = _image(n, d)
    measured = bounds.over_p(image)
    for at, p in enumerate(bounds.POWERS):
        right = reference.bounds(image.X, p=p)
        C = reference.contributions(image.X, p=p)
        np.testing.assert_allclose(image.power_contributions(p), C, rtol=1e-8)
        for ours, theirs in (
            *(("upper", right.maximum), ("lower", right.minimum), ("radius", right.radius)),
            *((name, getattr(right, name)) for name in bounds.CHAIN[:3]),
            *(("maximum", C.max()), ("minimum", C.min()), ("mean", C.mean())),
        ):
            np.testing.assert_allclose(measured[ours][at], theirs, rtol=1e-7, atol=1e-12)
        assert measured["total_error"][at] < 1e-10


def test_over_gamma_the_bounds_are_those_of_the_weighted_features() -> None:
    image = _image()
    measured = bounds.over_gamma(image)
    for at, gamma in enumerate(bounds.GAMMAS):
        a = reference.weights(image.X, gamma=gamma)
        C = reference.contributions(image.X, a)
        right = reference.bounds(np.sqrt(a)[:, None] * image.X, p=1.0)
        np.testing.assert_allclose(measured["maximum"][at], C.max() / C.mean(), rtol=1e-8)
        np.testing.assert_allclose(measured["upper"][at], right.maximum / C.mean(), rtol=1e-8)
        np.testing.assert_allclose(measured["lower"][at], right.minimum / C.mean(), rtol=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_weights_and_spectra_are_those_of_the_reference(gamma: float) -> None:
    image = _image()
    a = reference.weights(image.X, gamma=gamma)
    np.testing.assert_allclose(sinkhorn.weights(image.K, gamma), a, rtol=1e-10)
    values = spectra.weighted_eigenvalues(image, a)
    np.testing.assert_allclose(values, reference.spectrum(image.X, a), rtol=1e-8)
    np.testing.assert_allclose(
        spectra.weighted_contributions(image, a), reference.contributions(image.X, a), rtol=1e-10
    )


def test_sketches_are_those_of_the_reference() -> None:
    X, a = _features(7, 9, 0), np.arange(1.0, 8.0)
    one = hashes(9, 16, seed=3)
    np.testing.assert_allclose(
        sketches.of_features(X, one), reference.sketch(X, one), atol=1e-12 * np.abs(X).max() ** 2
    )
    pooled = reference.pool_sketch(X, one, a)
    np.testing.assert_allclose(sketches.of_moment((X.T * a) @ X, one), pooled, rtol=1e-8)


def test_the_distance_of_two_descriptors_needs_the_kernel_only() -> None:
    image = _image()
    pair = [reference.weights(image.X, gamma=gamma) for gamma in (0.0, 0.5)]
    one, other = (reference.normalize(reference.pool(image.X, a), axes=2, kind="l2") for a in pair)
    np.testing.assert_allclose(
        sinkhorn.distance(image.K, *pair), np.sqrt(((one - other) ** 2).sum()), rtol=1e-8
    )


def test_enough_means_from_there_on() -> None:
    near, far = sinkhorn.ENOUGH / 2, sinkhorn.ENOUGH * 2
    given = np.array([[far, near, far, near, near], [far, far, far, far, far], [near] * 5])
    np.testing.assert_array_equal(sinkhorn.needed(given), [3.0, np.nan, 0.0])


def test_the_slope_of_a_power_law_is_its_exponent() -> None:
    sizes = np.array(sketches.sizes(512))
    assert (sizes[0], sizes[-1]) == (128, 16384)
    exact = np.array([3.0 * sizes**-0.5] * 4)
    assert sketches.slope(exact, sizes) == pytest.approx(-0.5)
    assert sketches.slope_interval(exact, sizes, 0) == pytest.approx((-0.5, -0.5))


def test_short_features_have_no_sketches_to_judge() -> None:
    found = analyse(drawn([_features(6, 2, 0)], "", most=1, seed=0), lambda *_: None)
    assert _of(statements.all_of(found), "kernel values").verdict == OPEN


# --- verdicts ---


def test_the_theorems_hold_and_every_statement_has_a_number(found: Findings) -> None:
    said = statements.all_of(found)
    for one in said:
        if one.where.startswith(("Proposition 4", "Proposition 5")):
            assert one.verdict == HOLDS, one
        assert isinstance(one.number, float)
        assert one.verdict in (HOLDS, FAILS, OPEN)
    assert _of(said, "flattens the contributions the most").verdict == HOLDS


@pytest.mark.parametrize(
    ("part", "name", "spoil", "words"),
    [
        ("spectra", "rank", lambda v: v[:, ::-1], "square root yields a flatter"),
        ("spectra", "variation", lambda v: v[:, ::-1], "more evenly distributed"),
        ("powers", "maximum", lambda v: 2 * v, "minimum contribution hold, for every p"),
        ("powers", "variance", lambda v: v[:, ::-1], "reduces the variance"),
        ("powers", "radius", lambda v: v[:, ::-1], "monotonic function of p"),
        ("powers", "total_error", lambda v: v + 1e-3, "sum to"),
        ("gammas", "bhatia_davis", lambda v: 0 * v, "bounds, in their order, for every gamma"),
        ("sinkhorn", "distance", lambda v: 0 * v + 1, "10 iterations are sufficient"),
        ("sinkhorn", "level", lambda v: 0 * v + 2, "oscillates"),
        ("kernels", "definite", lambda v: v + 0.1, "strictly positive definite"),
        ("kernels", "outside", lambda v: 0 * v, "may not lie in the linear span"),
        ("sketches", "kernel", lambda v: 0 * v + 1, "kernel values"),
    ],
)
def test_other_numbers_give_the_other_verdict(
    found: Findings, part: str, name: str, spoil: Callable[[Any], Any], words: str
) -> None:
    measured = getattr(found, part)
    other = replace(found, **{part: {**measured, name: spoil(measured[name])}})
    assert _of(statements.all_of(other), words).verdict == FAILS


def test_few_images_decide_nothing_and_six_do() -> None:
    assert statements.verdict_of(5, 5) == OPEN
    assert statements.verdict_of(6, 6) == HOLDS
    assert statements.verdict_of(0, 6) == FAILS
    assert statements.verdict_of(30, 50) == OPEN


def test_equal_features_make_the_kernel_matrix_singular() -> None:
    X = _features(20, 8, 0)
    X[1] = X[0]
    found = analyse(drawn([X], "one", most=1, seed=0), lambda *_: None)
    assert _of(statements.all_of(found), "strictly positive definite").verdict == FAILS


# --- images ---


def test_zero_rows_are_left_out_and_scale_changes_nothing() -> None:
    X = _features(20, 8, 0)
    with_zeros = np.insert(X, [3, 9], 0.0, axis=0) * 1e6
    one, other = (analysed(x, np.random.default_rng(0)) for x in (X, with_zeros))
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one.K, other.K, rtol=1e-12)


def test_the_sample_is_drawn_with_the_seed() -> None:
    many = [_features(3, 2, 0)] * 40
    first, again, other = (drawn(many, "", most=5, seed=seed).rows for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) == 5
    assert drawn(many, "", most=50, seed=0).rows == tuple(range(40))


def test_many_features_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_ROWS", 10)
    assert _image(n=30).K.shape == (10, 10)


def test_an_image_of_zeros_is_left_out_and_only_such_images_are_an_error() -> None:
    zeros = np.zeros((4, 6))
    found = analyse(drawn([zeros, _features(9, 6, 0)], "", most=9, seed=0), lambda *_: None)
    assert found.images == 1
    assert "left out" in found.notes[0]
    with pytest.raises(InvalidInput, match="all features"):
        analyse(drawn([zeros], "", most=9, seed=0), lambda *_: None)


# --- the command ---


def test_the_command_writes_a_page_figures_and_tables(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", _features(12, 6, number).astype(np.float16))
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["paper", f"{tmp_path}/*.npy", "-o", str(out), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["images"] == 3
    assert len(told["statements"]) >= 20
    page = (out / "paper.html").read_text()
    assert page.count("<svg") == len(told["tables"]) == len(list(out.glob("*.png")))
    assert "src=" not in page
    assert "url(http" not in page
    for table in told["tables"]:
        with (out / f"{table['name']}.csv").open() as file:
            heading, *rows = csv.reader(file)
        assert heading == table["columns"]
        assert len(rows) == len(table["rows"])
        assert (out / f"{table['name']}.svg").read_text().startswith("<?xml")
    for one in told["statements"]:
        assert one["verdict"] in page


def test_what_cannot_be_shown_is_one_sentence(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((4, 6)))
    np.save(tmp_path / "b.npy", np.ones((4, 7)))
    np.save(tmp_path / "nan.npy", np.full((4, 6), np.nan))
    runner = CliRunner()
    for files, words in ((("a", "b"), "one length d"), (("a", "nan"), "nan.npy has NaN")):
        given = [str(tmp_path / f"{name}.npy") for name in files]
        done = runner.invoke(cli, ["paper", *given, "-o", str(tmp_path / "out")])
        assert isinstance(done.exception, InvalidInput)
        assert words in str(done.exception)
