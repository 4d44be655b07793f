"""Answers that the report rebuilds from the samples of a race."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

import stored_races

from demopool.choosing import rule, sessions
from demopool.problem.cases import Case
from demopool.problem.vocabulary import State, Verdict
from demopool.report import data, figures
from demopool.trials.samples import Sample


def test_a_candidate_that_failed_in_the_middle_is_not_in_the_answer() -> None:
    times = {"numpy:cpu/dense": 1e-3, "numba:cpu/dense": 1.02e-3, "torch:cpu/dense": 1.05e-3}
    rows = list(stored_races.race(Case(n=9, d=9), times, session="a", fingerprint="f"))
    died = [s for s in rows if not (s.backend == "torch:cpu" and s.round > 4)]
    broke = replace(
        died[-1],
        backend="torch:cpu",
        phase="once",
        round=0,
        value=None,
        state=State.ERROR,
        reason="it broke",
        measure="call_s",
        code=next(s.code for s in rows if s.backend == "torch:cpu"),
    )
    (race,) = sessions.rebuilt([*died, broke])
    timed = [str(row.candidate) for row in race.choice.rows if row.median_s is not None]
    assert timed == ["numpy:cpu/dense", "numba:cpu/dense"]
    assert race.choice.rounds == stored_races.ROUNDS
    # Killed in the middle of a round, on the other hand, costs that round only.
    killed = [s for s in rows if not (s.backend == "torch:cpu" and s.round == stored_races.ROUNDS)]
    (race,) = sessions.rebuilt(killed)
    assert len(race.choice.rows) == 3
    assert race.choice.rounds == stored_races.ROUNDS - 1


def test_a_close_winner_counts_only_if_new_processes_confirmed_it() -> None:
    times = {"numpy:cpu/dense": 1.0, "numba:cpu/dense": 1.08}
    rows = list(stored_races.race(Case(n=9, d=9), times, session="a", fingerprint="f", rounds=30))
    (race,) = sessions.rebuilt(rows)
    assert race.choice.state is Verdict.UNKNOWN
    again = [replace(s, phase="confirming") for s in rows if 1 <= s.round <= 16]
    (race,) = sessions.rebuilt([*rows, *again])
    assert race.choice.state is Verdict.FASTEST


def test_who_was_left_out_leaves_the_answer_open_and_load_is_told() -> None:
    times = {"numpy:cpu/dense": 1e-3, "numba:cpu/dense": 2e-3}
    rows = list(stored_races.race(Case(n=9, d=9), times, session="a", fingerprint="f", rounds=30))
    (race,) = sessions.rebuilt(rows)
    assert race.choice.state is Verdict.FASTEST
    assert race.load is None
    left = replace(rows[0], backend="torch:cpu", measure="needs_s", value=7.0)
    (race,) = sessions.rebuilt([*rows, left])
    assert race.choice.state is Verdict.UNKNOWN
    busy = [replace(s, measure="others_cores", value=1.5) for s in rows if s.measure == "mean_s"]
    (race,) = sessions.rebuilt([*rows, *busy])
    assert race.load == pytest.approx(1.5)
    assert "1.5 cores" in race.choice.sentence


def test_the_newest_race_counts_and_races_are_not_mixed() -> None:
    case = Case(n=9, d=9)
    old = stored_races.race(case, {"numpy:cpu/dense": 9.0}, session="a", fingerprint="f")
    new = stored_races.race(case, {"numpy:cpu/dense": 1.0}, session="b", fingerprint="f")
    at = {"measured_at": "2020-01-01T00:00:00.000+00:00"}
    (job,) = data._jobs([*new, *(replace(s, **at) for s in old)])
    assert job.choice.rows[0].median_s == pytest.approx(1.0, rel=0.05)


def test_calls_in_a_row_are_facts_too() -> None:
    def sample(value: float, code: str = "") -> Sample:
        case = Case(n=9, d=9)
        return Sample("numpy:cpu", "dense", case, "call_s", value, fingerprint="f", code=code)

    rows = [sample(9.0), *(sample(v, "new") for v in (1.0, 1.0, 1.0, 1.0, 50.0))]
    (fact,) = data._of_calls(rows)
    assert fact.value == 1.0


@pytest.mark.parametrize("rounds", [1, 5, 6])
def test_few_rounds_have_no_interval(rounds: int) -> None:
    """Of one round it had the width 0 and was called 95 %."""
    rows = stored_races.race(
        Case(), {"numpy:cpu/dense": 1e-3, "torch:cpu/dense": 2e-3}, session="s", rounds=rounds
    )
    (found,) = sessions.rebuilt(list(rows))
    slower = found.choice.rows[1]
    assert slower.ratio is not None
    bounds = (slower.low_s, slower.high_s, slower.ratio_low, slower.ratio_high)
    assert all((bound is None) == (rounds < rule.FEWEST) for bound in bounds)
    (line,) = [line for line in str(found.choice).splitlines() if line.startswith("torch:cpu")]
    assert bool(re.search(r"\d-\d", line.replace("e-", ""))) == (rounds >= rule.FEWEST)
    origin = data.Origin("m", 2, "choose")
    (bars,) = figures.of_job(data.ReportedRace(origin, "f", found.choice, "2026-01-01T00:00:00"))
    assert ("fewer than 6 rounds have none" in bars.says) == (rounds < rule.FEWEST)


def test_ratios_are_paired_by_round() -> None:
    """A machine that slows down for some rounds slows both: the ratio does not see it."""
    times = {"numpy:cpu/dense": 1.0, "numba:cpu/dense": 1.5}
    rows = list(
        stored_races.race(Case(n=9, d=9), times, session="a", fingerprint="f", spread=0.001)
    )
    slow = [replace(s, value=s.value * 5) if s.round % 2 and s.value else s for s in rows]
    (race,) = sessions.rebuilt(slow)
    lead, other = race.choice.rows
    assert other.ratio == pytest.approx(1.5, rel=0.01)
    assert other.ratio_high is not None
    assert other.ratio_high < 1.6
    assert lead.high_s is not None
    assert lead.high_s > 4
    assert rule.interval(np.array([1.0, 2.0]))[1] == 1.5
