"""The table of everything measured: what each cell means, and files that are not what they seem."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demopool import results
from demopool.choosing import earlier_samples
from demopool.common import places
from demopool.errors import DemopoolError, InvalidInput
from demopool.machine import limits
from demopool.machine.limits import Limits
from demopool.problem.cases import Case, named
from demopool.problem.vocabulary import State
from demopool.profiles.floors import least_seconds
from demopool.results import table
from demopool.trials import samples

pytest.importorskip("pandas")
pytest.importorskip("asv")

import asv_project
from asv_project import MACHINE, NUMPY, TORCH, Project

TIME = "descriptors.Democratic.time_call"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return asv_project.measured(tmp_path_factory.getbasetemp() / "toy")


@pytest.fixture
def copy(project: Project, tmp_path: Path) -> Project:
    """Its results to spoil."""
    folder = tmp_path / "project"
    shutil.copytree(project.results, folder / ".asv" / "results")
    shutil.copy(project.folder / "asv.conf.json", folder)
    return Project(folder, project.commits)


def _cell(frame: Any, project: Project, commit: str, **wanted: str) -> dict[str, Any]:
    wanted = {"measure": "call_s", "case": "vgg-b1", **wanted, "commit": project.commits[commit]}
    for column, value in wanted.items():
        frame = frame[frame[column] == value]
    (row,) = frame.to_dict("records")
    return dict(row)


def _edit(file: Path, change: Callable[[Any], None]) -> None:
    stored = json.loads(file.read_text())
    change(stored)
    file.write_text(json.dumps(stored))


# --- what asv measured ---


def test_a_measured_cell(project: Project) -> None:
    frame = results.read(project.results)
    row = _cell(frame, project, "start", candidate=NUMPY)
    assert row["source"] == "asv"
    assert row["machine"] == MACHINE
    assert row["date"].isoformat() == "2026-01-05T12:01:00+00:00"
    assert row["environment"].endswith("OPENBLAS_NUM_THREADS1")
    assert row["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert row["threads"] == 1
    assert (row["benchmark"], row["kind"], row["subject"]) == (TIME, "descriptor", "democratic")
    assert (row["unit"], row["backend"], row["route"]) == ("seconds", "numpy:cpu", "dense")
    assert (row["state"], row["samples"], row["version"]) == ("ok", 7, "1")
    assert 0 < row["low"] <= row["value"] <= row["high"]
    assert row["low"] <= row["lower_quartile"] <= row["value"]
    assert row["fingerprint"] == "0123456789abcdef"
    assert row["measured_at"] > row["date"]


def test_the_limit_of_calls_where_the_speed_of_their_machine_is_known(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    assert results.read(project.results)["limit_s"].isna().all()
    speed = Limits(flops=1e9, cached_bytes=1e9, memory_bytes=1e9)
    faster = speed._replace(flops=1e12)
    kept = {"float32, 1 threads": speed._asdict(), "float32, 2 threads": faster._asdict()}
    (tmp_path / "limits-0123456789abcdef.json").write_text(json.dumps(kept))
    frame = results.read(project.results)
    row = _cell(frame, project, "start", candidate=NUMPY)
    assert row["limit_s"] == least_seconds(named("vgg-b1"), speed)
    others = frame[frame["measure"] != "call_s"]
    assert len(others) > 0
    assert others["limit_s"].isna().all()


@pytest.mark.parametrize("key", ["", "../0123456789abcdef", "a" * 5000, "\0"])
def test_a_strangers_key_is_no_path(key: str) -> None:
    assert limits.known(key, 1, "float32") is None


def test_a_tracked_cell_is_its_own_quartile(project: Project) -> None:
    row = _cell(
        results.read(project.results), project, "fat", measure="peak_host_bytes", candidate=TORCH
    )
    assert row["value"] == row["lower_quartile"] == 40e6
    assert (row["unit"], row["samples"]) == ("bytes", 1)
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])


def test_skipped_failed_and_not_run_are_told_apart(project: Project) -> None:
    frame = results.read(project.results)
    skipped = _cell(frame, project, "gap", candidate=TORCH)
    failed = _cell(frame, project, "broken", candidate=NUMPY)
    not_run = _cell(frame, project, "start", candidate=TORCH, case="n49-d64")
    told = [
        tuple(
            row[name] if isinstance(row[name], str) else None
            for name in ("state", "candidate_state", "reason")
        )
        for row in (skipped, failed, not_run)
    ]
    assert told == [
        ("skipped", "unavailable", "not written yet"),
        ("failed", "error", "ValueError: planted"),
        ("not run", None, None),
    ]
    assert all(math.isnan(row["value"]) for row in (skipped, failed, not_run))


def test_a_note_on_the_class_is_on_all_its_methods(project: Project) -> None:
    frame = results.read(project.results)
    row = _cell(frame, project, "gap", candidate=TORCH, measure="error")
    assert (row["state"], row["reason"]) == ("skipped", "not written yet")


def test_a_benchmark_that_failed_whole_and_one_without_our_parameters(project: Project) -> None:
    frame = results.read(project.file("broken"))
    (row,) = frame[frame["benchmark"] == "descriptors.track_nothing"].to_dict("records")
    assert row["state"] == "failed"
    assert "asv run --show-stderr" in row["reason"]
    assert row["measure"] == "nothing"
    for column in ("candidate", "case", "subject", "parameters"):
        assert not isinstance(row[column], str)


def test_a_number_wins_over_a_note(copy: Project) -> None:
    note = {
        "schema": 1,
        "kind": "skip",
        "measured_at": "2026-01-05T12:00:00+00:00",
        "benchmark": TIME,
        "candidate": NUMPY,
        "case": "vgg-b1",
        "state": "unsupported",
        "reason": "long ago",
    }
    with copy.file("last").with_suffix(".jsonl").open("a") as lines:
        lines.write(json.dumps(note) + "\n")
    assert _cell(results.read(copy.results), copy, "last", candidate=NUMPY)["state"] == "ok"


def test_the_last_note_counts_and_half_a_line_does_not(copy: Project) -> None:
    note = {
        "schema": 1,
        "kind": "skip",
        "measured_at": "2026-01-05T12:00:00+00:00",
        "benchmark": TIME,
        "candidate": TORCH,
        "case": "vgg-b1",
        "state": "timeout",
        "reason": "too slow",
    }
    other = {**note, "schema": 2, "reason": "of another schema"}
    text = "\n".join([json.dumps(note), json.dumps(other), "[]", '"text"', json.dumps(note)[:-9]])
    with copy.file("gap").with_suffix(".jsonl").open("a") as lines:
        lines.write(text)
    row = _cell(results.read(copy.results), copy, "gap", candidate=TORCH)
    assert (row["candidate_state"], row["reason"]) == ("timeout", "too slow")


def test_the_fingerprint_is_the_one_of_its_time(copy: Project) -> None:
    later = {
        "schema": 1,
        "kind": "fingerprint",
        "measured_at": "2099-01-01T00:00:00+00:00",
        "key": "later",
        "fingerprint": {},
    }
    with copy.file("last").with_suffix(".jsonl").open("a") as lines:
        lines.write(json.dumps(later) + "\n")
    row = _cell(results.read(copy.results), copy, "last", candidate=NUMPY)
    assert row["fingerprint"] == "0123456789abcdef"


def test_stale_versions_and_removed_benchmarks_are_left_out(copy: Project) -> None:
    whole = results.read(copy.results)
    assert whole.attrs["stale"] == 0

    def change(known: Any) -> None:
        known[TIME]["version"] = "2"
        del known["descriptors.track_nothing"]

    _edit(copy.results / "benchmarks.json", change)
    frame = results.read(copy.results)
    assert not frame["benchmark"].isin([TIME, "descriptors.track_nothing"]).any()
    assert frame.attrs["stale"] == 8 * (4 + 1) == len(whole) - len(frame)


def test_without_a_list_of_benchmarks(copy: Project) -> None:
    (copy.results / "benchmarks.json").unlink()
    row = _cell(results.read(copy.results), copy, "start", candidate=NUMPY)
    assert (row["unit"], row["value"] > 0.002) == ("seconds", True)


def test_two_machines_are_joined(copy: Project) -> None:
    shutil.copytree(copy.results / MACHINE, copy.results / "beta")
    for file in (copy.results / "beta").glob("*-*.json"):
        _edit(file, lambda stored: stored["params"].update(machine="beta"))
    frame = results.read(copy.results)
    assert set(frame["machine"]) == {MACHINE, "beta"}
    assert len(results.read(copy.results / "beta")) * 2 == len(frame)
    twice = results.read([copy.results, copy.results / "beta", copy.file("last")])
    assert len(twice) == len(frame)


def test_the_nearest_project_is_the_default(copy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    below = copy.folder / "some" / "where"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert len(results.read()) == len(results.read(copy.results)) == len(results.read(copy.folder))


# --- names ---


@pytest.mark.parametrize(
    ("benchmark", "kind", "subject", "measure"),
    [
        ("descriptors.SketchedDemocratic.time_call", "descriptor", "sketched-democratic", "call_s"),
        ("operations.PoolSketch.track_first_call_s", "operation", "pool_sketch", "first_call_s"),
        ("operations.Power.track_error", "operation", "power", "error"),
        ("gradients.Sum.time_forward_backward", "gradient", "sum", "forward_backward_s"),
        ("other.Unknown.peakmem_all", "other", "Unknown", "all"),
    ],
)
def test_names_are_the_projects_words(
    copy: Project, benchmark: str, kind: str, subject: str, measure: str
) -> None:
    def change(stored: Any) -> None:
        stored["results"] = {benchmark: stored["results"][TIME]}

    (copy.results / "benchmarks.json").unlink()
    _edit(copy.file("start"), change)
    frame = results.read(copy.file("start"))
    assert set(zip(frame["kind"], frame["subject"], frame["measure"], strict=True)) == {
        (kind, subject, measure)
    }


def test_values_that_are_no_numbers_have_failed(copy: Project) -> None:
    def change(stored: Any) -> None:
        stored["results"][TIME][0] = [math.inf, True, "text", None]

    _edit(copy.file("start"), change)
    frame = results.read(copy.file("start"))
    frame = frame[frame["benchmark"] == TIME]
    assert set(frame["state"]) == {"failed"}
    assert "the value is inf" in frame["reason"].iloc[0]


# --- samples ---


def _sample(**changes: Any) -> samples.Sample:
    given = {
        "backend": "numpy:cpu",
        "route": "dense",
        "case": named("vgg-b8"),
        "measure": "call_s",
        "value": 0.5,
        "threads": 2,
        "fingerprint": "abc",
    }
    return samples.Sample(**{**given, **changes})


def test_samples_go_into_the_same_table(tmp_path: Path, project: Project) -> None:
    file = tmp_path / "samples.jsonl"
    samples.append(
        file,
        [
            _sample(),
            _sample(measure="peak_host_bytes", value=1e6, case=named("vgg-b1", descriptor="power")),
            _sample(value=None, state=State.UNSUPPORTED, reason="no such route"),
            _sample(
                value=None, state=State.OUT_OF_MEMORY, reason="99 GB", case=Case(n=7, gamma=0.25)
            ),
        ],
    )
    frame = results.read([file, project.results])
    assert set(frame["source"]) == {"asv", "samples"}
    rows = frame[frame["source"] == "samples"]
    assert list(rows["subject"]) == ["democratic", "power", "democratic", "democratic"]
    assert list(rows["case"]) == ["vgg-b8", "vgg-b1", "vgg-b8", "batch=1,n=7,d=512,gamma=0.25"]
    assert list(rows["unit"]) == ["seconds", "bytes", "seconds", "seconds"]
    assert list(rows["state"]) == ["ok", "ok", "skipped", "failed"]
    assert list(rows["candidate_state"]) == ["ok", "ok", "unsupported", "out-of-memory"]
    assert list(rows["reason"].dropna()) == ["no such route", "99 GB"]
    assert list(rows["value"].dropna()) == [0.5, 1e6]
    assert rows["commit"].isna().all()
    assert list(rows["threads"]) == [2] * 4


def test_what_choose_stores_is_read_by_default_with_what_older_versions_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    samples.append(tmp_path / samples.OLD_FOLDER / "one.jsonl", [_sample()])
    assert len(results.read()) == 1
    case = Case(n=7, d=5)
    samples.append(earlier_samples.file(case, 2), [_sample(case=case)])
    assert len(results.read()) == 2


def test_samples_come_back_from_the_table(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    special = Case("sketched-power", 3, 7, 5, 64, "float64", 1, 0.25, 0.75, 2, 0.1, "device")
    rows = [
        _sample(measured_at="2025-01-02T03:04:05.678+00:00"),
        _sample(case=special, phase="confirming", round=2, session="s", code="c", fingerprint="f"),
        _sample(value=None, state=State.OUT_OF_MEMORY, reason="99 GB"),
        _sample(case=named("vgg-b1-f64", descriptor="power"), phase="round", round=1),
    ]
    samples.append(file, rows)
    assert table.samples_in(results.read(file)) == rows


# --- nothing there, and what is broken ---


def test_an_empty_table_has_the_documented_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    full = results.read(project.results)
    for empty in (results.read(), results.read(tmp_path), results.read([])):
        assert empty.empty
        assert empty.attrs == {"stale": 0, "unreadable": []}
        assert list(empty.columns) == list(results.COLUMNS)
        assert [str(dtype) for dtype in empty.dtypes] == list(results.COLUMNS.values())
        assert list(empty.dtypes) == list(full.dtypes)
    documented = results.read.__doc__ or ""
    for column in results.COLUMNS:
        assert column in documented


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not an asv result file"),
        ('{"version": 1}', "asv update"),
        ('{"version": 2, "results": {}}', "KeyError"),
        ("", "it is not JSON"),
    ],
)
def test_a_broken_result_file(copy: Project, text: str, why: str) -> None:
    file = copy.file("slow")
    file.write_text(text)
    with pytest.raises(InvalidInput, match=why) as problem:
        results.read(file)
    assert str(file) in str(problem.value)
    frame = results.read(copy.results)
    assert set(frame["commit"]) == set(copy.commits.values()) - {
        copy.commits["slow"],
        copy.commits["root"],
    }
    (sentence,) = frame.attrs["unreadable"]
    assert str(file) in sentence


def test_a_result_file_whose_values_do_not_fit(copy: Project) -> None:
    _edit(copy.file("slow"), lambda stored: stored["results"][TIME][0].pop())
    with pytest.raises(InvalidInput, match="3 values for 4 combinations"):
        results.read(copy.file("slow"))


def test_a_broken_list_of_benchmarks_is_told_once(copy: Project) -> None:
    """Without it nobody knows what is stale, so nothing beside it is used."""
    (copy.results / "benchmarks.json").write_text("{")
    frame = results.read(copy.results)
    assert frame.empty
    (sentence,) = frame.attrs["unreadable"]
    assert "benchmarks.json" in sentence


def test_what_is_no_file_of_results(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        results.read(tmp_path / "nowhere")
    (tmp_path / "empty.jsonl").write_text('{"schema": 1, "half a li')
    with pytest.raises(InvalidInput, match="no sample"):
        results.read(tmp_path / "empty.jsonl")
    (tmp_path / "notes.json").write_text("{}")
    assert results.read(tmp_path).empty


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DemopoolError, match=r"pip install '\.\[report\]'"):
        results.read()
