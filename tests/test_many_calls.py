"""A job of N calls in one process: first calls count, by the rule's own words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fake_workers import FakeWorkers
from hypothesis import given
from hypothesis import strategies as st

from demopool.choosing import chooser, printing, racing, rule, sessions
from demopool.choosing.rule import Round
from demopool.choosing.totals import DOUBT, Totals, pays_after
from demopool.commands import choose as command
from demopool.common import places
from demopool.errors import InvalidInput
from demopool.measurement.worker import Answer
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State, Verdict
from demopool.profiles import auto, store
from demopool.trials import requests, samples

CASE = Case(batch=2, n=30, d=8)
QUICK, EARLY = "numba:cpu/dense", "numpy:cpu/dense"
CALLS = {QUICK: 0.002, EARLY: 0.004}
FIRST = {QUICK: 2.0, EARLY: 0.01}
PAYS = 996
"""(2.0 - 0.01) / (0.004 - 0.002) calls are 995, and the first."""


class Compiling(FakeWorkers):
    """First calls take times of their own."""

    def __init__(self, calls: Mapping[str, Any] = CALLS, first: Mapping[str, float] = FIRST):
        super().__init__(calls)
        self.first = first

    def play(self, function: Any, name: str, case: Any, options: Any) -> tuple[Answer, float]:
        if function is requests.run_first_call:
            return Answer(State.OK, self.first[name]), self.first[name]
        return super().play(function, name, case, options)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two candidates; rounds of one turn, without pauses, on a machine that nobody else uses."""
    monkeypatch.setattr(rule, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(racing, "PAUSE", 0.0)
    monkeypatch.setattr(racing.Others, "cores", lambda self: 0.0)
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    field = [Candidate.parse(name) for name in CALLS]
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], field))
    store.forget()


def _choose(workers: FakeWorkers | None = None, **options: Any) -> Any:
    workers = workers or Compiling()
    fixed = {"budget": 60.0, "workers": workers, "now": workers.clock, "warnings": ()}
    return chooser.choose(CASE, **{**fixed, **options})


def test_the_sentence_says_after_how_many_calls_the_winner_pays() -> None:
    found = _choose()
    assert (found.state, found.backend) == (Verdict.FASTEST, "numba:cpu")
    pays = "Pays after about 1,000 calls in one process; for fewer use numpy:cpu/dense."
    assert pays in found.sentence


@pytest.mark.parametrize("first", [{QUICK: 0.01, EARLY: 0.01}, {QUICK: 0.01, EARLY: 2.0}])
def test_a_winner_that_pays_at_once_is_only_named(first: dict[str, float]) -> None:
    assert "Pays" not in _choose(Compiling(first=first)).sentence


def test_a_tie_names_the_shorter_first_call() -> None:
    # numba:cpu takes less memory here, or it would not be recommended.
    class Lean(Compiling):
        def play(self, function: Any, name: str, case: Any, options: Any) -> tuple[Answer, float]:
            answer, seconds = super().play(function, name, case, options)
            if function is requests.run_measure and name == QUICK:
                answer = answer._replace(value=answer.value._replace(value=1e5))
            return answer, seconds

    found = _choose(Lean(calls=dict.fromkeys(CALLS, 0.002)))
    assert (found.state, found.backend) == (Verdict.TIE, "numba:cpu")
    few = "For few calls use numpy:cpu/dense: its first takes 10 ms, not 2 s."
    assert few in found.sentence


seconds = st.floats(1e-6, 1e3)


@given(seconds, seconds, seconds, seconds)
def test_it_pays_from_the_next_call_on(a: float, b: float, c: float, d: float) -> None:
    call, longer = sorted((a, b))
    if longer < 1.001 * call:
        return
    calls = pays_after(c, call, d, longer)
    both = {"best": c, "other": d}
    for n in (1, calls, calls + 1, 2 * calls + 1):
        total = Totals(n, both) if n else None
        if total is None:
            continue
        gain = total.seconds("other", longer) - total.seconds("best", call)
        rounding = 1e-9 * (total.seconds("other", longer) + total.seconds("best", call))
        assert gain >= -rounding if n > calls else gain <= rounding


@pytest.mark.parametrize(
    ("calls", "best"), [(1, "numpy:cpu"), (100, "numpy:cpu"), (PAYS * 10, "numba:cpu")]
)
def test_a_clear_total_decides(calls: int, best: str) -> None:
    found = _choose(calls=calls)
    assert (found.state, found.backend, found.calls) == (Verdict.FASTEST, best, calls)
    words = "1 call" if calls == 1 else f"{calls:,} calls"
    assert f"faster than the next in {words}" in found.sentence
    assert "Pays" not in found.sentence
    for row in found.rows:
        assert row.total_s == pytest.approx(row.first_call_s + (calls - 1) * row.median_s)
    totals = sorted(row.total_s for row in found.rows)
    assert found.rows[1].ratio == pytest.approx(totals[1] / totals[0])
    assert [row.verdict for row in found.rows] == [Verdict.FASTEST, Verdict.SLOWER]


def test_where_totals_are_alike_first_calls_leave_it_open() -> None:
    found = _choose(calls=PAYS)
    assert found.state is Verdict.UNKNOWN
    assert DOUBT in found.sentence
    assert "--fresh times them again" in found.sentence
    assert "--budget" not in found.sentence


def test_where_first_calls_hardly_count_totals_can_tie() -> None:
    found = _choose(Compiling(calls=dict.fromkeys(CALLS, 0.002)), calls=10**6)
    assert found.state is Verdict.TIE
    assert "in 1,000,000 calls" in found.sentence


def test_stored_rounds_answer_for_any_number_of_calls() -> None:
    by_call = _choose()
    for calls, best in ((1, "numpy:cpu"), (PAYS * 10, "numba:cpu")):
        workers = Compiling()
        found = _choose(workers, calls=calls)
        assert (found.backend, found.reused, workers.asked) == (best, True, [])
    again = _choose(Compiling())
    assert (again.reused, again.sentence) == (True, by_call.sentence)


def _rounds(count: int, spread: float, seed: int) -> list[Round]:
    noise = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        common = float(np.exp(0.1 * noise.standard_normal()))
        factors = np.exp(spread * noise.standard_normal(len(CALLS)))
        times = {n: common * t * f for (n, t), f in zip(CALLS.items(), factors, strict=True)}
        found.append(Round(times, times))
    return found


def test_what_other_rounds_leave_open_is_raced_anew_and_spoils_nothing() -> None:
    """Dropped after 8 rounds as twice as slow, and near in total: more rounds of both decide."""
    first = {QUICK: 0.1, EARLY: 0.01}
    by_call = _choose(Compiling(first=first))
    assert by_call.rounds == 8
    workers = Compiling(first=first)
    found = _choose(workers, calls=100)
    assert (found.state, found.backend, found.reused) == (Verdict.FASTEST, "numba:cpu", False)
    assert found.rounds > by_call.rounds
    again = Compiling(first=first)
    assert _choose(again, calls=100).reused
    assert again.asked == []
    plain = _choose(Compiling(first=first))
    assert (plain.reused, plain.rounds, plain.sentence) == (True, 8, by_call.sentence)


def test_a_race_for_many_calls_goes_on_where_it_was_interrupted() -> None:
    turns = 0

    class Interrupted(Compiling):
        def play(self, function: Any, name: str, case: Any, options: Any) -> tuple[Answer, float]:
            nonlocal turns
            turns += function is requests.run_turn
            if turns > 12:
                raise KeyboardInterrupt
            return super().play(function, name, case, options)

    part = _choose(Interrupted(), calls=10)
    assert part.interrupted
    workers = Compiling()
    found = _choose(workers, calls=10)
    assert (found.state, found.backend) == (Verdict.FASTEST, "numpy:cpu")
    assert "run_first_call" not in {asked[0] for asked in workers.asked}


@pytest.mark.parametrize("seed", range(20))
def test_noise_makes_no_false_winner_and_hides_no_clear_one(seed: int) -> None:
    """Of calls 5 %, of first calls 10 %."""
    rounds = _rounds(60, 0.05, seed)
    noise = np.exp(0.1 * np.random.default_rng(1000 + seed).standard_normal(len(FIRST)))
    first = {n: t * f for (n, t), f in zip(FIRST.items(), noise, strict=True)}

    def verdict(calls: int) -> tuple[Any, Any]:
        totals = Totals(calls, first)
        judged = rule.consistent(totals.rounds(rounds), CALLS.keys(), 1)
        standing = rule.standing_of(judged, calls=1)
        if totals.doubt(rounds[: len(judged)], standing):
            return Verdict.UNKNOWN, standing.lead
        return standing.verdict, standing.lead

    assert verdict(100) == (Verdict.FASTEST, EARLY)
    assert verdict(10 * PAYS) == (Verdict.FASTEST, QUICK)
    for near in (0.97, 1.0, 1.03):
        assert verdict(int(near * PAYS))[0] is not Verdict.FASTEST


def test_auto_learns_times_but_no_recommendation() -> None:
    assert _choose(calls=1).backend == "numpy:cpu"
    (record,) = store.here().decided
    assert (record.backend, record.whole, record.state) == ("", False, Verdict.UNKNOWN)
    assert {str(Candidate(m.backend, m.route)): m.seconds for m in record.candidates} == CALLS
    assert auto.explain((2, 30, 8)).because == "model"
    _choose()
    _choose(calls=1)
    (record,) = store.here().decided
    assert (record.backend, record.whole, record.state) == ("numba:cpu", True, Verdict.FASTEST)


def test_the_table_and_its_words() -> None:
    text = "\n".join(printing.lines(_choose(calls=100), 120))
    assert "data on the host, 100 calls in one process" in text
    assert "total" in text.splitlines()[3]
    assert "208 ms" not in text  # of numba:cpu it is 2 s and 99 calls
    assert "2.2 s" in text
    assert "406 ms" in text
    assert "total: the first call of a process" in text
    plain = "\n".join(printing.lines(_choose(), 120))
    assert "total" not in plain


def test_the_command_and_its_json(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _choose(calls=100)
    asked: list[dict[str, Any]] = []

    def choose(case: Case, **options: Any) -> Any:
        asked.append(options)
        return found

    monkeypatch.setattr(command, "choose", choose)
    arguments = ["--n", "30", "--d", "8", "--calls", "100", "--json"]
    done = CliRunner().invoke(command.choose_command, arguments, standalone_mode=False)
    (result,) = json.loads(done.output)["results"]
    assert (asked[0]["calls"], result["calls"]) == (100, 100)
    assert [row["total_s"] for row in result["candidates"]] == [r.total_s for r in found.rows]


@pytest.mark.parametrize("calls", ["0", "-3", "many", "1.5", "nan"])
def test_numbers_of_calls_that_make_no_sense(calls: str) -> None:
    done = CliRunner().invoke(command.choose_command, ["--calls", calls])
    assert done.exit_code == 2
    assert "--calls" in done.output


@pytest.mark.parametrize("calls", [0, -1, 1.5, True, "3", float("nan")])
def test_numbers_of_calls_that_make_no_sense_in_python(calls: Any) -> None:
    with pytest.raises(InvalidInput, match="calls must be an integer >= 1"):
        _choose(calls=calls)


def test_what_a_process_had_compiled_before_is_part_of_a_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Routes of a backend share a process, and code: the second is not charged less for it."""
    names = ("numba:cpu/dense", "numba:cpu/matrix-free")
    field = [Candidate.parse(name) for name in names]
    monkeypatch.setattr(chooser, "_candidates", lambda *_: ([], field))
    loading = iter((2.0, 0.1))

    class Loading(FakeWorkers):
        def play(self, function: Any, name: str, case: Any, options: Any) -> tuple[Answer, float]:
            if function is requests.run_loading:
                seconds = next(loading, 0.0)
                return Answer(State.OK, seconds), seconds
            return super().play(function, name, case, options)

    found = _choose(Loading(dict.fromkeys(names, 0.002)))
    assert sorted(row.first_call_s for row in found.rows) == pytest.approx([2.002, 2.102])


def test_a_report_tells_of_calls(tmp_path: Path) -> None:
    """A race for totals says what it can about calls, and nothing once there is a race for them."""

    def reported() -> Any:
        (file,) = (tmp_path / "samples").glob("*.jsonl")
        (found,) = sessions.rebuilt(samples.read(file))
        return found.choice

    first = {QUICK: 0.1, EARLY: 0.01}
    _choose(Compiling(first=first, calls={QUICK: 0.002, EARLY: 0.0022}), calls=2)
    assert (reported().state, reported().calls) == (Verdict.UNKNOWN, None)
    by_call = _choose(Compiling(first=first))
    _choose(Compiling(first=first), calls=100)
    assert reported().sentence == by_call.sentence


def test_samples_name_the_job(tmp_path: Path) -> None:
    _choose(calls=7)
    (file,) = (tmp_path / "samples").glob("*.jsonl")
    assert {s.value for s in samples.read(file) if s.measure == "job_calls"} == {7}
