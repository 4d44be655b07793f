"""What becomes of a candidate whose turn is not believed, with workers that only pretend."""

from __future__ import annotations

from typing import Any

import pytest
from fake_workers import FakeWorkers, chosen

from demopool.choosing.budget import Budget
from demopool.choosing.racing import Race
from demopool.choosing.referee import Objection
from demopool.choosing.runners import Runner
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State
from demopool.trials.samples import Sample

CASE = Case(batch=2, n=30, d=8)
DENSE, FREE = "numpy:cpu/dense", "numpy:cpu/matrix-free"
TIMES = {DENSE: 0.002, FREE: 0.005}
NOISE, WRONG = Objection("its clock is wrong", by_chance=True), Objection("not its descriptor")


@pytest.fixture
def saved() -> list[Sample]:
    return []


def _race(workers: FakeWorkers, saved: list[Sample]) -> Race:
    runner = Runner(Candidate.parse(DENSE), predicted=0.002)
    budget = Budget(10.0, now=workers.clock)
    return Race(CASE, [runner], workers, budget, save=saved.append)  # type: ignore[arg-type]


def _turns(workers: FakeWorkers) -> list[float]:
    return [seconds for function, _, seconds in workers.asked if function == "run_turn"]


def test_noise_costs_a_turn_and_a_process(saved: list[Sample]) -> None:
    workers = FakeWorkers(TIMES)
    race = _race(workers, saved)
    (runner,) = race.runners
    assert race.turn(runner, 1, 0, 0.002).state is State.OK
    before = workers.of("numpy:cpu").pid
    workers.referee.objections[DENSE] = [NOISE]
    answer = race.turn(runner, 3, 0, 0.002)
    assert answer.state is State.OK
    assert len(answer.value) == 3, "those of the second turn alone"
    assert workers.of("numpy:cpu").pid != before
    assert _turns(workers) == pytest.approx([0.002, 0.006, 0.008]), "a new process warms up first"
    assert runner.state is State.OK
    assert all(sample.state is State.OK for sample in saved)


def test_who_is_not_believed_twice_is_wrong_for_good(saved: list[Sample]) -> None:
    workers = FakeWorkers(TIMES)
    race = _race(workers, saved)
    (runner,) = race.runners
    workers.referee.objections[DENSE] = [NOISE, None, NOISE]
    assert race.turn(runner, 1, 0, 0.002).state is State.OK
    answer = race.turn(runner, 1, 0, 0.002)
    assert (answer.state, answer.reason) == (State.WRONG, NOISE.reason)
    (failure,) = [sample for sample in saved if sample.state is State.WRONG]
    assert failure.reason == NOISE.reason


def test_wrong_values_are_final_at_once(saved: list[Sample]) -> None:
    workers = FakeWorkers(TIMES)
    race = _race(workers, saved)
    workers.referee.objections[DENSE] = [WRONG]
    assert race.turn(race.runners[0], 1, 0, 0.002).state is State.WRONG
    assert len(_turns(workers)) == 1


def test_a_race_survives_a_busy_moment(quick: None) -> None:
    workers = FakeWorkers(TIMES)
    workers.referee.objections[DENSE] = [None, None, None, NOISE]
    found = chosen(CASE, workers)
    assert (found.state, found.route) == ("fastest", "dense")
    assert not workers.referee.objections[DENSE]


def test_the_limit_is_that_of_the_last_measurement(quick: None) -> None:
    workers = FakeWorkers(TIMES)
    workers.referee.floors = {DENSE: 1e-3, FREE: 1e-3}
    told = workers.calls[FREE]

    def measured_again(turn: int) -> Any:
        if turn == 2:
            workers.referee.floors = {DENSE: 5e-4, FREE: 5e-4}
        return told

    workers.calls[FREE] = measured_again
    assert {row.limit_s for row in chosen(CASE, workers).rows if row.route} == {5e-4}
    again = chosen(CASE, FakeWorkers(TIMES))
    assert again.reused
    assert {row.limit_s for row in again.rows if row.route} == {5e-4}, "and it is stored"
