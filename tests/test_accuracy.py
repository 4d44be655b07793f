"""Accuracy as a choice: of ``choose`` by what it measures, of ``auto`` by what is known."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import races
import stored_races
from click.testing import CliRunner
from fake_workers import FakeWorkers
from hypothesis import given, settings
from hypothesis import strategies as st

from demopool import reference
from demopool.choosing import chooser, earlier_samples, printing, racing, rule
from demopool.commands import choose as command
from demopool.commands.explain import explain_command
from demopool.common import places
from demopool.conformance import features
from demopool.errors import InvalidInput, Unsupported
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.routes import ROUTES, descriptor_routes
from demopool.problem.vocabulary import DESCRIPTORS, Descriptor, Dtype, State, Verdict
from demopool.profiles import accuracy, auto, store
from demopool.profiles.records import Profile

import demopool as dp  # isort: skip

VGG = "VGG-16 at 224 px"
POWER = Case(descriptor=Descriptor("power"), batch=2, n=49, d=64)
TIMES = {"numpy:cpu/eigh": 0.001, "numpy:cpu/svd": 0.003, "numpy:cpu/gram": 0.002}
ERRORS = {"numpy:cpu/eigh": 1e-3, "numpy:cpu/svd": 2e-6, "numpy:cpu/gram": 1e-4}


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    store.forget()


@cache
def _expected(name: str, dtype: str, p: float) -> Any:
    return reference.describe(features.make(name, dtype), "power", p=p, normalize="none")


def _error(dtype: str, p: float, **options: Any) -> float:
    """Relative to the largest entry before the final norm, on real features."""
    X, expected = features.make(VGG, dtype), _expected(VGG, dtype, p)
    found = np.asarray(dp.describe(X, "power", p=p, normalize="none", **options), np.float64)
    return float((np.abs(found - expected).max(axis=-1) / np.abs(expected).max(axis=-1)).max())


# --- what is known ---


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.4, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("route", ["eigh", "gram", "svd"])
def test_real_features_are_off_by_no_more_than_expected(dtype: str, p: float, route: str) -> None:
    _, n, d = features.make(VGG, dtype).shape
    case = Case(descriptor=Descriptor("power"), n=n, d=d, dtype=Dtype(dtype), p=p)
    error = _error(dtype, p, backend="numpy:cpu", route=route)
    assert error <= accuracy.expected_error(route, case)


@pytest.mark.parametrize("route", ["newton-schulz", "polar"])
def test_routes_by_products_are_off_by_no_more_than_expected(route: str) -> None:
    case = Case(descriptor=Descriptor("power"), n=196, d=512)
    error = _error("float32", 0.5, backend="numpy:cpu", route=route)
    assert 1e-5 < error <= accuracy.expected_error(route, case)


def test_every_route_has_an_expectation_and_fewer_digits_are_less_accurate() -> None:
    for descriptor in DESCRIPTORS:
        for route in descriptor_routes(descriptor):
            errors = [
                accuracy.expected_error(route, Case(descriptor=descriptor, dtype=Dtype(dtype)))
                for dtype in ("float64", "float32")
            ]
            assert 0 < errors[0] < errors[1] < 1
    powers = {route.name for route in ROUTES if route.operation == "power"}
    # A route that is new takes the worst of these until the module says otherwise.
    assert powers == {"eigh", "newton", "newton-schulz", "polar", "gram", "svd"}


def test_a_larger_measured_error_counts_and_a_smaller_does_not() -> None:
    """Noise is easier than real features, so it cannot show that a route is accurate."""
    expected = accuracy.expected_error("svd", POWER)
    for measured in (expected / 100, expected * 100):
        row = races.choice(POWER, {"numpy:cpu/svd": 0.003}, "numpy:cpu/svd").rows[0]
        row = type(row)(**{**row.__dict__, "error": measured, "first_call_s": 0.5})
        store.remember(races.choice(POWER, {}, "numpy:cpu/svd", row))
        found = auto.explain((2, 49, 64), "power", route="svd")
        assert found.options[0].error == max(expected, measured)
        assert found.options[0].first_call_s == 0.5
        other = auto.explain((2, 49, 64), "power", route="svd", p=0.4)
        assert other.options[0].error == accuracy.expected_error("svd", Case(**_with_p(0.4)))


def _with_p(p: float) -> dict[str, Any]:
    return {"descriptor": Descriptor("power"), "batch": 2, "n": 49, "d": 64, "p": p}


def test_an_error_belongs_to_its_p_when_records_merge() -> None:
    svd = Candidate("numpy:cpu", "svd")
    for p in (0.5, 0.4):
        case = Case(**_with_p(p))
        row = races.choice(case, {str(svd): 0.003}, str(svd)).rows[0]
        row = type(row)(**{**row.__dict__, "error": 0.1 * p})
        store.remember(races.choice(case, {}, str(svd), row))
    profile: Profile = store.here()
    assert len(profile.decided) == 1
    assert profile.error(Case(**_with_p(0.4)), svd) == pytest.approx(0.04)
    assert profile.error(Case(**_with_p(0.5)), svd) is None


# --- what auto takes ---


def test_real_features_come_out_as_accurate_as_was_asked_for() -> None:
    assert _error("float32", 0.5, backend="numpy:cpu", accuracy=1e-5) <= 1e-5
    assert _error("float32", 0.5, backend="numpy:cpu", accuracy="accurate") <= 1e-5
    # What it is for: the fastest route is not.
    assert _error("float32", 0.5, backend="numpy:cpu") > 1e-4


@pytest.mark.parametrize("wanted", [1e-5, "accurate"])
def test_torch_modules_and_operations_follow(wanted: Any) -> None:
    torch = pytest.importorskip("torch")
    from demopool.torch import MatrixPowerPool

    X, expected = features.make(VGG, "float32"), _expected(VGG, "float32", 0.5)
    module = MatrixPowerPool(accuracy=wanted, normalize="none", layout="nd")
    assert f"accuracy={wanted!r}" in repr(module)
    ops = dp.backend("torch:cpu")
    for found in (module(torch.from_numpy(X.copy())), ops.power(ops.asarray(X), accuracy=wanted)):
        given = found.numpy().reshape(expected.shape)
        assert np.abs(given - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_matrix_alone_has_no_route_by_svd() -> None:
    A = np.eye(64, dtype=np.float32)
    ops = dp.backend("numpy:cpu")
    assert np.allclose(ops.matrix_power(A, accuracy=0.01), A)
    with pytest.raises(Unsupported, match="eigh with dtype float64 by about"):
        ops.matrix_power(A, accuracy=1e-5)


limits = st.floats(1e-16, 1.0, exclude_min=True)


def _picked(case: Case, limit: str | float) -> float | None:
    """The known error of what is taken; None if nothing is accurate enough."""
    try:
        taken = auto.pick(case, home="numpy:cpu", backend="numpy:cpu", accuracy=limit)
    except Unsupported:
        return None
    return accuracy.known_error(taken, case, store.here())


@settings(max_examples=60)
@given(
    st.sampled_from(DESCRIPTORS),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([0.1, 0.5, 0.8]),
    st.sampled_from([(49, 512), (784, 64)]),
    limits,
    limits,
)
def test_a_tighter_limit_never_takes_a_less_accurate_route(
    descriptor: Descriptor, dtype: str, p: float, sizes: tuple[int, int], one: float, other: float
) -> None:
    n, d = sizes
    case = Case(descriptor=descriptor, n=n, d=d, dtype=Dtype(dtype), p=p)
    tight, loose = (_picked(case, limit) for limit in sorted((one, other)))
    if loose is None:
        assert tight is None
    else:
        assert loose <= max(one, other)
        assert tight is None or tight <= min(min(one, other), loose)
    best, fast = _picked(case, "accurate"), _picked(case, "fast")
    assert best is not None
    assert fast is not None
    assert best <= min(fast, loose or best)


ways = st.sampled_from(list(TIMES))
clocked = st.floats(1e-5, 1e-3)


@settings(max_examples=30, deadline=None)
@given(ways, st.tuples(clocked, clocked, clocked))
def test_the_law_holds_whatever_was_measured_and_recommended(
    best: str, seconds: tuple[float, float, float]
) -> None:
    store.reset()
    store.remember(races.choice(POWER, dict(zip(TIMES, seconds, strict=True)), best))
    errors = [_picked(POWER, 10.0**-digits) for digits in range(6)]
    known = [error for error in errors if error is not None]
    assert known == sorted(known, reverse=True)


def test_a_recommendation_is_taken_if_it_is_accurate_enough() -> None:
    times = {"numpy:cpu/eigh": 9e-5, "numpy:cpu/svd": 1.2e-4, "numpy:cpu/gram": 1e-4}
    store.remember(races.choice(POWER, times, "numpy:cpu/gram"))
    for wanted, route in (("fast", "gram"), (0.5, "gram"), (1e-5, "svd"), ("accurate", "svd")):
        assert auto.explain((2, 49, 64), "power", accuracy=wanted).route == route


def test_what_would_be_accurate_enough_is_said() -> None:
    X = features.make(VGG, "float32")
    with pytest.raises(Unsupported) as refused:
        dp.describe(X, "power", accuracy=1e-9)
    assert "power in float32 with accuracy=1e-09" in str(refused.value)
    assert "the most accurate route, svd, is off by about 6.1e-06" in str(refused.value)
    assert "svd with dtype float64 by about" in str(refused.value)
    wide = dp.describe(X, "power", accuracy=1e-9, dtype="float64", normalize="none")
    expected = _expected(VGG, "float32", 0.5)
    assert np.abs(wide - expected).max() <= 1e-9 * np.abs(expected).max()
    with pytest.raises(Unsupported) as refused:
        dp.describe(X, "power", accuracy=1e-300, dtype="float64")
    assert "float64 by" not in str(refused.value)


def test_a_route_that_crashed_is_the_last_resort_a_wrong_one_is_not() -> None:
    crashed = races.without_time("numpy:cpu/svd", State.ERROR, "it crashed")
    wrong = races.without_time("numpy:cpu/svd", State.WRONG, "its error is 1")
    store.remember(races.choice(POWER, {"numpy:cpu/gram": 1e-3}, "numpy:cpu/gram", crashed))
    assert auto.explain((2, 49, 64), "power", accuracy=1e-5).route == "svd"
    store.reset()
    store.remember(races.choice(POWER, {"numpy:cpu/gram": 1e-3}, "numpy:cpu/gram", wrong))
    with pytest.raises(Unsupported, match="accuracy=1e-05"):
        auto.explain((2, 49, 64), "power", accuracy=1e-5)


@pytest.mark.parametrize("value", [-1e-5, 0, 2, float("nan"), float("inf"), "exact", "1e-5", True])
def test_accuracies_that_make_no_sense(value: Any) -> None:
    X = np.ones((3, 2), np.float32)
    with pytest.raises(InvalidInput, match="accuracy must be fast, accurate, or a relative error"):
        dp.describe(X, "power", accuracy=value)
    with pytest.raises(InvalidInput, match="accuracy must be"):
        dp.backend("numpy:cpu").power(X, accuracy=value)


def test_accuracy_and_a_route_contradict_each_other() -> None:
    X = np.ones((3, 2), np.float32)
    with pytest.raises(InvalidInput, match="accuracy picks the route: give one of the two"):
        dp.describe(X, "power", route="eigh", accuracy="accurate")
    with pytest.raises(InvalidInput, match="accuracy picks the route"):
        dp.backend("numpy:cpu").power(X, route="eigh", accuracy=1e-5)
    with pytest.raises(InvalidInput, match="accuracy picks the route"):
        auto.explain((3, 2), "power", route="eigh", accuracy=1e-5)
    # What the route leaves open can still be picked.
    dp.describe(X, "sketched-democratic", k=16, route="auto+moment", accuracy="accurate")
    dp.describe(X, "power", route="eigh", accuracy="fast")


def test_explain_shows_errors() -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(explain_command, arguments, standalone_mode=False)

    arguments = ("--descriptor", "power", "--n", "196", "--accuracy", "1e-5")
    done = run(*arguments)
    assert "numpy:cpu/svd" in done.output
    assert "Its error is about 6.1e-06, for accuracy=1e-05." in done.output
    assert " inaccurate" in done.output
    found = json.loads(run(*arguments, "--json").output)
    states = {option["route"]: option["state"] for option in found["options"]}
    assert (states["svd"], states["eigh"]) == ("ok", "inaccurate")
    assert all(option["error"] > 0 for option in found["options"] if option["route"] != "newton")
    for bad in ("nan", "-1", "exact"):
        assert isinstance(run("--accuracy", bad).exception, InvalidInput)


# --- what choose takes ---


class Judged(FakeWorkers):
    """Each candidate has an error of its own."""

    def __init__(self, calls: Any) -> None:
        super().__init__(calls)
        self.errors = ERRORS


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(racing, "PAUSE", 0.0)
    monkeypatch.setattr(racing.Others, "cores", lambda self: 0.0)
    field = [Candidate.parse(name) for name in TIMES]
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], field))


def _choose(workers: FakeWorkers | None = None, **options: Any) -> Any:
    workers = workers or Judged(TIMES)
    fixed = {"budget": 20.0, "workers": workers, "now": workers.clock, "warnings": ()}
    return chooser.choose(POWER, **{**fixed, **options})


@pytest.mark.parametrize(
    ("limit", "route"), [(None, "eigh"), (1e-3, "eigh"), (5e-4, "gram"), (1e-5, "svd")]
)
def test_only_those_within_the_limit_compete(quick: None, limit: Any, route: str) -> None:
    found = _choose(max_error=limit)
    assert (found.state, found.route) == (Verdict.FASTEST, route)
    for row in found.rows:
        too_far = limit is not None and ERRORS[str(row.candidate)] > limit
        assert row.state is (State.INACCURATE if too_far else State.OK)
        assert row.error == ERRORS[str(row.candidate)]
        assert (f"allowed is {limit:.1e}" in row.reason) if too_far else not row.reason


def test_the_answer_says_how_accurate_it_is_and_who_is_left_out(quick: None) -> None:
    found = _choose(max_error=1e-5)
    only = "the only one that was allowed to compete, 1 MB, error 2.0e-06."
    assert only in found.sentence
    text = "\n".join(printing.lines(found))
    assert "left out: numpy:cpu/eigh: off by about 1.0e-03, allowed is 1.0e-05" in text
    result = found.as_result()
    assert result["max_error"] == 1e-5
    assert {row["state"] for row in result["candidates"]} == {"ok", "inaccurate"}
    assert _choose().as_result()["max_error"] is None


def test_nothing_is_accurate_enough(quick: None) -> None:
    found = _choose(max_error=1e-9)
    assert found.backend is None
    assert "Nothing is as accurate as --max-error 1e-09" in found.sentence
    assert "--dtype float64" in found.sentence


def test_stored_measurements_answer_for_any_limit(quick: None) -> None:
    """And nobody whom a limit kept out is kept out afterwards."""
    assert _choose().route == "eigh"
    workers = Judged(TIMES)
    found = _choose(workers, max_error=5e-4)
    assert found.route == "gram"
    assert "run_descriptors" not in {asked[0] for asked in workers.asked}
    assert _choose().route == "eigh"


def test_rounds_that_are_made_again_replace_those_from_before(tmp_path: Path) -> None:
    """A limit brings another field into a race that goes on: no round is of two moments."""
    rows = list(stored_races.race(POWER, TIMES, session="s", rounds=3))
    fast = [s for s in rows if s.route == "eigh" and s.round >= 2]
    others = [s for s in rows if s.route != "eigh"]
    again = [replace(others[0], measure="call_s"), *(s for s in others if s.round == 2)]
    before = [s for s in rows if s.round < 2 or s.route != "svd"]
    assert fast[0] in before
    made = [sorted(r.lowest) for r in earlier_samples.rounds_of([*before, *again])]
    assert made == [sorted(TIMES), sorted(set(TIMES) - {"numpy:cpu/eigh"})]


def test_auto_learns_no_recommendation_from_a_limit(quick: None) -> None:
    _choose(max_error=1e-5)
    (record,) = store.here().decided
    assert not record.whole
    assert {m.route: m.error for m in record.candidates} == {"svd": 2e-6}


@pytest.mark.parametrize("value", [-1e-5, 0.0, 1.5, float("nan"), float("inf"), "small", True])
def test_limits_that_make_no_sense(quick: None, value: Any) -> None:
    with pytest.raises(InvalidInput, match="max_error must be a number above 0 up to 1"):
        _choose(max_error=value)


@pytest.mark.parametrize("text", ["-1e-5", "0", "1.5", "small", "nan"])
def test_the_command_refuses_them_too(text: str) -> None:
    done = CliRunner().invoke(command.choose_command, ["--n", "3", "--d", "2", "--max-error", text])
    assert done.exit_code != 0
    assert "max-error" in done.output or "max_error" in str(done.exception)


def test_the_command_hands_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def choose(case: Case, **options: Any) -> Any:
        asked.append(options)
        return races.choice(case, TIMES, "numpy:cpu/svd")

    monkeypatch.setattr(command, "choose", choose)
    CliRunner().invoke(command.choose_command, ["--max-error", "1e-5"], standalone_mode=False)
    assert asked[0]["max_error"] == 1e-5
