"""Green means measured and fine: what is lost, unmeasured, mixed or out of order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demopool import results
from demopool.report import data, figures, history_plot
from demopool.results import history

pytest.importorskip("pandas")
pytest.importorskip("asv")

import made_history
from made_history import (
    BASELINE,
    MACHINE,
    NUMPY,
    TORCH,
    Made,
    Run,
    Skipped,
    gate,
    made,
    measured,
    payload,
)

IMPORT_ERROR = Skipped("unavailable", "ImportError: cannot import name 'planted'")


# --- what is no longer measured ---


def test_a_steady_history_is_green(run: Run, tmp_path: Path) -> None:
    code, out = gate(run, measured(tmp_path, [0.010] * 6, [0.020] * 6))
    assert code == 0
    assert "No regression found." in out


def test_a_backend_that_stops_importing_is_not_green(run: Run, tmp_path: Path) -> None:
    project = made(tmp_path, 4)
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
    assert (loss["since"], loss["commit"], loss["fixed_by"]) == (*[project.commits[3]] * 2, None)


def test_a_loss_names_the_commit_that_made_it_and_the_one_that_mended_it(
    run: Run, tmp_path: Path
) -> None:
    project = measured(tmp_path, [0.01, 0.01, IMPORT_ERROR, IMPORT_ERROR])
    good, bad, mended = project.commits[1], project.commits[2], project.commit("mended")
    code, out = gate(run, project, "--allow-unmeasured")
    assert code == 1
    assert f"skipped from {bad[:8]} on; last good {good[:8]}" in out
    project.measure(4, {NUMPY: 0.01})
    code, out = gate(run, project)
    assert code == 0
    assert f"skipped from {bad[:8]} on, fixed by {mended[:8]}; last good {good[:8]}" in out
    (loss,) = payload(run, project)["lost"]
    assert (loss["since"], loss["fixed_by"]) == (bad, mended)


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
    run: Run, tmp_path: Path, gap: Skipped | None, fingerprint: str, code: int
) -> None:
    project = made(tmp_path, 3)
    for number in range(2):
        project.measure(number, {NUMPY: 0.01, TORCH: 0.01})
    project.measure(2, {NUMPY: 0.01, TORCH: gap}, fingerprint=fingerprint)
    found, out = gate(run, project)
    assert found == code
    assert ("the machine's doing" in out) is (code == 0)


def test_what_comes_back_is_not_lost(run: Run, tmp_path: Path) -> None:
    assert gate(run, measured(tmp_path, [0.01, IMPORT_ERROR, 0.01]))[0] == 0


def test_what_never_had_a_value_is_not_lost_unless_it_fails(run: Run, tmp_path: Path) -> None:
    project = made(tmp_path, 3)
    for number in range(3):
        project.measure(number, {NUMPY: 0.01, TORCH: IMPORT_ERROR})
    assert gate(run, project)[0] == 0
    project.measure(2, {NUMPY: 0.01, TORCH: None})
    code, out = gate(run, project)
    assert code == 1
    assert "it never had a value" in out


def test_an_unmeasured_head_is_not_green(run: Run, tmp_path: Path) -> None:
    project = measured(tmp_path, [0.01] * 4)
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


def test_since_an_unmeasured_head_there_is_nothing(run: Run, tmp_path: Path) -> None:
    project = measured(tmp_path, [0.01] * 4)
    project.commit("docs")
    code, out = gate(run, project, "--since", "HEAD")
    assert (code, "0 series over 0 commits" in out) == (1, True)


def test_results_that_were_not_asked_for_do_not_measure_head(run: Run, tmp_path: Path) -> None:
    project = measured(tmp_path, [0.01] * 4)
    project.commit("new")
    project.measure(4, {NUMPY: 0.01}, threads=1)
    assert gate(run, project)[0] == 0
    assert "1 of 2 series were not measured at HEAD" in gate(run, project)[1]
    assert gate(run, project, "--threads", 2)[0] == 1
    # All cells n/a and no reason noted: asv was not asked for them.
    project.measure(4, {NUMPY: float("nan")}, threads=1)
    assert gate(run, project)[0] == 1


def test_results_on_another_branch_only_do_not_measure_head(run: Run, tmp_path: Path) -> None:
    project = measured(tmp_path, [0.01] * 3)
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


def test_thread_counts_are_not_mixed(run: Run, tmp_path: Path) -> None:
    project = made(tmp_path, 6)
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


def test_thread_counts_have_panels_and_curves_of_their_own(tmp_path: Path) -> None:
    project = made(tmp_path, 3)
    for number in range(3):
        for threads in (1, 2):
            project.measure(number, {NUMPY: 0.01 / threads}, threads=threads)
    lines = history.series(results.read(project.results))
    drawn = list(history_plot.panels(lines, project.commits, {}, most=9, width=4.0))
    assert [title.rpartition(", ")[2] for title, _, _ in drawn] == ["1 thread", "2 threads"]
    facts = data.gather((project.results,)).facts
    assert {(fact.origin.threads, fact.value) for fact in facts} == {(1, 0.01), (2, 0.005)}


def test_the_report_has_the_order_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commits are of one second: without git an improvement could be drawn as a regression."""
    project = made(tmp_path, 8)
    # Measured newest first, as `asv run A..B` does.
    for number in range(8):
        project.measure(number, {NUMPY: 0.02 if number < 4 else 0.01})
        _set_started(project, number, 100 - number)
    monkeypatch.chdir(tmp_path)
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


def test_the_report_has_memory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = made(tmp_path, 4)
    memory = "descriptors.Democratic.track_peak_host_bytes"
    for number in range(4):
        project.measure(number, {NUMPY: 1e7 * (1 + number)}, benchmark=memory)
    known = {memory: {"unit": "bytes", "version": "1", "param_names": ["candidate", "case"]}}
    (project.results / "benchmarks.json").write_text(json.dumps(known))
    monkeypatch.chdir(tmp_path)
    drawn = [f for f in figures.all_of(data.gather((project.results,))) if "history" in f.name]
    assert ["peak_host_bytes" in figure.title for figure in drawn] == [True]


def test_a_commit_that_git_does_not_know_keeps_the_others_in_order() -> None:
    import pandas

    when = pandas.to_datetime(["2026-01-03", "2026-01-02", "2026-01-01", "2026-01-09"], utc=True)
    frame = pandas.DataFrame({"commit": list("abcx"), "date": when, "measured_at": when})
    assert history.commits(frame, ["a", "b", "c"]) == ["a", "b", "c", "x"]
    frame.loc[3, "date"] = pandas.Timestamp("2025-01-01", tz="UTC")
    assert history.commits(frame, ["a", "b", "c"]) == ["x", "a", "b", "c"]


# --- the fastest call ---


def with_calls(project: Made, number: int, calls: object) -> None:
    """As ``asv run --record-samples`` stores them."""
    (file,) = project.results.glob(f"*/{project.commits[number][:8]}-*.json")
    stored = json.loads(file.read_text())
    stored["result_columns"].append("samples")
    for row in stored["results"].values():
        row.append([calls])
    file.write_text(json.dumps(stored))


def test_the_fastest_call_is_followed_where_every_commit_has_it(run: Run, tmp_path: Path) -> None:
    project = measured(tmp_path, [0.010, 0.012, 0.014])

    def values() -> list[float]:
        (one,) = payload(run, project)["series"]
        return [point["value"] for point in one["points"]]

    with_calls(project, 0, [0.011, 0.009, 0.010])
    with_calls(project, 1, [0.012, 0.009])
    assert values() == [0.010, 0.012, 0.014]
    with_calls(project, 2, [0.009, 0.020])
    assert values() == [0.009] * 3


@pytest.mark.parametrize("calls", ["many", [], {"a": 1}, [None, 0.01], [0.01, "0.01"], [[0.01]]])
def test_broken_calls_are_none(run: Run, tmp_path: Path, calls: object) -> None:
    project = measured(tmp_path, [0.010])
    with_calls(project, 0, calls)
    (one,) = payload(run, project)["series"]
    assert [point["value"] for point in one["points"]] == [0.010]
