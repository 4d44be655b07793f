"""The budget is one: wall time of everything but set-up, on a clock that only work moves."""

from __future__ import annotations

from collections import Counter
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from effort import cases
from fake_workers import FakeWorkers
from hypothesis import given, settings
from hypothesis import strategies as st

from demopool import Case
from demopool.choosing import chooser, qualifying, racing, rule, sessions
from demopool.choosing.answer_types import Choice
from demopool.choosing.budget import OVERRUN, SOON, Budget
from demopool.choosing.runners import Runner, Workers
from demopool.common import places
from demopool.measurement.worker import Answer
from demopool.problem.candidates import Candidate
from demopool.problem.vocabulary import State, Verdict
from demopool.trials import requests, samples
from demopool.trials.samples import Sample

CASE = Case(batch=2, n=30, d=8)
FIELD = tuple(
    Candidate(backend, route)
    for backend in ("numpy:cpu", "numba:cpu", "torch:cpu")
    for route in ("dense", "matrix-free")
)
NAMES = tuple(str(candidate) for candidate in FIELD)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody else uses the machine, and nothing of it is loaded."""
    monkeypatch.setattr(racing, "PAUSE", 0.0)
    monkeypatch.setattr(racing.Others, "cores", lambda self: 0.0)
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], list(FIELD)))
    monkeypatch.setattr(chooser.fingerprint, "warnings", lambda *_: [])
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))


def choose(workers: FakeWorkers, budget: float, **options: Any) -> Choice:
    given_ = {"fresh": True, "save": False, **options}
    return chooser.choose(CASE, budget=budget, workers=workers, now=workers.clock, **given_)  # type: ignore[arg-type]


def test_what_is_spent_and_what_is_set_up() -> None:
    workers = FakeWorkers({})
    budget = Budget(10, workers.clock)
    workers.clock.time += 3
    with budget.setting_up():
        workers.clock.time += 7
    assert (budget.spent, budget.left, budget.setup) == (3, 7, 7)
    assert budget.patience == pytest.approx(OVERRUN * 10 - 3)
    workers.clock.time += 100
    assert budget.is_spent
    assert budget.patience == SOON


seconds = st.floats(-2.7, 1.5).map(lambda x: 10.0**x)  # 2 ms to 30 s


@settings(max_examples=cases(5_000, 60))
@given(
    calls=st.tuples(*[seconds] * len(NAMES)),
    budget=st.floats(0, 1.8).map(lambda x: 10.0**x),
    judging=seconds,
    loading=seconds,
    slower_later=st.sampled_from([1.0, 1.0, 3.0, 40.0]),
)
def test_it_is_kept_whatever_calls_checks_and_libraries_take(
    calls: tuple[float, ...], budget: float, judging: float, loading: float, slower_later: float
) -> None:
    """Overrun by a fifth, or by one call; set-up is counted apart, to the last of it."""

    def told(usual: float) -> Any:
        return lambda turn: usual * (slower_later if turn >= 3 else 1.0)

    times = {name: told(call) for name, call in zip(NAMES, calls, strict=True)}
    workers = FakeWorkers(times, start=0.5, loading=loading, judging=judging)
    began = workers.clock()
    found = choose(workers, budget)
    in_all = workers.clock() - began
    assert found.seconds == pytest.approx(in_all)
    started = Counter(name for name, _, _ in workers.asked)["run_loading"]
    assert found.setup_s >= started * loading * 0.999
    assert found.setup_s <= started * (loading + 0.5) * 1.001
    spent = in_all - found.setup_s
    longest = max((took for what, _, took in workers.asked if what != "run_loading"), default=0.0)
    assert spent <= max(OVERRUN * budget, budget + longest) + SOON * len(NAMES)
    assert spent <= OVERRUN * budget + SOON * len(NAMES) + 12 * max(
        r.predicted for r in qualifying.runners(CASE, FIELD, None)
    )
    if found.state is Verdict.FASTEST and slower_later == 1.0:
        best = min(times, key=lambda name: times[name](0))
        assert str(found.candidate) == best
    if found.state is not Verdict.UNKNOWN:
        unseen = [row for row in found.rows if row.verdict is Verdict.UNKNOWN]
        assert not unseen, "somebody who was not timed could be the best"


def test_the_fastest_by_prediction_are_tried_first_and_the_rest_is_said_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was predicted is half of what it takes; that shows after the first."""
    monkeypatch.setattr(
        qualifying,
        "predicted_seconds",
        lambda subject, candidate, case, prices: 0.5 + 0.01 * FIELD[::-1].index(candidate),
    )
    workers = FakeWorkers(dict.fromkeys(NAMES, 1.0), judging=0.5)
    found = choose(workers, 20.0)
    order = [runner.name for runner in qualifying.runners(CASE, FIELD, None)]
    tried = [name for what, name, _ in workers.asked if what == "run_first_call"]
    assert tried == order[: len(tried)]
    assert 1 < len(tried) < len(order)
    left = [row for row in found.rows if row.reason.startswith("left out")]
    assert len(left) == len(order) - len(tried)
    for row in left:
        assert row.state is State.TIMEOUT
        assert row.at_least_s is None
        assert row.verdict is Verdict.UNKNOWN
        assert "would not fit the budget of 20 s" in row.reason
    assert found.state is Verdict.UNKNOWN
    assert not found.whole
    assert "Not timed enough" in found.sentence
    assert "--budget of about" in found.sentence


def test_a_stored_answer_starts_no_process() -> None:
    times = {name: 0.01 * (i + 1) for i, name in enumerate(NAMES)}
    first = choose(FakeWorkers(times), 60.0, fresh=False, save=True)
    assert first.state is Verdict.FASTEST
    workers = FakeWorkers(times)
    again = choose(workers, 60.0, fresh=False, save=True)
    assert again.reused
    assert not workers.asked
    for row, before in zip(again.rows, first.rows, strict=True):
        assert (row.candidate, row.verdict, row.ratio) == (
            before.candidate,
            before.verdict,
            before.ratio,
        )
    assert again.sentence == first.sentence


@pytest.mark.parametrize("cores", [0.0, 1.0])
def test_who_is_far_behind_is_slower_by_a_call_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch, cores: float
) -> None:
    """One call tells little: only if the cost model says so too."""
    monkeypatch.setattr(racing.Others, "cores", lambda self: cores)
    slow = "torch:cpu/matrix-free"
    times = {name: 0.02 * 1.5**i for i, name in enumerate(NAMES)} | {slow: 50.0}
    for predicted, expected in ((1.0, False), (10.0, True)):
        monkeypatch.setattr(
            qualifying,
            "predicted_seconds",
            lambda subject, candidate, case, prices, p=predicted: (
                0.02 * p if str(candidate) == slow else 0.02
            ),
        )
        found = choose(FakeWorkers(times), 60.0)
        row = next(row for row in found.rows if str(row.candidate) == slow)
        assert row.state is State.TIMEOUT
        assert row.at_least_s == pytest.approx(2.0)
        assert "given up after 2 s: its first call had not ended" in row.reason
        assert row.verdict is (Verdict.SLOWER if expected else Verdict.UNKNOWN)
        assert (found.state is Verdict.FASTEST) == expected
        assert str(found.candidate) == NAMES[0]
        if cores:
            assert "Others used 1.0 cores meanwhile" in found.sentence


def test_old_names_of_arguments_are_taken_with_a_warning() -> None:
    seen: list[str] = []
    workers = FakeWorkers({name: 0.01 * (i + 1) for i, name in enumerate(NAMES)})
    with pytest.warns(DeprecationWarning, match="its name is") as warned:
        found = choose(
            workers, 60.0, report=lambda seconds, what: seen.append(what), noise=["It is loud."]
        )
    assert found.warnings[0] == "It is loud."
    assert seen
    assert {str(one.message).split()[-1] for one in warned} == {"progress.", "warnings."}
    with pytest.raises(TypeError, match="nonsense"):
        choose(workers, 60.0, nonsense=1)


def test_what_a_worker_is_asked_for_is_said_in_words() -> None:
    told = set()

    class Listens(FakeWorkers):
        def play(self, function: Any, name: str, case: Any, options: Any) -> tuple[Answer, float]:
            told.add(options["words"])
            return super().play(function, name, case, options)

    choose(Listens({name: 0.01 * (i + 1) for i, name in enumerate(NAMES)}), 60.0)
    assert told == {
        "setting up its libraries",
        "placing its data",
        "its first call",
        "its check against the reference",
        "the measurement of its peak memory on the host",
        "its turn in the race",
    }


def test_a_bound_is_kept_with_its_race(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {name: 0.02 * 1.5**i for i, name in enumerate(NAMES)} | {NAMES[-1]: 50.0}
    monkeypatch.setattr(qualifying, "predicted_seconds", lambda s, c, *_: times[str(c)])
    first = choose(FakeWorkers(times), 60.0, fresh=False, save=True)
    workers = FakeWorkers(times)
    again = choose(workers, 60.0, fresh=False, save=True)
    assert not workers.asked
    assert (again.state, again.rows[-1].at_least_s) == (first.state, first.rows[-1].at_least_s)


def test_alone_is_only_who_nobody_else_could_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that ran out of time are unknown, not out."""
    times = dict.fromkeys(NAMES, 30.0) | {"numpy:cpu/dense": 0.5}
    found = choose(FakeWorkers(times), 4.0)
    assert found.state is Verdict.UNKNOWN
    assert "only one" not in found.sentence
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], [FIELD[0]]))
    alone = choose(FakeWorkers(times), 4.0)
    assert alone.state is Verdict.FASTEST
    assert "the only one that can do this here" in alone.sentence


@pytest.mark.parametrize("budget", [20.0, 60.0, 200.0])
def test_long_calls_need_as_many_rounds(monkeypatch: pytest.MonkeyPatch, budget: float) -> None:
    """Six times faster in one round was once announced, and was 1.06 times by hand."""
    field = [FIELD[0], FIELD[2]]
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], field))
    monkeypatch.setattr(qualifying, "predicted_seconds", lambda *_: 1.0)
    times = {str(field[0]): 1.0, str(field[1]): lambda turn: 6.2 if turn < 2 else 1.06}
    found = choose(FakeWorkers(times), budget)
    if budget < 200:
        assert found.state is Verdict.UNKNOWN
    if found.state is Verdict.FASTEST:
        assert found.rounds >= rule.LEAST_ROUNDS
        assert "1.06x faster" in found.sentence


def test_a_wrong_one_is_wrong_again_without_being_asked() -> None:
    times = {name: 0.01 * (i + 1) for i, name in enumerate(NAMES)}
    wrong = (NAMES[0],)
    choose(FakeWorkers(times, wrong=wrong), 60.0, fresh=False, save=True)
    workers = FakeWorkers(times)
    again = choose(workers, 60.0, fresh=False, save=True)
    assert not workers.asked
    row = next(row for row in again.rows if str(row.candidate) == NAMES[0])
    assert row.state is State.WRONG
    fresh = choose(FakeWorkers(times), 60.0, fresh=True, save=True)
    assert str(fresh.candidate) == NAMES[0]


def test_a_budget_that_ends_before_the_first_round_still_tells_what_was_timed() -> None:
    """Calls take long after the checks: no round is finished."""
    calls = iter([1.0] * 4 + [30.0] * 100)
    found = choose(FakeWorkers({name: lambda turn: next(calls) for name in NAMES}), 9.0)
    assert found.state is Verdict.UNKNOWN
    timed = [row for row in found.rows if row.median_s is not None]
    assert timed
    assert all(row.verdict is Verdict.UNKNOWN for row in timed)
    assert "probably" in found.sentence
    assert ": ok\n" not in str(found)


def _far_behind(monkeypatch: pytest.MonkeyPatch, by_model: float) -> dict[str, float]:
    """Two candidates, one of them so slow that rounds of it do not fit a small budget."""
    field = [FIELD[0], FIELD[1]]
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], field))
    predicted = {NAMES[0]: 0.01, NAMES[1]: 0.01 * by_model}
    monkeypatch.setattr(qualifying, "predicted_seconds", lambda s, c, *_: predicted[str(c)])
    return {NAMES[0]: 0.05, NAMES[1]: 0.5}


def test_rounds_accumulate_beside_one_that_was_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call was to go on, and began anew."""
    times = _far_behind(monkeypatch, 10.0)
    found = [choose(FakeWorkers(times), 4.0, fresh=False, save=True) for _ in range(3)]
    assert 0 < found[0].rounds < found[1].rounds
    assert found[0].state is Verdict.UNKNOWN
    assert found[-1].state is Verdict.FASTEST
    (kept,) = sessions.rebuilt(_stored())
    assert kept.choice.rounds == found[-1].rounds


def test_a_race_that_ended_early_can_be_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    times = _far_behind(monkeypatch, 10.0)
    found = choose(FakeWorkers(times), 4.0, fresh=False, save=True)
    (kept,) = sessions.rebuilt(_stored())
    assert (kept.choice.rounds, kept.choice.state) == (found.rounds, found.state)


def test_a_longer_budget_brings_back_who_was_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost model calls it as fast as the lead: only rounds can tell."""
    times = _far_behind(monkeypatch, 1.0)
    for _ in range(3):
        found = choose(FakeWorkers(times), 4.0, fresh=False, save=True)
    assert found.state is Verdict.UNKNOWN
    longer = choose(FakeWorkers(times), 60.0, fresh=False, save=True)
    assert longer.state is Verdict.FASTEST
    assert all(row.rounds >= rule.LEAST_ROUNDS for row in longer.rows)


def _stored() -> list[Sample]:
    (path,) = (places.cache_folder() / "samples").iterdir()
    return list(samples.read(path))


@pytest.mark.parametrize(
    "failure",
    [
        Answer(State.ERROR, None, "the worker could not be started: no processes", asked=False),
        Answer(State.OUT_OF_MEMORY, None, "it raised MemoryError"),
    ],
)
def test_what_may_pass_is_tried_again(failure: Answer) -> None:
    times: dict[str, Any] = {name: 0.01 * (i + 1) for i, name in enumerate(NAMES)}
    found = choose(FakeWorkers(times | {NAMES[0]: failure}), 60.0, fresh=False, save=True)
    row = next(row for row in found.rows if str(row.candidate) == NAMES[0])
    assert (row.state, row.untried) == (failure.state, not failure.asked)
    again = choose(FakeWorkers(times), 60.0, fresh=False, save=True)
    assert str(again.candidate) == NAMES[0]


def test_a_crash_of_the_same_code_is_not_tried_again() -> None:
    times: dict[str, Any] = {name: 0.01 * (i + 1) for i, name in enumerate(NAMES)}
    crash = Answer(State.ERROR, None, "the worker died of signal 11")
    choose(FakeWorkers(times | {NAMES[0]: crash}), 60.0, fresh=False, save=True)
    workers = FakeWorkers(times)
    again = choose(workers, 60.0, fresh=False, save=True)
    assert not workers.asked
    assert {str(row.candidate): row.state for row in again.rows}[NAMES[0]] is State.ERROR


def test_a_library_that_hangs_is_waited_for_once() -> None:
    """It was 60 s for every route."""

    class Hangs(FakeWorkers):
        def play(self, function: Any, name: str, case: Any, options: Any) -> tuple[Answer, float]:
            if function is requests.run_loading and name.startswith("numba"):
                return Answer(State.OK, 1.0), 1000.0
            return super().play(function, name, case, options)

    workers = Hangs({name: 0.01 * (i + 1) for i, name in enumerate(NAMES)})
    found = choose(workers, 60.0)
    asked = [name for what, name, _ in workers.asked if name.startswith("numba")]
    assert len(asked) == 1
    rows = [row for row in found.rows if row.backend == "numba:cpu"]
    assert {row.state for row in rows} == {State.TIMEOUT}
    assert all("setting up its libraries had not ended" in row.reason for row in rows)


def test_the_lead_is_over_whoever_may_be_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was given up may have been about to end."""
    field = FIELD[:3]
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], list(field)))
    times = {NAMES[0]: 0.2, NAMES[1]: 6.0, NAMES[2]: 50.0}
    predicted = {NAMES[0]: 0.2, NAMES[1]: 2.0, NAMES[2]: 2.0}
    monkeypatch.setattr(qualifying, "predicted_seconds", lambda s, c, *_: predicted[str(c)])
    monkeypatch.setattr(qualifying, "_patience", lambda race, runner: 7.0)
    found = choose(FakeWorkers(times), 100.0)
    assert "30x faster than the next" in found.sentence
    assert "at least" not in found.sentence
    monkeypatch.setattr(
        qualifying, "_patience", lambda race, runner: 4.0 + 4.0 * (runner.name == NAMES[1])
    )
    found = choose(FakeWorkers(times), 100.0)
    assert "at least 20x faster than the next" in found.sentence


def test_a_result_does_not_change_with_its_race() -> None:
    runner = Runner(Candidate("numpy:cpu", "dense"), 1.0)
    race = racing.Race(Case(), [runner], Workers(1), Budget(1.0))
    result = race.result(race.standing())
    race.keep(runner, "error", 1e-7)
    runner.fail(State.WRONG, "its error is 3")
    race.rounds.append(rule.Round({runner.name: 1.0}, {runner.name: 1.0}, 0.0))
    assert result.rounds == ()
    assert (result.runners[0].state, result.runners[0].once) == (State.OK, {})
    with pytest.raises(FrozenInstanceError):
        result.reason = "another"  # type: ignore[misc]
