"""Steps and regressions: on a real asv history with planted ones, and the laws they obey."""

from __future__ import annotations

import json
import random
import shutil
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demopool import results
from demopool.commands import main
from demopool.common import places
from demopool.errors import DemopoolError
from demopool.results import history
from demopool.results.history import Point, Regression, Series, analysis, repository
from demopool.trials import samples

pytest.importorskip("pandas")
pytest.importorskip("asv")

import asv_project
from asv_project import MACHINE, NUMPY, TORCH, Project

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return asv_project.measured(tmp_path_factory.getbasetemp() / "toy")


@pytest.fixture
def run(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """``demopool history`` in the project's folder: exit code, output, errors."""
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("COLUMNS", "120")

    def called(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["demopool", "history", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        printed = capsys.readouterr()
        code = done.value.code
        assert isinstance(code, int)
        return code, printed.out, printed.err

    return called


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


# --- the command ---


def test_the_command_tells_the_story(run: Run, project: Project) -> None:
    code, out, err = run("--ratio", "1.5")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    slow, fat, fixed = (project.commits[name][:8] for name in ("slow", "fat", "fixed"))
    assert f"Open regression: with {fat} democratic peak_host_bytes went up 4 times" in text
    assert f"Fixed regression: with {slow} democratic call_s went up" in text
    assert f"fixed by {fixed}" in text
    assert "numpy:cpu/dense on vgg-b1 (10 MB to 40 MB)" in text
    assert "▁▁▁█████" in text
    assert "10 series over 8 commits on 1 machine; 9 with a step." in text
    assert "1 more series without a step; --all shows them" in text
    assert "nothing" not in text
    assert "nothing" in run("--ratio", "1.5", "--all")[1]


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
    assert {"commit", "date", "value", "state", "reason"} == set(one["points"][0])
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
    assert f"3 series failed at the newest commit {project.commits['broken'][:8]}" in text
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


# --- what a step is ---

COMMITS = [f"{number:040x}" for number in range(200)]


def line(values: Sequence[float | None], measure: str = "call_s", **changes: Any) -> Series:
    prefix, unit = {
        "call_s": ("time", "seconds"),
        "peak_host_bytes": ("track", "bytes"),
        "error": ("track", "relative error"),
    }.get(measure, ("track", "seconds"))
    given = {
        "machine": "alpha",
        "environment": "here",
        "threads": 1,
        "benchmark": f"descriptors.Sum.{prefix}_{measure.removesuffix('_s')}",
        "kind": "descriptor",
        "subject": "sum",
        "measure": measure,
        "unit": unit,
        "candidate": NUMPY,
        "case": "vgg-b1",
        "parameters": None,
    }
    points = tuple(
        Point(commit, None, value, "ok" if value is not None else "skipped")
        for commit, value in zip(COMMITS, values, strict=False)
    )
    return Series(**{**given, "points": points, **changes})


def found(one: Series, **thresholds: float) -> list[tuple[int, int, str, int | None]]:
    """Where each regression appeared, the last good, its state and where it was fixed."""
    place = {commit: number for number, commit in enumerate(COMMITS)}
    return sorted(
        (
            place[r.commit],
            place[r.last_good],
            r.state,
            place[r.fixed_by] if r.fixed_by else None,
        )
        for r in history.regressions([one], **thresholds)
    )


def test_open_fixed_and_partly_fixed() -> None:
    assert found(line([1.0] * 5 + [2.0] * 5)) == [(5, 4, "open", None)]
    assert found(line([1.0] * 5 + [2.0] * 5 + [1.0] * 3)) == [(5, 4, "fixed", 10)]
    assert found(line([1.0] * 5 + [2.0] * 5 + [1.5] * 5)) == [(5, 4, "open", None)]
    assert found(line([1.0] * 5 + [2.0] * 5 + [4.0] * 5 + [1.0] * 5)) == [
        (5, 4, "fixed", 15),
        (10, 9, "fixed", 15),
    ]
    assert found(line([2.0] * 5 + [1.0] * 5)) == []


def test_an_improvement_that_is_lost_again_is_a_regression() -> None:
    assert found(line([2.0] * 5 + [1.0] * 5 + [2.0] * 5)) == [(10, 9, "open", None)]


def test_many_small_steps_are_one_large() -> None:
    values = [1.0] * 8 + [1.06] * 8 + [1.12] * 8 + [1.19] * 8
    (one,) = history.regressions([line(values)])
    assert (one.commit, one.before, one.after) == (COMMITS[16], 1.0, 1.12)


def test_the_last_good_commit_is_a_measured_one() -> None:
    assert found(line([1.0, 1.0, 1.0, None, None, 2.0, 2.0])) == [(5, 2, "open", None)]


@pytest.mark.parametrize(
    ("measure", "before", "after", "counts"),
    [
        ("call_s", 1.0, 1.08, False),
        ("call_s", 1.0, 1.12, True),
        ("call_s", 20e-6, 60e-6, False),
        ("call_s", 200e-6, 260e-6, True),
        ("peak_host_bytes", 2e6, 2.9e6, False),
        ("peak_host_bytes", 2e6, 3.1e6, True),
        ("peak_host_bytes", 0.0, 3e6, True),
        ("error", 1e-7, 2e-7, False),
        ("error", 1e-7, 1e-6, True),
        ("error", 1e-16, 1e-14, False),
    ],
)
def test_ratio_and_absolute_change_must_both_be_large(
    measure: str, before: float, after: float, counts: bool
) -> None:
    assert bool(found(line([before] * 10 + [after] * 10, measure))) is counts


def test_a_regression_from_zero_has_no_ratio() -> None:
    (one,) = history.regressions([line([0.0] * 5 + [5e6] * 5, "peak_host_bytes")])
    assert one.ratio is None


def test_short_histories_of_times_claim_only_what_is_large() -> None:
    assert found(line([1.0])) == []
    assert found(line([1.0, 1.3])) == []
    assert found(line([1.0, 1.5])) == [(1, 0, "open", None)]
    assert found(line([1.0, 1.0, 1.15, 1.15])) == []
    assert found(line([1.0, 1.0, 1.3, 1.3])) == [(2, 1, "open", None)]
    assert found(line([1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0])) == [(3, 2, "fixed", 6)]
    # What repeats exactly needs no long history; a first call needs more than a quartile does.
    assert found(line([10e6, 12e6], "peak_host_bytes")) == [(1, 0, "open", None)]
    assert found(line([1.0, 1.0, 1.5], "first_call_s")) == []


def test_noise_is_no_regression() -> None:
    """By the table in the module about 1 in 1000."""
    noise = random.Random(0)
    false = sum(
        bool(found(line([1.0 + noise.gauss(0.0, 0.04) for _ in range(length)])))
        for length in (2, 3, 4, 5, 6, 7, 8, 10, 15, 25)
        for _ in range(60)
    )
    assert false <= 3


def test_what_comes_and_goes_is_found_in_noise() -> None:
    """asv's own choice of the price of a step misses many of these."""
    noise = random.Random(0)
    for _ in range(40):
        values = [
            level * (1.0 + noise.gauss(0.0, 0.04)) for level in [1.0] * 9 + [2.0] * 8 + [1.0] * 9
        ]
        assert (9, 8, "fixed", 17) in found(line(values))


def test_a_baseline_shows_the_machine() -> None:
    slower = [1.0] * 10 + [2.0] * 10
    baseline = line(slower, candidate="baseline/plain")
    elsewhere = line([1.0] * 20, candidate="baseline/plain", machine="beta")
    (one,) = history.regressions([line(slower), baseline, elsewhere])
    assert (one.series.candidate, one.baseline_ratio, one.state) == (NUMPY, 2.0, "machine")
    (one,) = history.regressions([line(slower), elsewhere])
    assert (one.baseline_ratio, one.state) == (None, "open")
    worse = line([1.0] * 10 + [4.0] * 10)
    (one,) = history.regressions([worse, baseline])
    assert (one.baseline_ratio, one.state) == (2.0, "open")  # twice as slow as the machine explains


def test_a_change_of_software_is_told() -> None:
    points = tuple(
        Point(commit, None, value, fingerprint=key)
        for commit, value, key in zip(COMMITS, [1.0, 1.0, 2.0, 2.0], "aabb", strict=False)
    )
    (one,) = history.regressions([line([], points=points)])
    assert one.software_changed


def test_the_newer_of_two_results_counts(project: Project) -> None:
    frame = results.read(project.results)
    newer = frame.copy()
    newer["measured_at"] += newer["measured_at"].max() - newer["measured_at"].min()
    newer["lower_quartile"] *= 2
    import pandas

    both = history.series(pandas.concat([newer, frame]))
    assert both == history.series(newer)


def test_without_asv_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asv.step_detect", None)
    with pytest.raises(DemopoolError, match=r"pip install '\.\[bench\]'"):
        history.regressions([line([1.0, 2.0])])


# --- laws ---

values = st.lists(
    st.one_of(st.none(), st.floats(1e-3, 1e3), st.sampled_from([1.0, 2.0, 4.0])), max_size=30
)


def _facts(r: Regression, scale: float = 1.0) -> tuple[Any, ...]:
    levels = (r.before * scale, r.after * scale, r.now * scale)
    return (r.commit, r.last_good, r.state, r.fixed_by, r.ratio, *levels)


@given(values, st.integers(-30, 30))
def test_the_unit_does_not_matter(given_values: list[float | None], power: int) -> None:
    """Without absolute thresholds; by powers of two, which round nothing."""
    scale = 2.0**power
    zero = {"seconds": 0.0, "bytes": 0.0, "error": 0.0}
    plain = history.regressions([line(given_values)], **zero)
    scaled = line([None if value is None else value * scale for value in given_values])
    assert [_facts(r) for r in history.regressions([scaled], **zero)] == [
        _facts(r, scale) for r in plain
    ]


@given(values, st.integers(0, 30))
def test_a_gap_changes_nothing(given_values: list[float | None], place: int) -> None:
    """A commit that was not measured is as if it were not there."""
    place = min(place, len(given_values))
    without = line(given_values)
    gap = Point("f" * 40, None, None, "skipped")
    points = (*without.points[:place], gap, *without.points[place:])
    with_gap = line([], points=points)
    assert [_facts(r) for r in history.regressions([with_gap])] == [
        _facts(r) for r in history.regressions([without])
    ]


@given(values)
def test_what_is_reported_is_consistent(given_values: list[float | None]) -> None:
    one = line(given_values)
    place = {commit: number for number, commit in enumerate(COMMITS)}
    for r in history.regressions([one]):
        assert r.after >= analysis.RATIO * r.before
        assert r.after - r.before >= analysis.SECONDS
        assert place[r.last_good] < place[r.commit]
        assert (r.state == "fixed") == (r.fixed_by is not None)
        assert r.fixed_by is None or place[r.commit] < place[r.fixed_by]
        assert r.measured >= 1


@given(st.floats(1e-6, 1e6), st.integers(0, 40))
def test_a_constant_has_no_step(value: float, length: int) -> None:
    assert history.steps(line([value] * length)) == []


@given(st.permutations(range(6)))
def test_regressions_do_not_depend_on_the_order_of_series(order: list[int]) -> None:
    lines = [line([1.0] * 8 + [1.5 + n] * (n + 2), case=f"case-{n}") for n in range(6)]
    shuffled = [lines[number] for number in order]
    assert history.regressions(shuffled) == history.regressions(lines)
