"""What one race may not do to ``auto``: bar what only took long, forget times, fill the memory."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from races import CASE, HERE, TIMES, choice, without_time

import demopool as dp
from demopool.choosing.answer_types import Ranked
from demopool.machine.system import usual_threads
from demopool.measurement import memory
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State
from demopool.profiles import auto, costs, estimates, options, store
from demopool.profiles.eligibility import CallLimits, predicted_bytes

pytestmark = pytest.mark.usefixtures("empty_profile")


RESNET = Case(descriptor="power", batch=8, n=196, d=2048)


def _timeouts(backend: str, case: Case) -> list[Ranked]:
    """As on a busy machine: every candidate of a backend is given up, or not even tried."""
    routes = Subject("descriptor", case.descriptor).routes()
    return [
        without_time(str(Candidate(backend, route)), State.TIMEOUT, reason, bound)
        for i, route in enumerate(routes)
        for reason, bound in [
            ("predicted to take 40 s, may take 5 s", None)
            if i % 2
            else ("gave no answer within 30 s", 30.0)
        ]
    ]


def test_a_short_choose_does_not_move_large_jobs_to_a_route_that_cannot_fit() -> None:
    """The three lines of the issue: explain, choose --budget 1, explain again."""
    before = dp.explain((100_000, 64))
    assert before.route == "matrix-free"
    case = Case(batch=8, n=196, d=2048)
    late = [
        without_time(f"{b}/matrix-free", State.TIMEOUT, "predicted to take 2 s, may take 0.17 s")
        for b in ("numpy:cpu", "numba:cpu", "torch:cpu")
    ]
    times = {"numpy:cpu/dense": 0.030, "numba:cpu/dense": 0.029, "torch:cpu/dense": 0.04}
    assert store.remember(choice(case, times, "numba:cpu/dense", *late)) == ""
    after = dp.explain((100_000, 64))
    assert after.route == "matrix-free"
    assert {o.route for o in after.options if o.state is State.OK} == {"matrix-free"}
    assert "does not fit" not in after.sentence  # dense would not even be faster
    assert dp.explain((8, 196, 2048)).because == "measured"


def test_a_busy_choose_does_not_take_power_from_tensors() -> None:
    """After `dp.choose(Case("power", 8, 196, 2048))` where torch never answered in time."""
    torch = pytest.importorskip("torch")
    rows = _timeouts("torch:cpu", RESNET)
    store.remember(choice(RESNET, {"numpy:cpu/gram": 0.05}, "numpy:cpu/gram", *rows))
    y = dp.describe(torch.rand(2, 10, 8), "power")
    assert y.shape == (2, 64)
    found = dp.explain((8, 196, 2048), "power", backend="torch:cpu")
    given_up = [o for o in found.options if o.at_least_s]
    assert given_up
    assert all(o.predicted_s >= 30.0 for o in given_up)


def test_a_bound_holds_from_its_size_on_and_corrects_the_model_nearby() -> None:
    case = Case(batch=1, n=100, d=64)
    gave_up = without_time("numpy:cpu/dense", State.TIMEOUT, "no answer within 2 s", 2.0)
    store.remember(choice(case, {"numpy:cpu/matrix-free": 1e-3}, "numpy:cpu/matrix-free", gave_up))

    def dense(*shape: int) -> options.Option:
        found = dp.explain(shape, backend="numpy:cpu", route="dense")
        return found.options[0]

    assert dense(1, 100, 64).predicted_s == pytest.approx(2.0)
    assert dense(2, 100, 64).predicted_s >= 2.0
    shipped = costs.seconds("numpy:cpu", "weights", "dense", Case(batch=1, n=90, d=64))
    assert 30 * shipped < dense(1, 90, 64).predicted_s < 2.0  # a sample for the model, no bound
    assert dense(1, 90, 64).at_least_s is None
    # A time on a larger case disproves it.
    store.remember(choice(Case(batch=2, n=100, d=64), {"numpy:cpu/dense": 5e-3}, "numpy:cpu/dense"))
    assert dense(1, 100, 64).predicted_s < 0.1


def test_a_crash_bars_its_size_and_larger_ones_until_as_much_was_done() -> None:
    crash = without_time("numpy:cpu/dense", State.ERROR, "died of signal 11")
    store.remember(choice(CASE, {"numpy:cpu/matrix-free": 1.0}, "numpy:cpu/matrix-free", crash))

    def state(*shape: int) -> str:
        found = dp.explain(shape, backend="numpy:cpu")
        return next(o.state for o in found.options if o.route == "dense")

    assert [state(2, 40, 12), state(2, 41, 12), state(2, 39, 12)] == ["error", "error", "ok"]
    larger = Case(batch=4, n=80, d=12)
    store.remember(choice(larger, {"numpy:cpu/dense": 1e-3}, "numpy:cpu/dense"))
    assert [state(2, 40, 12), state(3, 50, 12), state(5, 80, 12)] == ["error", "ok", "error"]
    # Timed at last where it had crashed: nothing is held against it.
    store.remember(choice(CASE, {"numpy:cpu/dense": 1e-3}, "numpy:cpu/dense"))
    assert [state(2, 40, 12), state(5, 80, 12)] == ["ok", "ok"]


@pytest.mark.parametrize(("state", "words"), [(State.WRONG, "was wrong"), (State.ERROR, "crashed")])
def test_the_last_candidate_is_taken_with_a_warning(
    state: State, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "_warned", set())
    sum_ = Case(descriptor="sum", batch=2, n=40, d=12)
    store.remember(choice(sum_, {}, "", without_time("numpy:cpu/direct", state, "its reason")))
    found = dp.explain((2, 40, 12), "sum")
    assert (found.backend, found.route) == ("numpy:cpu", "direct")
    assert words in found.sentence
    assert "its reason" in found.warning
    X = np.ones((2, 40, 12), np.float32)
    with pytest.warns(RuntimeWarning, match="nothing else is left"):
        dp.describe(X, "sum")
    dp.describe(X, "sum")  # and said once


def _room(monkeypatch: pytest.MonkeyPatch, bytes_: float) -> None:
    monkeypatch.setattr(auto, "_rooms", {})
    monkeypatch.setattr(auto, "limits_here", lambda backend: CallLimits(None, bytes_))


def test_a_slow_route_is_preferred_to_one_that_cannot_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(batch=1, n=5000, d=2048)
    times = {"numpy:cpu/dense": 0.5, "numpy:cpu/matrix-free": 5.0}
    store.remember(choice(case, times, "numpy:cpu/dense"))
    needs = {
        route: predicted_bytes(
            Subject("descriptor", "democratic"), Candidate("numpy:cpu", route), case
        )
        for route in ("dense", "matrix-free")
    }
    assert needs["matrix-free"] < needs["dense"]
    _room(monkeypatch, 2 * needs["dense"])
    assert dp.explain((1, 5000, 2048)).route == "dense"
    _room(monkeypatch, (needs["dense"] + needs["matrix-free"]) / 2)
    found = dp.explain((1, 5000, 2048))
    assert found.route == "matrix-free"
    assert "numpy:cpu/dense would be faster, but does not fit" in found.sentence
    assert not found.warning
    assert auto.pick_route("numpy:cpu", "weights", (5000, 2048), "float32") == ("matrix-free")
    _room(monkeypatch, needs["matrix-free"] / 2)
    found = dp.explain((1, 5000, 2048))
    assert found.route == "matrix-free"
    assert "nothing is predicted to fit" in found.warning


def test_a_lack_of_memory_tells_what_the_call_was_seen_to_need_or_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is free when the answer is kept, or kept again from samples."""
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 22 * 10**9)
    killed = without_time("numpy:cpu/dense", State.OUT_OF_MEMORY, "the worker was killed")
    free = without_time("numpy:cpu/matrix-free", State.OUT_OF_MEMORY, "the worker was killed")
    seen = replace(free, peak_host_bytes=1e9)
    store.remember(choice(CASE, {"numba:cpu/dense": 1.0}, "numba:cpu/dense", killed, seen))

    def needed(route: str, n: int = 40) -> float:
        return dp.explain((2, n, 12), backend="numpy:cpu", route=route).options[0].needed_bytes

    assert needed("dense") < 10**6
    assert (needed("matrix-free"), needed("matrix-free", 50)) == (1e9, 1e9)
    assert needed("matrix-free", 39) < 10**6
    _room(monkeypatch, 5e8)
    assert dp.explain((2, 40, 12), backend="numpy:cpu").route == "dense"
    # Until it does as much.
    larger = Case(batch=2, n=50, d=12)
    store.remember(choice(larger, {"numpy:cpu/matrix-free": 1.0}, "numpy:cpu/matrix-free"))
    assert needed("matrix-free") < 10**6


def test_who_was_left_out_has_shown_nothing() -> None:
    left_out = (
        without_time("numpy:cpu/dense", State.TIMEOUT, "left out: about 9 s", untried=True),
        without_time("torch:cpu/dense", State.OUT_OF_MEMORY, "needs 9 GB", untried=True),
        without_time("torch:cpu/matrix-free", State.ERROR, "no process started", untried=True),
    )
    store.remember(choice(CASE, {"numba:cpu/dense": 1.0}, "numba:cpu/dense", *left_out))
    assert store.here().decided[0].untimed == ()


def test_a_warning_is_said_once_whatever_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_warned", set())
    case = Case(batch=1, n=5000, d=2048)
    _room(monkeypatch, 1e6)
    with pytest.warns(RuntimeWarning, match="nothing is predicted to fit"):
        auto.pick(case, home="numpy:cpu")
    _room(monkeypatch, 2e6)
    auto.pick(case, home="numpy:cpu")  # another sentence, the same matter


def _state(candidate: str, shape: tuple[int, ...], descriptor: str, **parameters: float) -> str:
    backend, route = candidate.split("/")
    found = dp.explain(shape, descriptor, backend=backend, **parameters)
    return next(str(o.state) for o in found.options if o.route == route)


def test_who_was_wrong_is_so_for_as_hard_a_job_and_until_that_is_checked_again() -> None:
    power = {p: Case(descriptor="power", batch=1, n=30, d=20, p=p) for p in (0.01, 0.1, 0.5)}
    gram = "numpy:cpu/gram"
    wrong = without_time(gram, State.WRONG, "its error is 3")
    store.remember(choice(power[0.1], {"numpy:cpu/svd": 1e-3}, "numpy:cpu/svd", wrong))

    def states() -> list[str]:
        return [_state(gram, (1, 60, 20), "power", p=p) for p in power]

    assert states() == ["wrong", "wrong", "ok"]
    store.remember(choice(power[0.5], {gram: 1e-3}, gram))
    assert states() == ["wrong", "wrong", "ok"]
    store.remember(choice(power[0.01], {}, "", wrong))
    store.remember(choice(power[0.1], {gram: 1e-3}, gram))
    assert states() == ["wrong", "ok", "ok"]
    store.remember(choice(power[0.01], {gram: 1e-3}, gram))
    assert states() == ["ok", "ok", "ok"]


def test_who_was_wrong_with_weights_is_so_for_that_gamma_and_tau() -> None:
    wrong = without_time("numpy:cpu/dense", State.WRONG, "its error is 3")
    case = replace(CASE, gamma=0.9)
    store.remember(choice(case, {"numpy:cpu/matrix-free": 1e-3}, "", wrong))
    assert _state("numpy:cpu/dense", (2, 40, 12), "democratic", gamma=0.9) == "wrong"
    assert _state("numpy:cpu/dense", (2, 40, 12), "democratic") == "ok"
    X = np.ones((2, 40, 12), np.float32)
    asked: list[Case] = []
    with pytest.MonkeyPatch.context() as patch:
        genuine = auto.pick
        patch.setattr(auto, "pick", lambda case, **o: asked.append(case) or genuine(case, **o))
        dp.describe(X, "democratic", gamma=0.9)
        dp.backend("numpy:cpu").weights(X, gamma=0.9)
    assert [case.gamma for case in asked] == [0.9, 0.9]


def test_times_of_other_threads_count_only_where_there_are_no_others() -> None:
    """One call given up and timed with one number of threads, and timed with another."""
    here, other = usual_threads(), usual_threads() + 1
    name, near = "numpy:cpu/dense", Case(batch=2, n=44, d=12)
    late = without_time(name, State.TIMEOUT, "no answer within 9 s", 9.0)
    store.remember(choice(near, {name: 10.0}, name, late, threads=other))
    slow = dp.explain((2, 44, 12), backend="numpy:cpu", route="dense").options[0]
    assert slow.predicted_s >= 9.0
    coefficients = store.here().coefficients
    store.remember(choice(CASE, {name: 3e-4}, name, threads=here))
    quick = dp.explain((2, 44, 12), backend="numpy:cpu", route="dense").options[0]
    assert quick.predicted_s < 1e-2
    assert quick.at_least_s is None
    alone = store.fit(tuple(d for d in store.here().decided if d.threads == here))
    assert store.here().coefficients == alone != coefficients
    # Also when the file was written for the others.
    store.remember(choice(Case(n=9, d=9), {name: 1.0}, name, threads=other))
    assert store.here().coefficients == alone


def test_an_answer_of_other_threads_has_its_own_time() -> None:
    """No "(-)": the answer, its time and those it is compared with are of one record."""
    name = "numba:cpu/dense"
    store.remember(choice(CASE, TIMES, name, threads=usual_threads() + 1))
    assert "fastest among 3 candidates (250 us)" in dp.explain((2, 40, 12)).sentence
    few = {"numpy:cpu/dense": 3e-4}
    store.remember(choice(CASE, few, "numpy:cpu/dense", whole=False))
    found = dp.explain((2, 40, 12))
    assert "(-)" not in found.sentence
    measured = {str(o.candidate): o.measured_s for o in found.options if o.measured_s}
    assert measured == few


def test_a_prediction_needs_a_margin_over_what_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, free = (Candidate("numpy:cpu", route) for route in ("dense", "matrix-free"))
    for factor, taken in ((0.8, dense), (0.5, free)):
        store.remember(choice(CASE, {str(dense): 1e-3}, str(dense), whole=False))
        predicted = {dense: 1e-3, free: factor * 1e-3}
        monkeypatch.setattr(estimates, "seconds", lambda c, case, profile, p=predicted: p[c])
        auto._survey.cache_clear()
        found = dp.explain((2, 40, 12), backend="numpy:cpu")
        assert found.route == taken.route


def test_what_was_measured_is_never_said_not_to_be() -> None:
    """Restricted, interrupted and undecided races give times; a later race without one of a
    candidate does not take its time away."""
    home = Candidate("numpy:cpu", "dense")
    few = {str(home): estimates.modelled(home, CASE, store.Profile())}
    store.remember(choice(CASE, few, str(home), whole=False))
    found = dp.explain((2, 40, 12))
    assert found.sentence.startswith("numpy:cpu/dense: measured here (")
    late = without_time(str(home), State.TIMEOUT, "no answer within 9 s", 9.0)
    times = {"numba:cpu/dense": 3 * few[str(home)]}
    store.remember(choice(CASE, times, "numba:cpu/dense", late, whole=False))
    found = dp.explain((2, 40, 12))
    measured = {str(o.candidate): o.measured_s for o in found.options if o.measured_s}
    assert measured == few | times
    assert (found.backend, found.route) == tuple(home)
    assert "not measured" not in found.sentence
    other = dp.explain((2, 40, 12), route="matrix-free", backend="numpy:cpu")
    assert "not timed at these sizes, where 2 others were" in other.sentence


def test_an_answer_is_overruled_by_a_much_lower_time_of_a_later_race() -> None:
    store.remember(choice(CASE, TIMES, "numba:cpu/dense"))
    quick = {"numpy:cpu/dense": 1e-4}
    store.remember(choice(CASE, quick, "numpy:cpu/dense", whole=False))
    found = dp.explain((2, 40, 12))
    assert (found.backend, found.because) == ("numpy:cpu", "model")
    assert "numba:cpu/dense was recommended" in found.sentence


def test_operations_go_by_the_same_rule() -> None:
    """Who was wrong as a descriptor is not taken as its operation."""
    case = Case(descriptor="power", batch=1, n=30, d=40)
    best = auto.pick_route("numpy:cpu", "power", (1, 30, 40), "float32")
    wrong = without_time(f"numpy:cpu/{best}", State.WRONG, "its error is 3")
    store.remember(choice(case, {"numpy:cpu/svd": 1e-3}, "numpy:cpu/svd", wrong))
    after = auto.pick_route("numpy:cpu", "power", (1, 60, 40), "float32")
    assert after != best
    half = auto.pick_route("numpy:cpu", "power", (1, 60, 40), "float64")
    assert half == dp.explain((1, 60, 40), "power", dtype="float64", backend="numpy:cpu").route


def test_a_profile_of_the_first_version_is_read(tmp_path: Path) -> None:
    """Its failures did not say of which kind they were; late ones bar nothing any more."""
    failed = [
        {"backend": "numpy:cpu", "route": "dense", "reason": "its error is 3, allowed are 1e-5"},
        {"backend": "numba:cpu", "route": "dense", "reason": "x gave no answer within 15 s"},
        {"backend": "torch:cpu", "route": "dense", "reason": "predicted to take 9 s, may take 1 s"},
        {"backend": "torch:cpu", "route": "matrix-free", "reason": "the worker died of signal 11"},
    ]
    times = [("numpy:cpu", 4e-6), ("numba:cpu", 3e-6)]
    row = {
        "case": asdict(CASE),
        "threads": usual_threads(),
        "state": "fastest",
        "backend": "numba:cpu",
        "route": "matrix-free",
        "candidates": [
            {"backend": b, "route": "matrix-free", "seconds": s, "verdict": "slower", "code": ""}
            for b, s in times
        ],
        "measured_at": "2026-01-01T00:00:00+00:00",
        "whole": True,
        "failed": [{**f, "code": ""} for f in failed],
    }
    old = {"schema": 1, "fingerprint": HERE, "decided": [row], "coefficients": {}}
    path = store.path_here()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(old))
    (decided,) = store.here().decided
    assert [u.state for u in decided.untimed] == ["wrong", "timeout", "timeout", "error"]
    assert [u.at_least_s for u in decided.untimed] == [None, 15.0, None, None]
    assert dp.explain((2, 40, 12)).because == "measured"
    assert store.remember(choice(Case(n=9, d=9), TIMES, "numba:cpu/dense")) == ""
    assert json.loads(path.read_text())["schema"] == 2
    assert store.here().record(CASE) is not None


def test_a_profile_of_a_later_version_is_left_as_it_is() -> None:
    path = store.path_here()
    path.parent.mkdir(parents=True)
    path.write_text(text := json.dumps({"schema": 3, "secrets": []}))
    with pytest.warns(RuntimeWarning, match="later version"):
        assert dp.explain((9, 9)).because == "default"
    assert "later version" in store.remember(choice(CASE, TIMES, "numba:cpu/dense"))
    assert path.read_text() == text
