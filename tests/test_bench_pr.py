"""``make bench-pr``: the verdicts on two commits, as a pull request gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from click.testing import CliRunner

from demopool import results
from demopool.results.history.changes import RATIO
from demopool.results.history.confirming import judge
from tools import bench_pr, pull_request_errors, verdicts
from tools.cells import Cell

BASE, HEAD = "a" * 40, "b" * 40
CELL = Cell("descriptors.Democratic.time_call", "numpy:cpu/dense", "vgg-b1")
OTHER = CELL._replace(benchmark="descriptors.Sum.time_call", candidate="numpy:cpu/direct")

Times = dict[Cell, tuple[Any, Any]]


def row(cell: Cell, commit: str, value: Any) -> dict[str, Any]:
    """A time whose interval is 2 % to both sides, or a state."""
    about = {**dict.fromkeys(results.COLUMNS), **cell._asdict(), "commit": commit}
    if isinstance(value, str):
        return {**about, "state": value, "reason": "it said so"}
    interval = {"low": 0.98 * value, "high": 1.02 * value}
    return {**about, "state": "ok", "value": value, "lower_quartile": value, **interval}


def table(times: Times) -> Any:
    rows = [
        row(cell, commit, value)
        for cell, pair in times.items()
        for commit, value in zip((BASE, HEAD), pair, strict=True)
        if value is not None
    ]
    return pandas.DataFrame(rows).astype(results.COLUMNS)


def compared(times: Times) -> verdicts.Comparison:
    return verdicts.compare(table(times), BASE, HEAD, times)


def judged(base: Any, head: Any, machine: tuple[Any, Any] = (0.1, 0.1)) -> tuple[str, int]:
    found = compared({CELL: (base, head), bench_pr.baseline_of(CELL): machine})
    (one,) = found.rows
    return one.verdict, found.exit_code


@pytest.mark.parametrize(
    ("base", "head", "machine", "expected"),
    [
        (0.010, 0.010, (0.1, 0.1), ("same", 0)),
        (0.010, 0.020, (0.1, 0.1), ("slower", 1)),
        (0.020, 0.010, (0.1, 0.1), ("faster", 0)),
        # The machine's part is taken out, in both directions.
        (0.010, 0.015, (0.1, 0.15), ("same", 0)),
        (0.010, 0.010, (0.1, 0.08), ("same", 0)),
        (0.010, 0.030, (0.1, 0.15), ("slower", 1)),
        # Less than the noise of the run, the smallest ratio, or the smallest change.
        (0.010, 0.013, (0.1, 0.07), ("slower", 1)),
        (0.010, 0.0108, (0.1, 0.1), ("same", 0)),
        (20e-6, 60e-6, (0.1, 0.1), ("same", 0)),
        # A baseline that took three times as long: nothing can be told.
        (0.010, 0.012, (0.1, 0.3), ("same", 2)),
        # What had a value must have one.
        (0.010, "failed", (0.1, 0.1), ("not measured", 2)),
        (0.010, "skipped", (0.1, 0.1), ("not measured", 2)),
        (0.010, None, (0.1, 0.1), ("not measured", 2)),
        ("failed", "failed", (0.1, 0.1), ("not measured", 2)),
    ],
)
def test_the_verdict_on_one_candidate(
    base: Any, head: Any, machine: tuple[float, float], expected: tuple[str, int]
) -> None:
    assert judged(base, head, machine) == expected


def test_intervals_that_overlap_are_no_change() -> None:
    low, high = verdicts.Time(1.0, 0.9, 1.3), verdicts.Time(1.5, 1.2, 1.6)
    assert not verdicts._counts(low, high, RATIO)
    assert verdicts._counts(low, verdicts.Time(1.5, 1.4, 1.6), RATIO)


def test_what_is_new_or_absent_on_this_machine_fails_nothing() -> None:
    new, absent = CELL._replace(candidate="a:cpu/x"), CELL._replace(candidate="b:cpu/x")
    found = compared({CELL: (0.1, 0.1), new: ("skipped", 0.2), absent: ("skipped", "skipped")})
    assert {one.cell: one.verdict for one in found.rows} == {CELL: "same", new: "new", absent: ""}
    assert found.exit_code == 0
    text = verdicts.markdown(found, BASE, HEAD)
    assert "1 cannot run on this machine" in text
    assert "`a:cpu/x`" in text


def test_nothing_to_compare_is_not_a_success() -> None:
    found = compared({CELL: ("skipped", "skipped")})
    assert found.exit_code == 2
    assert "nothing could be compared" in verdicts.markdown(found, BASE, HEAD)


def test_the_noise_of_a_run_is_how_far_half_of_the_baselines_moved() -> None:
    quiet = {CELL: (0.01, 0.01), bench_pr.baseline_of(CELL): (0.1, 0.101)}
    assert compared(quiet).limit == pytest.approx(1.01 * RATIO)
    third = OTHER._replace(case="vgg-b8")
    moved = {OTHER: (0.1, 0.1), third: (0.1, 0.06), CELL: (0.1, 0.08)}
    baselines = {bench_pr.baseline_of(cell): times for cell, times in moved.items()}
    found = compared({third: (0.010, 0.008), OTHER: (0.010, 0.013), **baselines})
    assert found.limit == pytest.approx(RATIO * 0.1 / 0.08)
    # 1.3 is less than the noise; 0.8 beside a baseline at 0.6 is less, too.
    assert found.exit_code == 0


def test_the_table_is_markdown_with_what_changed_first() -> None:
    found = compared(
        {
            CELL: (0.010, 0.020),
            bench_pr.baseline_of(CELL): (0.1, 0.1),
            OTHER: (0.010, 0.010),
            bench_pr.baseline_of(OTHER): (0.1, 0.105),
        }
    )
    lines = verdicts.markdown(found, BASE, HEAD).splitlines()
    assert lines[0] == "**1 slower** from aaaaaaaa to bbbbbbbb."
    tables = [line for line in lines if line.startswith("| ")]
    assert tables[1] == (
        "| democratic | vgg-b1 | `numpy:cpu/dense` | 10 ms | 20 ms | 1.00 | 2.00 | slower |"
    )
    assert tables[3] == "| sum | vgg-b1 | `numpy:cpu/direct` | 10 ms | 10 ms | 1.05 | 0.95 | same |"
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert lines.index("<details><summary>1 without a change</summary>") > lines.index(tables[1])


def test_cells_come_with_their_baselines() -> None:
    usual = bench_pr.cells_of(None)
    assert {cell.method for cell in usual} == {"time_call"}
    assert all(cell.benchmark.startswith("descriptors.") for cell in usual)
    some = bench_pr.cells_of(r"Democratic.*numpy:cpu/dense'.*'vgg-b1'")
    assert some == {CELL, bench_pr.baseline_of(CELL)}


def test_a_pattern_that_selects_nothing_is_one_sentence_and_code_2() -> None:
    for wrong, sentence in (("nothing", "matches no time"), ("(", "must be a regular expression")):
        done = CliRunner().invoke(bench_pr.bench_pr, ["--bench", wrong])
        assert done.exit_code == 2
        assert sentence in done.output


def test_a_base_that_git_does_not_know_is_one_sentence_and_code_2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for shallow, base, sentence in (
        (False, "no-such-branch", "such as origin/main"),
        (True, "no-such-branch", "git fetch --unshallow"),
        (False, "HEAD", "there is no change"),
    ):
        monkeypatch.setattr(bench_pr.checkout, "is_shallow", lambda shallow=shallow: shallow)
        done = CliRunner().invoke(bench_pr.bench_pr, ["--base", base])
        assert done.exit_code == 2
        assert sentence in done.output


def test_turns_of_both_commits_decide_about_what_seems_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = [CELL._replace(candidate=f"{name}:cpu/dense") for name in ("a", "b", "c", "d", "e")]
    slower, noise, unclear, broken, faster = cells
    times: Times = dict.fromkeys(cells, (0.01, 0.02)) | {faster: (0.020, 0.010)}
    times[bench_pr.baseline_of(CELL)] = (0.1, 0.1)
    rounds = {slower: 2.0, noise: 1.0, faster: 2.0}
    asked = []

    def in_turns(group: Any, patterns: Any, project: Any, ratio: float, report: Any) -> Any:
        chosen = {cell.pattern: cell for cell in cells}
        asked.append((group.commits, {chosen[one] for one in patterns}))
        values = {
            name: [(0.01, 0.01 * rounds[chosen[name]])] * 6
            for name in patterns
            if chosen[name] in rounds
        }
        found = {name: judge(group.commits, pairs, ratio) for name, pairs in values.items()}
        wild = [(0.01, 0.01 * factor) for factor in (0.5, 2, 1, 3, 0.4, 1.1)]
        if unclear.pattern in patterns:
            found[unclear.pattern] = judge(group.commits, wild, ratio)
        return 12, found

    monkeypatch.setattr(bench_pr, "_measure", lambda *_: None)
    monkeypatch.setattr(bench_pr.results, "read", lambda _: table(times))
    monkeypatch.setattr(bench_pr.asv_runs, "in_turns", in_turns)
    plan = bench_pr.Plan(Path(), Path("here"), 2, HEAD, [])
    errors = bench_pr.Console(quiet=True)
    found = bench_pr.compared(plan, BASE, set(times), 2, errors, None)  # type: ignore[arg-type]
    said = {row.cell: row.verdict for row in found.rows}
    assert said == {
        slower: "slower",
        noise: "same",
        unclear: "unclear",
        broken: "unclear",
        faster: "faster",
    }
    assert asked == [((BASE, HEAD), set(cells) - {faster}), ((HEAD, BASE), {faster})]
    assert found.exit_code == 1
    text = verdicts.markdown(found, BASE, HEAD)
    assert text.startswith("**1 slower, 1 faster, 2 unclear**")
    assert "faster: x0.4" in text
    assert "unclear: it failed when measured again" in text
    calm = verdicts.Comparison(tuple(r for r in found.rows if r.cell in (noise, unclear)), 1.1)
    assert calm.exit_code == 2


@pytest.mark.parametrize(
    ("machine", "found", "false"),
    [("quiet", 0.8, 0.0), ("1 process in 12 slowed by 1.3 to 2.2", 0.5, 0.04)],
)
def test_the_rates_of_errors_are_those_of_the_documentation(
    machine: str, found: float, false: float
) -> None:
    cells = sorted(bench_pr.cells_of(None))
    slowed = pull_request_errors.MACHINES[machine]
    same = pull_request_errors.shares(slowed, 1.0, cells, runs=25, seed=1)
    slower = pull_request_errors.shares(slowed, 1.42, cells, runs=25, seed=1)
    assert max(same.false, slower.false) <= false
    assert slower.found >= found
