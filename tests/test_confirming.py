"""Suspects are measured again, two commits in turns."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from demopool import results
from demopool.errors import DemopoolError
from demopool.results import history
from demopool.results.history import asv_runs, confirming
from demopool.results.history.asv_runs import Group

pytest.importorskip("pandas")
pytest.importorskip("asv")

import asv_project
import made_history
from asv_project import Project
from made_history import (
    NUMPY,
    STEP,
    Run,
    gate,
    made,
    measured,
    payload,
)

from tools import history_errors

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


def test_a_pattern_is_of_one_cell(tmp_path: Path) -> None:
    project = made(tmp_path, 1)
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
        (lambda n: (0.008, 0.013)[n % 2], "open", 20, 1),
    ],
)
def test_the_rounds_are_believed_alone(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: Callable[[int], float],
    state: str,
    rounds: int,
    code: int,
) -> None:
    """asv is replaced by one that answers with these values."""
    project = measured(tmp_path, STEP, [0.02] * 12)
    asked: list[str] = []

    @contextlib.contextmanager
    def measuring(where: Path, group: Group, cells: Sequence[str]) -> Iterator[asv_runs.Measure]:
        assert where == tmp_path
        assert group.threads == 2

        def measure(commit: str, patterns: Sequence[str]) -> dict[str, float | None]:
            assert list(patterns) == list(cells)
            number = project.commits.index(commit)
            value = 0.010 if number <= 7 else again(len(asked) // 5)
            asked.append(commit)
            return dict.fromkeys(patterns, value)

        yield measure

    monkeypatch.setattr(asv_runs, "measuring", measuring)
    found = payload(run, project, "--confirm")["regressions"]
    assert [row["state"] for row in found] == [state]
    again_found = found[0]["confirmation"]
    assert again_found["rounds"] == rounds
    near = [project.commits[number] for number in (6, 7, 8, 9, 11)]
    assert again_found["commits"] == near
    assert len(asked) == len(near) * rounds
    (kept,) = (tmp_path / asv_runs.FOLDER).glob("*.jsonl")
    assert len(kept.read_text().splitlines()) == rounds
    assert gate(run, project, "--confirm")[0] == code


def test_rounds_that_failed_do_not_count(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the first six failed: the rest decides after the second look, not before."""
    project = measured(tmp_path, STEP, [0.02] * 12)
    asked: list[str] = []

    @contextlib.contextmanager
    def measuring(where: Path, group: Group, cells: Sequence[str]) -> Iterator[asv_runs.Measure]:
        def measure(commit: str, patterns: Sequence[str]) -> dict[str, float | None]:
            asked.append(commit)
            slow = project.commits.index(commit) >= 8
            return dict.fromkeys(patterns, None if len(asked) == 3 else 0.0142 if slow else 0.010)

        yield measure

    monkeypatch.setattr(asv_runs, "measuring", measuring)
    (found,) = payload(run, project, "--confirm")["regressions"]
    assert (found["state"], found["confirmation"]["rounds"]) == ("confirmed", 11)
    assert len(asked) == 5 * 12


def test_the_rounds_say_which_commit_it_was(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise has moved the step by a commit in the history, in either direction."""
    project = measured(tmp_path, STEP, [0.02] * 12)
    truth = 7

    @contextlib.contextmanager
    def measuring(where: Path, group: Group, cells: Sequence[str]) -> Iterator[asv_runs.Measure]:
        yield lambda commit, patterns: dict.fromkeys(
            patterns, 0.0142 if project.commits.index(commit) >= truth else 0.010
        )

    monkeypatch.setattr(asv_runs, "measuring", measuring)
    for truth in (7, 8, 9):
        (found,) = payload(run, project, "--confirm")["regressions"]
        assert found["state"] == "confirmed"
        assert found["commit"] == found["confirmation"]["appeared"] == project.commits[truth]
        assert found["last_good"] == project.commits[truth - 1]


def test_a_suspect_that_is_gone_is_measured_where_it_was(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other work all the time: a step that came and went is no regression until it is measured."""
    project = measured(tmp_path, [0.010] * 5 + [0.0142] * 5 + [0.010] * 5, load=0.5)
    (before,) = payload(run, project)["regressions"]
    assert (before["state"], before["fixed_by"]) == ("suspect", project.commits[10])
    value = 0.0142

    @contextlib.contextmanager
    def measuring(where: Path, group: Group, cells: Sequence[str]) -> Iterator[asv_runs.Measure]:
        assert [project.commits.index(commit) for commit in group.commits] == [3, 4, 5, 6, 8]
        yield lambda commit, patterns: dict.fromkeys(
            patterns, value if project.commits.index(commit) >= 5 else 0.010
        )

    monkeypatch.setattr(asv_runs, "measuring", measuring)
    for now, state in ((0.0142, "fixed"), (0.010, "refuted")):
        value = now
        (found,) = payload(run, project, "--confirm")["regressions"]
        assert (found["state"], found["fixed_by"]) == (state, project.commits[10])
        assert gate(run, project, "--confirm")[0] == 0


def test_suspects_of_several_machines_cannot_be_measured_here(run: Run, tmp_path: Path) -> None:
    project = measured(tmp_path, STEP)
    for number, value in enumerate(STEP):
        project.measure(number, {NUMPY: value}, machine="other")
    code, _, err = run(project, "--confirm")
    assert (code, "name this machine by --machine (made, other)" in err) == (2, True)


# --- with a real asv ---


@pytest.fixture
def toy(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = asv_project.measured(tmp_path_factory.getbasetemp() / "toy")
    notes = tmp_path_factory.mktemp("notes")
    for name, value in {**asv_project.environment(project.folder), "TOY_NOTES": str(notes)}.items():
        monkeypatch.setenv(name, value)
    return project


CELL = r"^descriptors\.Democratic\.time_call\('numpy:cpu/dense', 'vgg-b1'\)$"
TRACKED = r"^descriptors\.Democratic\.track_peak_host_bytes\('numpy:cpu/dense', 'vgg-b1'\)$"


def group_of(toy: Project, *names: str) -> Group:
    before, after = (toy.commits[name] for name in names)
    return Group(asv_project.MACHINE, 1, (before, after))


def test_both_commits_stay_installed(toy: Project) -> None:
    group = group_of(toy, "start", "slow")
    with asv_runs.measuring(toy.folder, group, [CELL, TRACKED]) as measure:
        for _ in range(2):
            before, after = (measure(commit, [CELL, TRACKED]) for commit in group.commits)
            assert before[TRACKED] == after[TRACKED] == 10e6
            assert 0.002 <= (before[CELL] or 0) < 0.008 <= (after[CELL] or 0)


def test_what_fails_has_no_value(toy: Project) -> None:
    group = group_of(toy, "start", "broken")
    with asv_runs.measuring(toy.folder, group, [CELL]) as measure:
        assert measure(group.commits[1], [CELL]) == {CELL: None}


def test_an_unknown_cell_is_one_error(toy: Project) -> None:
    with (
        pytest.raises(DemopoolError, match=r"no benchmark \^nothing"),
        asv_runs.measuring(toy.folder, group_of(toy, "start", "slow"), ["^nothing$"]),
    ):
        pass


MEASURING = """
import sys
from pathlib import Path
from demopool.results.history import asv_runs

group = asv_runs.Group("alpha", 1, (sys.argv[2], sys.argv[3]))
with asv_runs.measuring(Path(sys.argv[1]), group, [sys.argv[4]]) as measure:
    print("ready", flush=True)
    while True:
        measure(sys.argv[2], [sys.argv[4]])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind(toy: Project, how: signal.Signals) -> None:
    # Not tmp_path: the path of a socket, which asv makes there, may have a hundred characters.
    with tempfile.TemporaryDirectory() as folder:
        check_that_nothing_is_left(toy, Path(folder), how)


def check_that_nothing_is_left(toy: Project, tmp_path: Path, how: signal.Signals) -> None:
    group = group_of(toy, "start", "slow")
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURING, str(toy.folder), *group.commits, CELL],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert running(tmp_path)
        process.send_signal(how)
        process.wait()
    end = time.monotonic() + 20
    while running(tmp_path) or list(tmp_path.iterdir()):
        assert time.monotonic() < end, (running(tmp_path), list(tmp_path.iterdir()))
        time.sleep(0.05)


def running(temporary: Path) -> list[str]:
    """The processes whose temporary files lie in this folder."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={temporary}".encode() in environment.read_bytes():
                found.append(environment.parent.name)
    return found
