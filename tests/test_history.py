"""A real asv history with planted regressions, and what ``demopool history`` says of it."""

from __future__ import annotations

import json
import re
import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from demopool import results
from demopool.commands import output
from demopool.common import places
from demopool.results import history
from demopool.results.history import Series, asv_runs, confirming, repository
from demopool.trials import samples

pytest.importorskip("pandas")
pytest.importorskip("asv")

import asv_project
from asv_project import MACHINE, NUMPY, TORCH, Project
from made_history import Run


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return asv_project.measured(tmp_path_factory.getbasetemp() / "toy")


@pytest.fixture
def run(project: Project, command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``demopool history`` in the project's folder: exit code, output, errors."""
    monkeypatch.chdir(project.folder)
    return partial(command, "history")


def _payload(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in JSON")

    parsed: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert list(parsed)[:3] == ["schema", "demopool", "machine"]
    return parsed


def _lines(project: Project) -> list[Series]:
    frame = results.read(project.results)
    order = repository.order(project.folder, frame["commit"])
    return history.series(frame, order)


# --- a real history ---


def test_commits_are_in_gits_order_although_one_was_rebased(project: Project) -> None:
    frame = results.read(project.results)
    names = {commit: name for name, commit in project.commits.items()}
    order = repository.order(project.folder, frame["commit"])
    planted = [name for name, *_ in asv_project.COMMITS]
    assert [names[commit] for commit in order or ()] == planted
    assert [names[commit] for commit in history.commits(frame, order)] == planted[1:]


def test_without_git_the_date_orders_them_and_then_the_measurement(
    project: Project, tmp_path: Path
) -> None:
    frame = results.read(project.results)
    assert repository.order(tmp_path, frame["commit"]) is None
    assert repository.order(project.folder, ["0" * 40]) is None
    names = {commit: name for name, commit in project.commits.items()}
    dated = [names[commit] for commit in history.commits(frame)]
    # asv measures the newest first, so of two with one date it guesses wrong: hence git.
    assert dated == ["start", "tidy", "fixed", "slow", "fat", "broken", "gap", "last"]
    assert [names[c] for c in history.commits(frame, ["0" * 40])] == dated


def test_the_planted_regressions_are_found(project: Project) -> None:
    names = {commit: name for name, commit in project.commits.items()}
    found = {
        (r.series.measure, r.series.candidate, r.series.case): r
        for r in history.regressions(_lines(project), ratio=1.5)
    }
    cells = [(NUMPY, "vgg-b1"), (NUMPY, "n49-d64"), (TORCH, "vgg-b1")]
    measures = ("call_s", "peak_host_bytes", "error")
    assert set(found) == {(measure, *cell) for measure in measures for cell in cells}
    story = {
        "call_s": ("slow", "tidy", "fixed", "fixed", 2),
        "peak_host_bytes": ("fat", "slow", "open", None, 5),
        "error": ("fixed", "fat", "fixed", "last", 3),
    }
    for (measure, candidate, _), r in found.items():
        commit, good, state, fixed_by, measured = story[measure]
        assert (names[r.commit], names[r.last_good], r.state) == (commit, good, state)
        assert (names[r.fixed_by] if r.fixed_by else None) == fixed_by
        # torch was not written in one of the later commits.
        assert r.measured == measured - (candidate == TORCH and measure != "call_s")
        assert not r.software_changed
    assert 3 < (found["call_s", NUMPY, "vgg-b1"].ratio or 0) < 5
    assert found["peak_host_bytes", TORCH, "vgg-b1"].ratio == 4


def test_a_series_keeps_its_gaps(project: Project) -> None:
    (one,) = [s for s in _lines(project) if (s.measure, s.candidate) == ("call_s", TORCH)]
    assert [point.state for point in one.points] == [
        *["ok"] * 5,
        "skipped",
        "failed",
        "ok",
    ]
    assert [p.reason for p in one.points if p.reason] == ["not written yet", "ValueError: planted"]
    assert len(one.values) == 6


def test_rows_in_any_order_give_the_same_series(project: Project) -> None:
    frame = results.read(project.results)
    order = repository.order(project.folder, frame["commit"])
    for seed in range(3):
        shuffled = frame.sample(frac=1.0, random_state=seed)
        assert history.series(shuffled, order) == history.series(frame, order)
        assert history.series(shuffled) == history.series(frame)


def test_samples_have_no_history() -> None:
    empty = results.read([])
    assert history.series(empty) == []
    assert history.commits(empty) == []
    assert history.regressions([]) == []


def test_the_newer_of_two_results_counts(project: Project) -> None:
    frame = results.read(project.results)
    newer = frame.copy()
    newer["measured_at"] += newer["measured_at"].max() - newer["measured_at"].min()
    newer["lower_quartile"] *= 2
    import pandas

    both = history.series(pandas.concat([newer, frame]))
    assert both == history.series(newer)


# --- the command ---


def test_the_command_tells_the_story(run: Run, project: Project) -> None:
    code, out, err = run("--ratio", "1.5")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    slow, fat, fixed = (project.commits[name][:8] for name in ("slow", "fat", "fixed"))
    assert f"Open regression: democratic peak_host_bytes went up x4 at {fat}, x4 remains" in text
    assert re.search(rf"Fixed regression: democratic call_s went up x[\d. tox]+ at {slow}", text)
    assert f"fixed by {fixed}" in text
    assert "numpy:cpu/dense on vgg-b1 (10 MB to 40 MB)" in text
    assert "▁▁▁█████" in text
    assert "10 series over 8 commits on 1 machine; 9 with a step." in text
    assert "1 more series without a step; --all shows them" in text
    table = out.partition("10 series over")[0]
    assert "nothing" not in table
    assert "nothing" in run("--ratio", "1.5", "--all")[1].partition("10 series over")[0]
    gap, broken, last = (project.commits[name][:8] for name in ("gap", "broken", "last"))
    assert f"failed from {broken} on, fixed by {last}; last good {gap}" in text
    assert f"skipped from {gap} on, fixed by {broken}; last good {fixed}" in text


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_the_table_fits(run: Run, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = run("--all")
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= int(columns)


def test_fail_on_regression(run: Run) -> None:
    assert run("--ratio", "1.5")[0] == 0
    assert run("--ratio", "1.5", "--fail-on-regression")[0] == 1
    assert run("--ratio", "1.5", "--fail-on-regression", "--measure", "call_s")[0] == 0
    assert run("--ratio", "1.5", "--fail-on-regression", "--json")[0] == 1


def test_json(run: Run, project: Project, tmp_path: Path) -> None:
    picture = tmp_path / "history.png"
    _, out, _ = run("--json", "--png", picture, "--ratio", "1.5", project.results)
    payload = _payload(out)
    assert payload["files"] == [str(picture)]
    assert len(payload["series"]) == 10
    assert len(payload["regressions"]) == 9
    one = payload["series"][0]
    assert (one["machine"], one["threads"], one["subject"]) == (MACHINE, 1, "democratic")
    assert len(one["points"]) == 8
    assert {"commit", "date", "value", "state", "reason", "load", "busy"} == set(one["points"][0])
    first = payload["regressions"][0]
    assert (first["state"], first["measure"]) == ("open", "peak_host_bytes")
    assert first["commit"] == project.commits["fat"]


def test_choosing(run: Run, project: Project) -> None:
    arguments = ("--json", "--case", "vgg-b1", "--candidate", "^torch", "--measure", "error")
    (one,) = _payload(run(*arguments, "--subject", "democratic", "--machine", MACHINE)[1])["series"]
    assert (one["case"], one["candidate"], one["measure"]) == ("vgg-b1", TORCH, "error")
    for option, value in (("--case", "vgg"), ("--machine", "beta"), ("--candidate", "jax")):
        code, _, err = run(option, value)
        assert code == 2
        assert repr(value) in err
    code, _, err = run("--candidate", "(")
    assert (code, "regular expression" in err) == (2, True)


def test_since(run: Run, project: Project) -> None:
    names = {commit: name for name, commit in project.commits.items()}
    planted = [name for name, *_ in asv_project.COMMITS][1:]

    def commits(since: str) -> list[str]:
        arguments = ("--json", "--since", since, "--measure", "error", "--candidate", "numpy")
        points = _payload(run(*arguments)[1])["series"][0]["points"]
        return [names[point["commit"]] for point in points]

    assert commits("v1") == planted[3:]
    assert commits(project.commits["fixed"][:7]) == planted[4:]
    assert commits(project.commits["root"]) == planted
    assert commits("2026-01-05T12:10") == ["slow", "fat", "gap", "broken", "last"]
    for since, why in (("v2", "a date, or a commit or tag"), ("2030-01-01", "that young")):
        code, _, err = run("--since", since)
        assert code == 2
        assert why in err


def test_what_failed_at_the_newest_commit_is_said(
    run: Run, project: Project, tmp_path: Path
) -> None:
    kept = tmp_path / "results"
    shutil.copytree(project.results, kept)
    (kept / MACHINE / project.file("last").name).unlink()
    _, out, _ = run(kept)
    text = " ".join(out.split())
    gap, broken, fixed = (project.commits[name][:8] for name in ("gap", "broken", "fixed"))
    assert f"2 series failed at the newest commit {broken}; last good {gap}" in text
    # Before it failed it was not there.
    assert f"1 series failed from {gap} on; last good {fixed}" in text
    assert "ValueError: planted" in text


def test_no_results_is_a_sentence_and_bad_use(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ((), (tmp_path,), ("--json", "--fail-on-regression")):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert "`asv run`, or `make bench` in a clone" in " ".join(err.split())
    code, _, err = run(tmp_path / "nowhere")
    assert (code, "no such file or folder" in err) == (2, True)


def test_files_of_samples_are_not_even_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    broken = samples.folder() / "broken.jsonl"
    broken.parent.mkdir()
    broken.write_text("nonsense\n")
    assert _payload(run("--json")[1])["unreadable"] == []
    code, out, err = run(broken)
    assert (code, out) == (2, "")
    assert "There are no asv results in" in err


def test_the_picture_is_a_png_written_whole(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "history.png"
    _, out, _ = run("--png", picture)
    assert f"Written: {picture}" in out.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["history.png"]
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert width >= 900
    assert 900 <= height <= 3000
    code, _, err = run("--png", tmp_path / "nowhere" / "history.png")
    assert (code, "no such folder" in err) == (2, True)


def test_help_teaches(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "demopool history --since HEAD~20 --png h.png" in out
    assert "Exit codes" in out


# --- measuring again ---


@pytest.fixture
def slow(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy whose HEAD is where the time went up, in the environment that asv needs."""
    folder = tmp_path / "slow"
    shutil.copytree(project.folder, folder, ignore=shutil.ignore_patterns("env"))
    environment = asv_project.environment(folder) | {"TOY_NOTES": str(tmp_path)}
    asv_project.run(["git", "reset", "--quiet", "--hard", "v1"], folder, environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Project(folder, project.commits)


def test_a_suspect_is_measured_again_in_turns(
    slow: Project, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = slow
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(asv_runs, "LOOKS", (2,))
    monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
    # The limits of two rounds are wide; with sleeps of 2 and 8 ms a level of 10 % is enough.
    monkeypatch.setattr(confirming, "LEVEL", 0.1)
    before = {file: file.read_bytes() for file in project.results.rglob("*.json")}
    code, out, err = run(
        *("--confirm", "--fail-on-regression", "--measure", "call_s", "--candidate", "torch"),
        *("--ratio", "1.5"),
    )
    near = [project.commits[name][:8] for name in ("start", "tidy", "slow", "fat")]
    assert f"preparing {', '.join(near)}" in err
    assert re.findall(r"round \d of 2: (\w+)", err) == [*near, *reversed(near)]
    text = " ".join(out.split())
    assert "Confirmed regression: democratic call_s went up" in text
    assert re.search(r"Measured again in turns: x[34]\.?\d* \(x.* to x.*\) in 2 rounds\.", text)
    assert code == 1
    assert {file: file.read_bytes() for file in project.results.rglob("*.json")} == before
    (kept,) = (project.folder / asv_runs.FOLDER).glob("*.jsonl")
    values = [json.loads(line)["values"] for line in kept.read_text().splitlines()]
    assert [[commit[:8] for commit in one] for one in values] == [near, near[::-1]]


def test_an_interruption_confirms_nothing(
    slow: Project, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = slow
    monkeypatch.chdir(project.folder)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(asv_runs, "measuring", interrupt)
    code, out, err = run("--confirm", "--measure", "call_s")
    assert (code, out) == (130, "")
    assert "Nothing is confirmed" in err
    assert "interrupted" in err


def test_confirm_needs_a_project_of_its_own(
    run: Run, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run("--confirm", project.results)
    assert (code, "no PATH" in err) == (2, True)
    monkeypatch.chdir(tmp_path)
    code, _, err = run("--confirm")
    assert (code, "asv.conf.json" in err) == (2, True)
