"""Fresh inputs, the judge's answers, the referee's objections, and the limit of the machine."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demopool import pooling
from demopool.choosing import referee
from demopool.choosing.budget import Budget
from demopool.choosing.racing import Race
from demopool.choosing.referee import JudgeFailed, Referee
from demopool.choosing.runners import Runner, Workers
from demopool.machine import limits
from demopool.machine.limits import Limits
from demopool.measurement.worker import Answer
from demopool.problem.candidates import Candidate, Subject
from demopool.problem.cases import Case
from demopool.problem.vocabulary import DESCRIPTORS, State
from demopool.profiles import floors
from demopool.profiles.eligibility import ineligible
from demopool.trials import answers, jobs, streams
from demopool.trials.streams import ImagePool, Source, Stream

POOL = ImagePool(11)
CASE = Case(batch=3, n=20, d=6)
NUMPY = Candidate("numpy:cpu", "dense")


def _stream(
    case: Case, candidate: Candidate, images: int = 3, source: Source | None = None
) -> Stream:
    subject = Subject("descriptor", case.descriptor)
    job = jobs.prepare(pooling, subject, candidate, case)
    return Stream(job, case, source or Source(POOL, images))


class Judge:
    """The judge in this process; ``limits`` are those of a machine of our own."""

    threads = 1
    limits = Limits(1e15, 1e15, 1e15)

    def ask(self, function: Any, *arguments: Any, timeout: float, **options: Any) -> Answer:
        if function is limits.limits:
            return Answer(State.OK, self.limits)
        return Answer(State.OK, function(*arguments, **options))


@pytest.fixture
def umpire() -> Referee:
    made = Referee(Judge())  # type: ignore[arg-type]
    made.pool = POOL
    return made


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_no_call_has_an_input_that_was_there_before(dtype: str) -> None:
    stream = _stream(Case(batch=3, n=20, d=6, dtype=dtype, data="device"), NUMPY)
    contents, addresses, images = set(), [], set()
    for _ in range(60):
        images |= set(stream.next())
        X = stream.job.data.placed["X"]
        np.testing.assert_array_equal(X, stream.job.data.host["X"])
        assert (X != 0).any(axis=-1).all()
        contents.add(X.tobytes())
        addresses.append(X.ctypes.data)
    assert len(contents) == 60
    assert len(set(addresses)) == streams.SLOTS
    assert all(a != b for a, b in itertools.pairwise(addresses))
    assert images == {0, 1, 2}


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_honest_candidates_pass(descriptor: str, dtype: str, usable: str, umpire: Referee) -> None:
    data = "device" if dtype == "float64" else "host"
    case = Case(descriptor=descriptor, batch=2, n=40, d=12, k=64, dtype=dtype, data=data)
    subject = Subject("descriptor", descriptor)
    for candidate in subject.candidates((usable,)):
        if ineligible(subject, candidate, case, package=pooling):
            continue
        stream = _stream(case, candidate, umpire.source(case).images)
        turn = stream.turn(3, 1, thorough=True)
        assert len(turn.seconds) == 3
        assert len(turn.sums) == 4, "a call that is not reported is checked too"
        assert umpire.objection(candidate, case, turn, turn.began, turn.ended) is None, candidate


def test_own_images_are_timed_and_judged(umpire: Referee, tmp_path: Path) -> None:
    """Negative values, which noise never has, show that these are the ones."""
    own = np.random.default_rng(0).standard_normal((2, CASE.n, CASE.d)).astype(np.float32)
    np.save(tmp_path / "own.npy", own)
    umpire.pool = ImagePool(11, str(tmp_path / "own.npy"))
    stream = _stream(CASE, NUMPY, source=umpire.source(CASE))
    stream.next()
    assert (stream.job.data.host["X"].min(axis=(-1, -2)) < 0).all()
    turn = stream.turn(3, 1, thorough=True)
    assert umpire.objection(NUMPY, CASE, turn, turn.began, turn.ended) is None
    umpire.pool = POOL  # noise: these are not its descriptors
    umpire._answers.clear()
    assert umpire.objection(NUMPY, CASE, turn, turn.began, turn.ended) is not None
    other = Case(n=3, d=6)
    assert np.array_equal(
        streams.image(other, ImagePool(11, str(tmp_path / "own.npy")), 0),
        streams.image(other, POOL, 0),
    )


def test_where_the_reference_is_slow_the_answer_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = answers.run_answers(CASE, POOL, seconds=1.0)
    monkeypatch.setattr(answers, "_kept", {})
    monkeypatch.setattr(answers.judgement, "twin", lambda case: Case(n=2, d=2))
    quick = answers.run_answers(CASE, POOL, seconds=0.0)
    assert len(quick.signed) == 1, "one, however short the time"
    assert len(plain.signed) == answers.MOST_IMAGES
    np.testing.assert_allclose(quick.signed, plain.signed[:1], rtol=1e-9)


@pytest.mark.parametrize("size", [1, 1000, streams._BLOCK + 7])
def test_sums_are_those_of_the_squares(size: int) -> None:
    values = np.random.default_rng(0).standard_normal(size)
    random_signs = streams.signs(size, POOL.seed).astype(np.float64)
    signed, magnitude = streams.sums(values, random_signs)
    assert signed == pytest.approx((streams.squares(values) * random_signs).sum())
    assert magnitude == pytest.approx((values**2).sum())
    assert set(random_signs) <= {-1.0, 1.0}


@pytest.mark.parametrize(
    ("changes", "words", "by_chance"),
    [
        ({"reason": "what it saw"}, "what it saw", False),
        ({"leaked": streams.MOST_LEAKED}, "still at work", True),
        ({"sums": [[(np.nan, 1.0)] * 3] * 3}, "not its descriptor", False),
        ({"sums": [[(0.9, 1.0)] * 3] * 3}, "not its descriptor", False),
        ({"ended": 0.01}, "its clock is wrong", True),
        ({"began": -0.1, "ended": 4.9}, "its clock is wrong", False),
        ({"ended": 5.1}, "its clock is wrong", False),
        ({"unread": 4.99}, "its clock is wrong", True),
        ({"seconds": [1e-9] * 3}, "faster than the machine can", True),
    ],
)
def test_objections(changes: dict[str, Any], words: str, by_chance: bool, umpire: Referee) -> None:
    stream = _stream(CASE, NUMPY, umpire.source(CASE).images)
    Judge.limits = Limits(1e9, 1e9, 1e9)
    try:
        honest = stream.turn(3, 0, thorough=False)._replace(seconds=[0.1] * 3, began=0.0, ended=5.0)
        assert umpire.objection(NUMPY, CASE, honest, 0.0, 5.0) is None
        fresh = Referee(Judge())  # type: ignore[arg-type]
        fresh.pool = POOL
        found = fresh.objection(NUMPY, CASE, honest._replace(**changes), 0.0, 5.0)
        assert found is not None
        assert words in found.reason
        assert found.by_chance == by_chance, "values are wrong for good, times may be noise"
    finally:
        del Judge.limits
        Judge.limits = Limits(1e15, 1e15, 1e15)


def test_an_image_is_judged_by_its_own_tolerance(umpire: Referee) -> None:
    """Square images: the smallest eigenvalue, and with it the tolerance, differs by far."""
    case = Case(descriptor="power", n=8, d=8)
    found = answers.run_tolerances(case, POOL, 6, "eigh")
    assert max(found) > 2 * min(found)
    candidate = Candidate("numpy:cpu", "eigh")
    stream = _stream(case, candidate, umpire.source(case).images)
    for _ in range(20):
        turn = stream.turn(8, 0, thorough=True)._replace(leaked=0.0)
        assert umpire.objection(candidate, case, turn, turn.began, turn.ended) is None


@pytest.mark.serial
def test_clocks_of_two_processes_agree_where_much_is_sent() -> None:
    """Whole images of d = 2048 take longer to send than to make."""
    case = Case(descriptor="sum", n=16, d=2048)
    candidate = Candidate("numpy:cpu", "direct")
    with Workers(1) as workers:
        race = Race(case, [Runner(candidate)], workers, Budget(60))
        for _ in range(12):
            assert race.turn(race.runners[0], 1, 1, 0.1).state is State.OK, race.runners[0].reason


def test_a_norm_and_a_value_that_are_off_are_seen(umpire: Referee) -> None:
    turn = _stream(CASE, NUMPY, umpire.source(CASE).images).turn(2, 0, thorough=True)
    off = [[(signed, magnitude * 1.001) for signed, magnitude in call] for call in turn.sums]
    times = turn.began, turn.ended
    found = umpire.objection(NUMPY, CASE, turn._replace(sums=off), *times)
    assert found is not None
    assert "norm of image 1 of 3" in found.reason
    assert turn.sample is not None
    image, values = turn.sample
    spoilt = values.copy()
    spoilt[-1] += 0.01
    found = umpire.objection(NUMPY, CASE, turn._replace(sample=(image, spoilt)), *times)
    assert found is not None
    assert "the error of one was" in found.reason


def test_a_judge_that_fails_says_nothing_of_a_candidate() -> None:
    class Broken(Judge):
        def ask(self, *arguments: Any, **options: Any) -> Answer:
            return Answer(State.ERROR, None, "it raised something")

    with pytest.raises(JudgeFailed, match="gave no answer: it raised something"):
        Referee(Broken()).source(CASE)  # type: ignore[arg-type]


def test_the_least_work_of_a_case() -> None:
    """One image of n = 3 features of dimension d = 2, symmetric products counted half."""
    assert floors.least_flops(Case(descriptor="sum", n=3, d=2)) == 3 * 2 * 3
    assert floors.least_flops(Case(descriptor="democratic", n=3, d=2)) == 2 * (3 * 2 * 3)
    assert floors.least_flops(Case(descriptor="democratic", n=3, d=2, gamma=1)) == 3 * 2 * 3
    assert floors.least_flops(Case(descriptor="sum", n=3, d=2, order=1)) == 0
    assert floors.moved_bytes(Case(descriptor="sum", n=3, d=2, batch=5)) == 5 * 4 * (6 + 4)
    case = Case(descriptor="sum", n=100, d=100)
    assert floors.least_seconds(case, Limits(1e6, 1e99, 1e99)) == pytest.approx(1.01)
    assert floors.least_seconds(case, Limits(1e99, 8e4, 1e99)) == pytest.approx(1.0)


def test_limits_are_kept_and_only_ever_rise(
    empty_profile: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Limits(1.0, 5.0, 3.0), Limits(2.0, 4.0, 3.0)]
    monkeypatch.setattr(limits, "measured", lambda threads, dtype: found.pop(0))
    assert limits.limits(1, "float32") == Limits(1.0, 5.0, 3.0)
    assert limits.limits(1, "float32") == Limits(1.0, 5.0, 3.0), "it is not measured again"
    assert limits.limits(1, "float32", again=True) == Limits(2.0, 5.0, 3.0)
    (file,) = limits.places.cache_folder().glob("limits-*.json")
    for nonsense in ("", "[]", '{"float32, 1 threads": {"flops": 0}}'):
        file.write_text(nonsense)
        found.append(Limits(7.0, 7.0, 7.0))
        assert limits.limits(1, "float32") == Limits(7.0, 7.0, 7.0)


def test_the_speed_of_this_machine_is_plausible() -> None:
    found = limits.measured(1, "float32")
    assert 1e8 < found.flops < 1e14
    assert 1e8 < found.memory_bytes <= found.cached_bytes < 1e14


def test_the_judge_keeps_no_more_answers_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CASE.length * 8
    monkeypatch.setattr(answers, "_kept", {})
    monkeypatch.setattr(answers, "_MOST_BYTES", 3 * one)
    found = answers.run_answers(CASE, POOL, seconds=10.0)
    assert len(found.signed) == 3, "those of one race fit"
    assert list(answers._kept) == [(CASE, POOL, number) for number in range(3)]
    answers.run_answers(CASE, ImagePool(12), seconds=0.0)
    assert list(answers._kept) == [(CASE, POOL, 1), (CASE, POOL, 2), (CASE, ImagePool(12), 0)]
    monkeypatch.setattr(answers, "_MOST_BYTES", one // 2)
    assert len(answers.run_answers(CASE, ImagePool(13), seconds=10.0).signed) == 1, (
        "one in any case"
    )
    assert list(answers._kept) == [(CASE, ImagePool(13), 0)]


def test_the_next_turn_after_a_doubt_starts_with_a_clock_of_its_own(umpire: Referee) -> None:
    """Its process is a new one; else what was late once would be late for ever."""
    stream = _stream(CASE, NUMPY, umpire.source(CASE).images)
    turn = stream.turn(3, 0, thorough=False)._replace(seconds=[0.1] * 3, began=0.0, ended=1.0)
    assert umpire.objection(NUMPY, CASE, turn, 0.0, 9.0) is not None
    assert umpire.objection(NUMPY, CASE, turn, 0.0, 1.0) is None


def test_an_idle_process_leaks_nothing() -> None:
    assert streams.leaked_seconds() == 0.0
    assert 0 < referee.IMPOSSIBLE < 1
