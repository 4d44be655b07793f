"""Suspects are measured again, two commits in turns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from demopool import results
from demopool.results import history
from demopool.results.history import asv_runs, confirming
from demopool.results.history.asv_runs import Pair

pytest.importorskip("pandas")
pytest.importorskip("asv")

import made_history
from made_history import (
    NUMPY,
    STEP,
    Run,
    gate,
    made,
    measured,
    payload,
    runner,
)

from tools import history_errors


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made"


PAIR = ("a" * 40, "b" * 40)


def test_rounds_decide() -> None:
    def verdict(*ratios: float) -> str:
        answer = confirming.judge(PAIR, [(1.0, ratio) for ratio in ratios], 1.10)
        assert answer is not None
        assert answer.low < answer.ratio < answer.high
        return answer.verdict

    assert verdict(1.41, 1.42, 1.43, 1.40, 1.44, 1.42) == "confirmed"
    assert verdict(1.01, 0.99, 1.00, 1.02, 0.98, 1.00) == "refuted"
    assert verdict(1.01, 0.99, 1.00, 1.02, 0.98, 9.00) == "refuted"
    assert verdict(1.3, 0.9, 1.1, 0.8, 1.4, 1.0) == "undecided"
    # It is there, but too small to count.
    assert verdict(*[1.05, 1.051, 1.049, 1.05, 1.052, 1.048] * 2) == "refuted"
    # However clear, too few: rounds may have failed.
    assert verdict(1.41, 1.42, 1.43, 1.40, 1.44) == "undecided"
    assert verdict(1.01, 0.99, 1.00, 1.02, 0.98) == "undecided"
    assert confirming.judge(PAIR, [(1.0, 2.0)], 1.10) is None
    assert confirming.judge(PAIR, [(0.0, 2.0)] * 6, 1.10) is None


def test_every_other_round_begins_with_the_newer_commit() -> None:
    assert [confirming.turns(PAIR, number)[0] for number in range(4)] == [*PAIR, *PAIR]


@pytest.mark.parametrize("burst", [0.0, 1 / 12, 1 / 3])
def test_measuring_again_seldom_errs(burst: float) -> None:
    same = history_errors.confirmations(1.0, burst, 0.04, runs=300, seed=1)
    slower = history_errors.confirmations(1.42, burst, 0.04, runs=300, seed=1)
    assert same["confirmed"] <= 0.02
    assert slower["refuted"] <= 0.02
    assert slower["confirmed"] >= 0.6


def test_a_pattern_is_of_one_cell(folder: Path) -> None:
    project = made(folder, 1)
    project.measure(0, {NUMPY: 0.01, f"{NUMPY}+fft": 0.01})
    cells = [f"{made_history.TIME}('{name}', 'vgg-b1')" for name in (NUMPY, f"{NUMPY}+fft")]
    for number, one in enumerate(history.series(results.read(project.results))):
        found = [bool(re.search(confirming.pattern(one), cell)) for cell in cells]
        assert found == [number == 0, number == 1]


@pytest.mark.parametrize(
    ("again", "state", "rounds", "code"),
    [
        (lambda n: 0.0142, "confirmed", 6, 1),
        (lambda n: 0.010, "refuted", 6, 0),
        (lambda n: (0.008, 0.013)[n // 2 % 2], "open", 20, 1),
    ],
)
def test_the_rounds_are_believed_alone(
    run: Run,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: Callable[[int], float],
    state: str,
    rounds: int,
    code: int,
) -> None:
    """asv is replaced by one that answers with these values."""
    project = measured(folder, STEP, [0.02] * 12)
    asked: list[str] = []

    @contextmanager
    def measuring(where: Path, pair: Pair, cells: Sequence[str]) -> Iterator[asv_runs.Measure]:
        assert where == folder
        assert pair.threads == 2

        def measure(commit: str, patterns: Sequence[str]) -> dict[str, float | None]:
            assert list(patterns) == list(cells)
            number = project.commits.index(commit)
            value = 0.010 if number == 7 else again(len(asked))
            asked.append(commit)
            return dict.fromkeys(patterns, value)

        yield measure

    monkeypatch.setattr(asv_runs, "measuring", measuring)
    found = payload(run, project, "--confirm")["regressions"]
    assert [row["state"] for row in found] == [state]
    again_found = found[0]["confirmation"]
    assert again_found["rounds"] == rounds
    assert again_found["commits"] == [project.commits[7], project.commits[11]]
    assert len(asked) == 2 * rounds
    (kept,) = (folder / asv_runs.FOLDER).glob("*.jsonl")
    assert len(kept.read_text().splitlines()) == rounds
    assert gate(run, project, "--confirm")[0] == code


def test_suspects_of_several_machines_cannot_be_measured_here(run: Run, folder: Path) -> None:
    project = measured(folder, STEP)
    for number, value in enumerate(STEP):
        project.measure(number, {NUMPY: value}, machine="other")
    code, _, err = run(project, "--confirm")
    assert (code, "name this machine by --machine (made, other)" in err) == (2, True)
