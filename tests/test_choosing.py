"""``choose`` with workers that only pretend: the answer, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_workers import FakeWorkers

from demopool.choosing import chooser, qualifying, racing
from demopool.measurement.worker import Answer
from demopool.problem import vocabulary
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State, Verdict
from demopool.profiles.eligibility import ineligible
from demopool.trials import requests, samples
from demopool.trials.judgement import run_judgement, twin
from demopool.trials.streams import ImagePool

import demopool as dp  # isort: skip

SMALL = Case(batch=2, n=30, d=8)
FIELD = (Candidate("numpy:cpu", "dense"), Candidate("numpy:cpu", "matrix-free"))


def _choose(times: dict[str, Any], case: Case = SMALL, **options: Any) -> Any:
    workers = options.pop("workers", None) or FakeWorkers(times)
    given = {"backends": ("numpy:cpu",), "budget": 5.0, "workers": workers, "now": workers.clock}
    return chooser.choose(case, **{**given, **options})


def test_who_competes_alone_was_allowed_to(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing held under load where there was nothing to compare."""
    monkeypatch.setattr(racing.Others, "cores", lambda self: 1.0)
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], [FIELD[0]]))
    found = _choose({"numpy:cpu/dense": 0.002}, fresh=True)
    assert "/dense: the only one that was allowed to compete, " in found.sentence
    assert "held" not in found.sentence


def test_what_is_missing_under_load_is_said(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.015}
    for cores, least in ((0.0, 8), (1.0, 21)):
        monkeypatch.setattr(racing.Others, "cores", lambda self, cores=cores: cores)
        found = _choose(times, fresh=True, budget=0.35)
        assert 0 < found.rounds < 8
        assert f"{found.rounds} of at least {least} rounds were made. " in found.sentence
        assert "Not told apart" not in found.sentence  # 7.5 times slower
        (said,) = [warning for warning in found.warnings if "The budget ended" in warning]
        assert f"nothing is decided before round {least}" in said


def test_a_winner_is_named_with_its_lead(quick: None) -> None:
    found = _choose({"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.005}, fresh=True)
    assert (found.state, found.backend, found.route) == ("fastest", "numpy:cpu", "dense")
    assert found.sentence.startswith("Use numpy:cpu/dense: 2.5x faster than the next")
    by_route = {row.route: row for row in found.rows}
    assert by_route["dense"].verdict is Verdict.FASTEST
    assert by_route["matrix-free"].verdict is Verdict.SLOWER
    assert by_route["matrix-free"].ratio == pytest.approx(2.5)
    assert by_route["dense"].median_s == pytest.approx(0.002)


def test_a_tie_says_why_one_is_recommended(quick: None) -> None:
    found = _choose({"numpy:cpu/dense": 0.00201, "numpy:cpu/matrix-free": 0.002}, fresh=True)
    assert found.state is Verdict.TIE
    assert "a tie with numpy:cpu/dense, recommended because of the lower median" in found.sentence


def test_the_budget_ends_in_unknown(quick: None) -> None:
    times = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.0021}
    found = _choose(times, fresh=True, budget=0.1)
    assert found.state is Verdict.UNKNOWN
    assert "probably numpy:cpu" in found.sentence
    assert "longer --budget" in found.sentence


def test_a_close_winner_that_new_processes_do_not_repeat_is_unknown(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    times = {
        "numpy:cpu/dense": 0.002,
        "numpy:cpu/matrix-free": lambda i: 0.0021 if not closed else 0.002,
    }
    confirm = racing.Race.confirm

    def told(self: Any, standing: Any) -> str:
        closed.append("yes")
        return confirm(self, standing)

    monkeypatch.setattr(racing.Race, "confirm", told)
    found = _choose(times, fresh=True)
    assert found.state is Verdict.UNKNOWN
    assert "new processes did not repeat it" in found.sentence


def test_who_fails_in_the_race_is_out_and_the_others_go_on(quick: None) -> None:
    crash = Answer(State.ERROR, None, "the worker died by SIGSEGV")
    times = {
        "numpy:cpu/dense": lambda i: 0.002 if i < 5 else crash,
        "numpy:cpu/matrix-free": 0.005,
    }
    found = _choose(times, fresh=True)
    assert (found.backend, found.route) == ("numpy:cpu", "matrix-free")
    assert {row.route: row.state for row in found.rows}["dense"] is State.ERROR


def test_who_was_thrown_out_may_come_back_when_the_lead_fails(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third was dropped because of the lead, which then dies: its rounds end there, and the
    race goes on with whole rounds."""
    field = ("numpy:cpu/dense", "numpy:cpu/matrix-free", "numba:cpu/dense")
    rng = np.random.default_rng(0)

    def noisy(seconds: float, dies: bool = False) -> Any:
        crash = Answer(State.ERROR, None, "ended with code -11")
        return lambda i: crash if dies and i >= 14 else seconds * float(rng.normal(1, 0.03))

    monkeypatch.setattr(
        chooser, "_candidates", lambda *_: ([], [Candidate.parse(name) for name in field])
    )
    for _ in range(20):
        times = dict(zip(field, (noisy(0.002, True), noisy(0.0024), noisy(0.0034)), strict=True))
        found = _choose(times, fresh=True, budget=2.0, save=False)
        assert found.route == "matrix-free"


def test_an_interrupted_confirmation_is_no_confirmation(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, standing: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(racing.Race, "confirm", interrupted)
    times = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.00213}
    found = _choose(times, fresh=True)
    assert found.interrupted
    assert found.state is Verdict.UNKNOWN
    assert "before new processes had confirmed it" in found.sentence


def test_confirming_rounds_are_stored_and_used_again(quick: None) -> None:
    times = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.00213}
    first = _choose(times, fresh=True)
    again = _choose(dict.fromkeys(times, 0.002))
    assert (first.state, first.reused, again.state, again.reused) == (
        Verdict.FASTEST,
        False,
        Verdict.FASTEST,
        True,
    )


def test_an_interrupt_before_the_checks_recommends_nothing(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(race: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(qualifying, "qualify", interrupted)
    found = _choose({}, fresh=True)
    assert found.backend is None
    assert found.sentence == "Unknown: interrupted before a candidate was checked and timed."
    assert {row.reason for row in found.rows} == {"interrupted before it was checked"}


def test_choose_teaches_auto(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"numpy:cpu/dense": 0.005, "numpy:cpu/matrix-free": 0.002}
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], list(FIELD)))
    _choose(times, fresh=True, backends=())
    found = dp.explain((SMALL.batch, SMALL.n, SMALL.d))
    assert (found.route, found.because) == ("matrix-free", "measured")


@pytest.mark.parametrize(
    "options",
    [
        {"budget": float("inf")},
        {"budget": float("nan")},
        {"budget": 0},
        {"max_memory": float("nan")},
        {"max_memory": -5},
        {"threads": 0},
    ],
)
def test_limits_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(dp.errors.InvalidInput, match=next(iter(options))):
        chooser.choose(SMALL, **options)


def test_a_clock_that_goes_backwards_costs_a_block(quick: None) -> None:
    calls = iter(range(10**6))
    times = {
        "numpy:cpu/dense": lambda i: -1.0 if next(calls) % 3 == 0 else 0.002,
        "numpy:cpu/matrix-free": 0.005,
    }
    found = _choose(times, fresh=True)
    assert (found.state, found.route) == ("fastest", "dense")


def test_an_interrupt_gives_the_best_answer_so_far(quick: None) -> None:
    def interrupted(i: int) -> float:
        if i == 10:
            raise KeyboardInterrupt
        return 0.0025

    found = _choose({"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": interrupted}, fresh=True)
    assert found.state is Verdict.UNKNOWN
    assert "probably numpy:cpu/dense" in found.sentence
    assert "The same command goes on from here" in found.sentence
    assert any("Interrupted" in warning for warning in found.warnings)
    assert "budget" not in " ".join([found.sentence, *found.warnings])


def test_what_was_measured_is_used_again_until_something_changes(
    quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.005}
    first = _choose(times)
    assert not first.reused
    faster = {"numpy:cpu/dense": 0.009, "numpy:cpu/matrix-free": 0.001}
    again = _choose(faster)
    assert again.reused
    assert again.route == "dense"
    assert _choose(faster, fresh=True).route == "matrix-free"
    latest = _choose(times)
    assert latest.reused
    assert latest.route == "matrix-free"
    monkeypatch.setattr(qualifying, "code_key", lambda backend: "another")
    assert _choose(faster).route == "matrix-free"


@pytest.mark.parametrize("failing", ["crashed", "wrong", "slow"])
def test_what_failed_is_tried_again_only_if_asked_to(quick: None, failing: str) -> None:
    fast, failed = "numpy:cpu/dense", "numpy:cpu/matrix-free"
    crash = Answer(State.ERROR, None, "signal 11")
    first = {"crashed": crash, "slow": 100.0}.get(failing, 0.001)
    workers = FakeWorkers({fast: 0.005, failed: first}, wrong=(failed,) * (failing == "wrong"))
    before = _choose({}, workers=workers)
    states = {"crashed": State.ERROR, "wrong": State.WRONG, "slow": State.TIMEOUT}
    assert {row.route: row.state for row in before.rows}["matrix-free"] is states[failing]
    assert "with --retry" in str(before)
    mended = {fast: 0.005, failed: 0.001}
    again = _choose(mended)
    assert (again.reused, again.route) == (True, "dense")
    retried = _choose(mended, retry=True)
    assert (retried.reused, retried.route) == (False, "matrix-free")
    assert "--retry" not in str(retried)
    latest = _choose(mended)
    assert (latest.reused, latest.route) == (True, "matrix-free")


def test_a_race_killed_at_any_moment_goes_on(quick: None, tmp_path: Path) -> None:
    """Cut the file of samples at every place: what is whole is used, nothing breaks."""
    times = {"numpy:cpu/dense": 0.002, "numpy:cpu/matrix-free": 0.005}
    whole = _choose(times)
    (path,) = (tmp_path / "samples").iterdir()
    text = path.read_bytes()
    for cut in range(0, len(text), len(text) // 25):
        path.write_bytes(text[:cut])
        found = _choose(times)
        assert (found.state, found.route, found.rounds) == (whole.state, whole.route, whole.rounds)
    assert all(samples.read(path))


def test_the_twin_keeps_what_matters() -> None:
    for descriptor in vocabulary.DESCRIPTORS:
        big = Case(descriptor=descriptor, batch=64, n=12544, d=2048, dtype="float64", p=0.3)
        small = twin(big)
        assert (small.descriptor, small.dtype, small.p) == (descriptor, "float64", 0.3)
        assert small.n * small.n * small.d <= 2e9
        if descriptor.endswith("power"):
            assert small.d**3 <= 2e8
    assert twin(Case(batch=1)) == Case(batch=1)
    for n, d in ((1300, 1300), (5000, 4000), (4000, 5000), (20000, 600)):
        for descriptor in ("power", "democratic"):
            small = twin(Case(descriptor=descriptor, n=n, d=d))
            assert (small.n >= small.d) == (n >= d)  # newton is for n >= d only


@pytest.mark.parametrize("descriptor", vocabulary.DESCRIPTORS)
def test_every_candidate_is_judged_right_and_a_small_error_is_seen(
    descriptor: str, usable: str
) -> None:
    case = Case(descriptor=descriptor, batch=2, n=40, d=12, k=64, dtype="float64")
    subject, pool = Subject("descriptor", descriptor), ImagePool(7)
    for candidate in subject.candidates((usable,)):
        if ineligible(subject, candidate, case, package=dp):
            continue
        found = requests.run_descriptors(subject, candidate, case, on=case, pool=pool)
        assert run_judgement(candidate.route, case, pool, found).is_right, candidate
        off = run_judgement(candidate.route, case, pool, found * (1 + 1e-4))
        assert not off.is_right, candidate
