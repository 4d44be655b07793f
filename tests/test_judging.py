"""Green means measured and fine: what ``demopool history`` makes of made result files."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from demopool import results
from demopool.commands import main
from demopool.report import data, figures, history_plot
from demopool.results import history
from demopool.results.history import asv_runs, confirming

pytest.importorskip("pandas")
pytest.importorskip("asv")

import made_history
from made_history import BASELINE, MACHINE, NUMPY, TORCH, Made, Skipped, made, measured

from tools import history_errors

Run = Callable[..., tuple[int, str, str]]

IMPORT_ERROR = Skipped("unavailable", "ImportError: cannot import name 'planted'")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``demopool history`` in a made project: exit code, output on one line, errors."""
    monkeypatch.setenv("COLUMNS", "120")

    def called(project: Made, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.chdir(project.folder)
        monkeypatch.setattr(sys, "argv", ["demopool", "history", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        printed = capsys.readouterr()
        code = done.value.code
        assert isinstance(code, int)
        return code, " ".join(printed.out.split()), printed.err

    return called


def gate(run: Run, project: Made, *arguments: object) -> tuple[int, str]:
    code, out, _ = run(project, "--fail-on-regression", *arguments)
    return code, out


def payload(run: Run, project: Made, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(project, "--json", *arguments)[1])
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "made"


# --- what is no longer measured ---


def test_a_steady_history_is_green(run: Run, folder: Path) -> None:
    code, out = gate(run, measured(folder, [0.010] * 6, [0.020] * 6))
    assert code == 0
    assert "No regression found." in out


def test_a_backend_that_stops_importing_is_not_green(run: Run, folder: Path) -> None:
    project = made(folder, 4)
    for number in range(4):
        torch = 0.01 if number < 3 else IMPORT_ERROR
        project.measure(number, {BASELINE: 0.02, NUMPY: 0.01, TORCH: torch})
    code, out = gate(run, project)
    assert code == 1
    assert "No regression found" not in out
    assert (
        f"1 series had values and were skipped at the newest commit {project.commits[3][:8]}" in out
    )
    assert "unavailable: ImportError: cannot import name 'planted'" in out
    (loss,) = payload(run, project)["lost"]
    assert (loss["candidate"], loss["last_good"]) == (TORCH, project.commits[2])
    assert (loss["candidate_state"], loss["by_machine"]) == ("unavailable", False)


@pytest.mark.parametrize(
    ("gap", "fingerprint", "code"),
    [
        (IMPORT_ERROR, "0123456789abcdef", 1),
        (IMPORT_ERROR, "another machine", 0),
        (Skipped("out-of-memory", "predicted to need 9 GB"), "0123456789abcdef", 0),
        (Skipped("out-of-memory", "MemoryError", "failure"), "0123456789abcdef", 1),
        (Skipped("unsupported", "no such route"), "another machine", 1),
        (Skipped("timeout", "predicted to take 9 s"), "0123456789abcdef", 1),
        (Skipped("wrong", "off by 0.3", "failure"), "0123456789abcdef", 1),
        (None, "another machine", 1),
    ],
)
def test_what_the_machine_is_to_blame_for_fails_nothing(
    run: Run, folder: Path, gap: Skipped | None, fingerprint: str, code: int
) -> None:
    project = made(folder, 3)
    for number in range(2):
        project.measure(number, {NUMPY: 0.01, TORCH: 0.01})
    project.measure(2, {NUMPY: 0.01, TORCH: gap}, fingerprint=fingerprint)
    found, out = gate(run, project)
    assert found == code
    assert ("the machine's doing" in out) is (code == 0)


def test_what_comes_back_is_not_lost(run: Run, folder: Path) -> None:
    assert gate(run, measured(folder, [0.01, IMPORT_ERROR, 0.01]))[0] == 0


def test_what_never_had_a_value_is_not_lost_unless_it_fails(run: Run, folder: Path) -> None:
    project = made(folder, 3)
    for number in range(3):
        project.measure(number, {NUMPY: 0.01, TORCH: IMPORT_ERROR})
    assert gate(run, project)[0] == 0
    project.measure(2, {NUMPY: 0.01, TORCH: None})
    assert gate(run, project)[0] == 1


def test_an_unmeasured_head_is_not_green(run: Run, folder: Path) -> None:
    project = measured(folder, [0.01] * 4)
    assert gate(run, project)[0] == 0
    project.commit("docs")
    assert "newest measured is" in gate(run, project)[1]
    newest = project.commits[3]
    project.commit("more docs")
    code, out = gate(run, project)
    assert code == 1
    assert f"HEAD has no results; newest measured is {newest[:8]}, two commits ago." in out
    assert gate(run, project, "--allow-unmeasured")[0] == 0
    assert run(project)[0] == 0
    head = payload(run, project)["head"]
    assert head == {
        "commit": project.commits[5],
        "measured": False,
        "newest": newest,
        "behind": 2,
    }


def test_since_an_unmeasured_head_there_is_nothing(run: Run, folder: Path) -> None:
    project = measured(folder, [0.01] * 4)
    project.commit("docs")
    code, out = gate(run, project, "--since", "HEAD")
    assert (code, "0 series over 0 commits" in out) == (1, True)


def test_results_that_were_not_asked_for_do_not_measure_head(run: Run, folder: Path) -> None:
    project = measured(folder, [0.01] * 4)
    project.commit("new")
    project.measure(4, {NUMPY: 0.01}, threads=1)
    assert gate(run, project)[0] == 0
    assert "1 of 2 series were not measured at HEAD" in gate(run, project)[1]
    assert gate(run, project, "--threads", 2)[0] == 1
    # All cells n/a and no reason noted: asv was not asked for them.
    project.measure(4, {NUMPY: float("nan")}, threads=1)
    assert gate(run, project)[0] == 1


def test_results_on_another_branch_only_do_not_measure_head(run: Run, folder: Path) -> None:
    project = measured(folder, [0.01] * 3)
    project.git("checkout", "--quiet", "--orphan", "other")
    project.commit("elsewhere")
    code, out = gate(run, project)
    assert (code, "HEAD has no results, nor has any commit before it." in out) == (1, True)


def test_results_of_another_repository_say_nothing_about_this_head(
    run: Run, tmp_path: Path
) -> None:
    theirs = measured(tmp_path / "theirs", [0.01] * 3)
    theirs.commit("unmeasured")
    ours = made(tmp_path / "ours", 0)
    ours.commit("a different root")
    # Commits of the same second and content have the same hash: this one has another message.
    assert gate(run, ours, theirs.results)[0] == 0
    assert payload(run, ours, theirs.results)["head"] is None


# --- threads, machines, order ---


def test_thread_counts_are_not_mixed(run: Run, folder: Path) -> None:
    project = made(folder, 6)
    for number in range(5):
        project.measure(number, {BASELINE: 0.02, NUMPY: 0.010}, threads=2)
    project.measure(5, {BASELINE: 0.04, NUMPY: 0.019}, threads=1)
    found = payload(run, project)
    assert found["regressions"] == []
    assert {(row["threads"], len(row["points"])) for row in found["series"]} == {(2, 5), (1, 1)}
    (chosen, _) = payload(run, project, "--threads", 1)["series"]
    assert chosen["threads"] == 1
    code, _, err = run(project, "--threads", 3)
    assert (code, "--threads must be one that was measured (1, 2); got 3" in err) == (2, True)


def test_thread_counts_have_panels_and_curves_of_their_own(folder: Path) -> None:
    project = made(folder, 3)
    for number in range(3):
        for threads in (1, 2):
            project.measure(number, {NUMPY: 0.01 / threads}, threads=threads)
    lines = history.series(results.read(project.results))
    drawn = list(history_plot.panels(lines, project.commits, {}, most=9, width=4.0))
    assert [title.rpartition(", ")[2] for title, _, _ in drawn] == ["1 thread", "2 threads"]
    facts = data.gather((project.results,)).facts
    assert {(fact.origin.threads, fact.value) for fact in facts} == {(1, 0.01), (2, 0.005)}


def test_the_report_has_the_order_of_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commits are of one second: without git an improvement could be drawn as a regression."""
    project = made(folder, 8)
    # Measured newest first, as `asv run A..B` does.
    for number in range(8):
        project.measure(number, {NUMPY: 0.02 if number < 4 else 0.01})
        _set_started(project, number, 100 - number)
    monkeypatch.chdir(folder)
    project.git("checkout", "--quiet", "-b", "other", project.commits[3])
    project.commit("not on this branch")
    project.measure(8, {NUMPY: 0.5})
    project.git("checkout", "--quiet", "main")
    found = data.gather((project.results,))
    (panel,) = [figure for figure in figures.all_of(found) if figure.name == "history"]
    (line,) = [one for one in panel.made.axes[0].lines if len(one.get_ydata()) > 2]
    assert [round(value, 6) for value in line.get_ydata()] == [20.0] * 4 + [10.0] * 4
    (fact,) = [f for f in data.gather((project.results,)).facts if f.value < 0.4]
    assert fact.value == 0.01


def _set_started(project: Made, number: int, minute: int) -> None:
    for file in (project.results / MACHINE).glob(f"{project.commits[number][:8]}-*.json"):
        stored = json.loads(file.read_text())
        stored["results"][made_history.TIME][3] = made_history.STARTED + 60_000 * minute
        file.write_text(json.dumps(stored))


def test_the_report_has_memory_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = made(folder, 4)
    memory = "descriptors.Democratic.track_peak_host_bytes"
    for number in range(4):
        project.measure(number, {NUMPY: 1e7 * (1 + number)}, benchmark=memory)
    known = {memory: {"unit": "bytes", "version": "1", "param_names": ["candidate", "case"]}}
    (project.results / "benchmarks.json").write_text(json.dumps(known))
    monkeypatch.chdir(folder)
    drawn = [f for f in figures.all_of(data.gather((project.results,))) if "history" in f.name]
    assert ["peak_host_bytes" in figure.title for figure in drawn] == [True]


def test_a_commit_that_git_does_not_know_keeps_the_others_in_order() -> None:
    import pandas

    when = pandas.to_datetime(["2026-01-03", "2026-01-02", "2026-01-01", "2026-01-09"], utc=True)
    frame = pandas.DataFrame({"commit": list("abcx"), "date": when, "measured_at": when})
    assert history.commits(frame, ["a", "b", "c"]) == ["a", "b", "c", "x"]
    frame.loc[3, "date"] = pandas.Timestamp("2025-01-01", tz="UTC")
    assert history.commits(frame, ["a", "b", "c"]) == ["x", "a", "b", "c"]


# --- the machine ---

STEP = [0.010] * 8 + [0.0142] * 4


def states(run: Run, project: Made) -> list[str]:
    return [row["state"] for row in payload(run, project)["regressions"]]


def test_a_baseline_that_jumps_by_chance_excuses_nothing(run: Run, folder: Path) -> None:
    project = measured(folder, STEP, [0.020] * 8 + [0.0434] * 4)
    code, out = gate(run, project)
    assert code == 1
    assert "Open regression: democratic call_s went up x1.42" in out
    assert "went up x2.17, quite another factor: that is chance and excuses nothing" in out
    # Nor if only the newest commit has both.
    values = [0.010, 0.0101, 0.0099, 0.0142]
    project = measured(folder.with_name("short"), values, [0.02, 0.0202, 0.0198, 0.0434])
    assert (gate(run, project)[0], states(run, project)) == (1, ["open"])


def test_a_step_that_baseline_and_candidate_share_is_the_machines(run: Run, folder: Path) -> None:
    project = measured(folder, STEP, [0.020] * 8 + [0.0290] * 4)
    code, out = gate(run, project)
    assert (code, states(run, project)) == (0, ["machine"])
    assert "No regression, the machine" in out


def test_what_is_left_of_a_shared_step_is_suspected(run: Run, folder: Path) -> None:
    project = measured(folder, [0.010] * 8 + [0.018] * 4, [0.020] * 8 + [0.030] * 4)
    code, out = gate(run, project)
    assert (code, states(run, project)) == (0, ["suspect"])
    assert "Suspected regression" in out
    assert "went up x1.5, which leaves x1.2" in out
    assert "--confirm" in out


def test_other_baselines_bear_witness() -> None:
    """The baseline jumps as the candidate does, at one commit; three others stay."""
    draw = random.Random(0)

    def lines(load: float | None, others: float) -> list[history.Series]:
        def machine(_: random.Random) -> list[history_errors.Commit]:
            calm = [history_errors.Commit(load=load)] * 11
            return [*calm, history_errors.Commit(1.0, 2.0, others, load)]

        return history_errors.lines(machine, (2.0, 11), draw)

    for load, others, state in (
        (0.05, 1.0, "open"),
        (None, 1.0, "suspect"),
        (0.05, 2.0, "machine"),
    ):
        assert [r.state for r in history.regressions(lines(load, others))] == [state]


def test_a_faster_machine_hides_nothing(run: Run, folder: Path) -> None:
    project = measured(folder, [0.010] * 12, [0.020] * 8 + [0.0125] * 4)
    (one,) = payload(run, project)["regressions"]
    assert (one["state"], one["commit"]) == ("suspect", project.commits[8])
    assert one["ratio"] == pytest.approx(1.6)
    assert "The baseline became faster (x0.625), the candidate did not." in gate(run, project)[1]


def test_a_value_that_comes_back_with_a_faster_machine_is_not_fixed(run: Run, folder: Path) -> None:
    values = [0.010] * 5 + [0.020] * 5 + [0.010] * 5
    baseline = [0.020] * 10
    project = measured(folder, values, [*baseline, *[0.010] * 5])
    assert "open" in states(run, project)
    project = measured(folder.with_name("fixed"), values, [*baseline, *[0.020] * 5])
    assert states(run, project) == ["fixed"]


# --- busy machines ---


def test_load_is_read_from_the_notes(folder: Path) -> None:
    project = made(folder, 2)
    project.measure(0, {BASELINE: 0.02, NUMPY: 0.01}, load=0.4)
    project.measure(1, {BASELINE: 0.02, NUMPY: 0.01})
    frame = results.read(project.results)
    first = frame[frame.commit == project.commits[0]]
    assert first.load.tolist() == pytest.approx([0.4, 0.4])
    assert frame[frame.commit == project.commits[1]].load.isna().all()
    assert str(frame.load.dtype) == "float64"


def test_busy_results_alone_are_no_ground(run: Run, folder: Path) -> None:
    project = made(folder, 12)
    for number in range(12):
        busy = number >= 10
        project.measure(number, {NUMPY: 0.02 if busy else 0.01}, load=0.5 if busy else 0.02)
    code, out = gate(run, project)
    assert (code, states(run, project)) == (0, ["suspect"])
    assert "The machine was busy when 2 of 2 of these results were measured." in out
    assert "2 of 12 values were measured on a busy machine" in out
    points = payload(run, project)["series"][0]["points"]
    assert [point["busy"] for point in points] == [False] * 10 + [True] * 2
    assert points[-1]["load"] == pytest.approx(0.5)
    # One that is measured without other work settles it, this way or that.
    project.commit("later")
    project.measure(12, {NUMPY: 0.02}, load=0.02)
    project.commit("and later")
    project.measure(13, {NUMPY: 0.02}, load=0.02)
    assert (gate(run, project)[0], states(run, project)) == (1, ["open"])
    for number in (12, 13):
        project.measure(number, {NUMPY: 0.01}, load=0.02)
    assert states(run, project) == []


def test_busy_results_are_hollow(folder: Path) -> None:
    project = made(folder, 6)
    for number in range(6):
        load = 0.5 if number == 3 else 0.02
        project.measure(number, {NUMPY: 0.012 if number == 3 else 0.01}, load=load)
    lines = history.series(results.read(project.results))
    ((_, _, figure),) = history_plot.panels(lines, project.commits, {}, most=1, width=4.0)
    (hollow,) = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_xdata()) == [3]
    assert list(hollow.get_ydata()) == pytest.approx([12.0])


def test_without_a_known_load_a_slow_baseline_marks_what_is_beside_it(folder: Path) -> None:
    baseline = [0.02, 0.02, 0.03, 0.02, 0.02, 0.02]
    lines = history.series(results.read(measured(folder, [0.01] * 6, baseline).results))
    for one in lines:
        assert [point.busy for point in one.points] == [False, False, True, False, False, False]
        assert not any(point.loaded for point in one.points)


# --- what is said ---


def test_what_remains_is_said(run: Run, folder: Path) -> None:
    values = [0.010] * 6 + [0.0258] * 6 + [0.0132] * 6
    project = measured(folder, values, [0.02] * 18)
    code, out = gate(run, project)
    assert code == 1
    assert f"went up x2.58 at {project.commits[6][:8]}, x1.32 remains;" in out
    (one,) = payload(run, project)["regressions"]
    assert one["remains"] == pytest.approx(1.32)


def test_arrows_name_their_series(folder: Path) -> None:
    project = made(folder, 10)
    for number in range(10):
        up, down = (0.02, 0.01) if number >= 5 else (0.01, 0.02)
        project.measure(number, {BASELINE: 0.05, NUMPY: up, TORCH: down})
    lines = history.series(results.read(project.results))
    steps = {one: history.steps(one) for one in lines}
    ((_, _, figure),) = history_plot.panels(lines, project.commits, steps, most=1, width=4.5)
    said = [text.get_text() for text in figure.axes[0].texts]
    assert sorted(said) == ["▲×2.0 numpy:cpu/dense", "▼×2.0 torch:cpu/dense"]


# --- how often it errs ---


def _rates(machine: str, step: str, runs: int = 150) -> tuple[float, float]:
    found = history_errors.MACHINES[machine], history_errors.STEPS[step]
    return history_errors.rates(*found, runs=runs, seed=1)


@pytest.mark.parametrize("machine", history_errors.MACHINES)
def test_false_alarms_are_rare(machine: str) -> None:
    """Twice what the documentation says, for 150 runs."""
    allowed = {"bursts: 1 value in 12 by 1.3 to 2.2": 0.12, "the same, load not known": 0.08}
    assert _rates(machine, "none")[0] <= allowed.get(machine, 0.02)


@pytest.mark.parametrize(
    ("machine", "step", "least"),
    [
        ("quiet", "x1.42 since three", 0.97),
        ("quiet", "x2 at the newest", 0.9),
        ("3 of 10 commits beside others, load known", "x2 since three", 0.9),
        ("bursts: 1 value in 12 by 1.3 to 2.2", "x1.42 since three", 0.8),
        ("x1.6 slower since three commits", "x1.42 since three", 0.75),
        ("the baseline jumps x2.17 at the newest", "x1.42 since three", 0.93),
        ("the baseline jumps x2.17 at the newest", "x2 at the newest", 0.9),
    ],
)
def test_regressions_are_found(machine: str, step: str, least: float) -> None:
    assert _rates(machine, step)[0] >= least


def test_on_a_busy_machine_nothing_fails_and_large_steps_are_suspected() -> None:
    assert _rates("every commit beside others", "x2 since three") >= (0.0, 0.2)
    assert _rates("every commit beside others", "x2 since three")[0] == 0.0


# --- measuring again ---

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
    """asv is replaced by one that writes these values into the folder it is given."""
    project = measured(folder, STEP, [0.02] * 12)
    asked: list[str] = []

    def asv(arguments: Sequence[str], where: Path) -> None:
        if arguments[0] == "run":
            config = (where / arguments[2]).read_text()
            commit = arguments[-1].removesuffix("^!")
            number = project.commits.index(commit)
            value = 0.010 if number == 7 else again(len(asked))
            asked.append(commit)
            own = Made(folder, project.commits, json.loads(config)["results_dir"])
            own.measure(number, {NUMPY: value})

    monkeypatch.setattr(asv_runs, "_run", asv)
    found = payload(run, project, "--confirm")["regressions"]
    assert [row["state"] for row in found] == [state]
    again_found = found[0]["confirmation"]
    assert again_found["rounds"] == rounds
    assert again_found["commits"] == [project.commits[7], project.commits[11]]
    assert len(asked) == 2 * rounds
    assert gate(run, project, "--confirm")[0] == code


def test_suspects_of_several_machines_cannot_be_measured_here(run: Run, folder: Path) -> None:
    project = measured(folder, STEP)
    for number, value in enumerate(STEP):
        project.measure(number, {NUMPY: value}, machine="other")
    code, _, err = run(project, "--confirm")
    assert (code, "name this machine by --machine (made, other)" in err) == (2, True)


@pytest.mark.parametrize("values", [[0.002, 0.002, 0.002, 0.0], [0.0, 0.0, 0.0, 0.01, 0.02]])
def test_a_time_of_zero_is_no_crash(run: Run, folder: Path, values: list[float]) -> None:
    """No clock reads it, but a stranger's file may have it."""
    assert run(measured(folder, values))[0] == 0
