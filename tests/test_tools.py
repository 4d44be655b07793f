"""The scripts behind the Makefile, as far as they can be told without running asv."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas
import pytest
from asv.config import Config
from rich.console import Console

from benchmarks import machine_name
from demopool import results
from demopool.measurement.worker import THREAD_VARIABLES
from tools import bench, check_suite, summary


def frame(*rows: dict[str, Any]) -> pandas.DataFrame:
    whole = [{**dict.fromkeys(results.COLUMNS), "state": "ok", **row} for row in rows]
    return pandas.DataFrame(whole).astype(results.COLUMNS)


def cell(candidate: str, measure: str, value: float | None, **more: Any) -> dict[str, Any]:
    about = {"kind": "descriptor", "subject": "democratic", "case": "vgg-b1"}
    name = f"descriptors.Democratic.{measure}"
    return {
        **about,
        "benchmark": name,
        "candidate": candidate,
        "measure": measure,
        "value": value,
    } | more


def printed(show: Any, *arguments: Any) -> str:
    screen = Console(file=io.StringIO(), width=100, highlight=False, markup=False)
    show(*arguments, screen)
    return screen.file.getvalue()


def test_the_summary_has_a_ratio_to_the_baseline_and_every_reason() -> None:
    text = printed(
        summary.show,
        frame(
            cell("baseline/plain", "call_s", 0.010),
            cell("numpy:cpu/dense", "call_s", 0.005),
            cell("numpy:cpu/dense", "peak_host_bytes", 3.2e6),
            cell("numpy:cpu/dense", "error", 2e-7),
            cell("torch:cpu/dense", "call_s", None, state="skipped", reason="no torch"),
            cell("cupy:cuda/dense", "call_s", None, state="failed", reason="ValueError: x"),
            cell("numba:cpu/dense", "call_s", None, state="not run"),
        ),
    )
    ours = next(line for line in text.splitlines() if "numpy:cpu/dense" in line)
    assert ours.split() == ["numpy:cpu/dense", "5", "ms", "0.5", "3.2", "MB", "2.0e-07"]
    assert text.index("numpy:cpu/dense") < text.index("baseline/plain")  # the fastest first
    assert "skipped: descriptors.Democratic.call_s torch:cpu/dense vgg-b1: no torch" in text
    assert "failed: descriptors.Democratic.call_s cupy:cuda/dense vgg-b1: ValueError: x" in text
    assert "numba" not in text


def test_the_summary_has_the_distance_to_the_limit_where_that_is_known() -> None:
    rows = frame(
        cell("numpy:cpu/dense", "call_s", 0.006, limit_s=0.002),
        cell("numpy:cpu/dense", "error", 2e-7),
        cell("torch:cuda/dense", "call_s", 0.009),
    )
    lines = printed(summary.show, rows).splitlines()
    ours, other = (next(line for line in lines if name in line) for name in ("numpy", "torch"))
    assert ours.split() == ["numpy:cpu/dense", "6", "ms", "-", "3", "2.0e-07"]
    assert other.split() == ["torch:cuda/dense", "9", "ms", "-", "-", "-"]


def test_a_narrow_summary_cuts_no_number() -> None:
    rows = [
        cell("numpy:cpu/newton-schulz+moment", m, v)
        for m, v in (("call_s", 0.12345), ("error", 1e-7))
    ]
    screen = Console(file=io.StringIO(), width=40, highlight=False, markup=False)
    summary.show(frame(*rows), screen)
    text = screen.file.getvalue()
    assert "123 ms" in text
    assert "1.0e-07" in text


def test_a_summary_without_a_baseline_has_no_ratio() -> None:
    text = printed(summary.show, frame(cell("numpy:cpu/dense", "call_s", 0.005)))
    ours = next(line for line in text.splitlines() if "numpy:cpu/dense" in line)
    assert ours.split() == ["numpy:cpu/dense", "5", "ms", "-"]


def test_backends_that_are_absent_are_named_once_per_reason() -> None:
    rows = [
        {"backend": "numpy:cpu", "state": "ok", "reason": ""},
        {"backend": "torch:cuda", "state": "unavailable", "reason": "no GPU"},
        {"backend": "cupy:cuda", "state": "unavailable", "reason": "no GPU"},
        {"backend": "cupy:ptx", "state": "ok", "reason": ""},
        {"backend": "mine:cpu", "state": "ok", "reason": ""},
    ]
    text = printed(summary.show_absent, rows)
    assert "Not measured: torch:cuda, cupy:cuda: no GPU.\n" in text
    assert "Not measured: mine:cpu: a plug-in" in text
    assert "ptx" not in text


def test_what_is_finished_and_what_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(candidate: str, state: str, **more: Any) -> dict[str, Any]:
        about = {"commit": "c", "threads": 2, "state": state}
        return cell(candidate, "call_s", None) | about | more

    rows = frame(
        row("a/x", "ok", value=1.0),
        row("b/x", "skipped", candidate_state="unavailable"),
        row("c/x", "skipped", candidate_state="out-of-memory"),
        row("d/x", "failed", candidate_state="error"),
        row("e/x", "not run"),
        row("f/x", "ok", value=1.0, threads=8),
        row("g/x", "ok", value=1.0, commit="other"),
    )
    monkeypatch.setattr(bench.results, "read", lambda folder: rows)
    plan = bench.Plan(tmp_path / "asv.conf.json", tmp_path, 2, "c", [])
    assert {candidate for _, candidate, _ in plan.finished()} == {"a/x", "b/x"}
    assert bench.Plan(tmp_path, tmp_path / "absent", 2, "c", []).finished() == set()


def test_two_gpus_on_one_host_are_two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_name.platform, "node", lambda: "Lab_7")
    for gpus, name in (
        (None, "lab-7"),
        (["NVIDIA A100-SXM4-80GB"], "lab-7-nvidia-a100-sxm4-80gb"),
        (["NVIDIA RTX 4090", "NVIDIA A100"], "lab-7-nvidia-rtx-4090"),
    ):
        monkeypatch.setattr(machine_name.fingerprint, "machine", lambda gpus=gpus: {"gpu": gpus})
        assert machine_name.machine_name() == name


def test_other_threads_and_folder_in_a_copy_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bench.ROOT / "asv.conf.json"
    (tmp_path / original.name).write_text(original.read_text())
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    assert bench.config_with() == tmp_path / "asv.conf.json"
    changed = Config.load(str(bench.config_with(threads=16, folder="elsewhere")))
    variables = changed.matrix["env_nobuild"]
    assert variables.pop("NVIDIA_TF32_OVERRIDE") == ["0"]
    assert variables == {name: ["16"] for name in THREAD_VARIABLES}
    assert changed.results_dir == ".asv/elsewhere"
    plain = Config.load(str(tmp_path / "asv.conf.json"))
    assert plain.environment_type == changed.environment_type == "borrowed"
    assert plain.launch_method == "forkserver"


def test_check_suite_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_suite, "usable_backends", lambda: ("numpy:cpu",))
    names = [
        ("call_s", "numpy:cpu/dense"),
        ("call_s", "torch:cuda/dense"),
        ("error", "numpy:cpu/dense"),
    ]
    cells = frozenset((f"descriptors.Democratic.{m}", c, "vgg-b1") for m, c in names)
    every = check_suite.Slice("all", (), cells)
    absent = cell("torch:cuda/dense", "call_s", None, state="skipped", reason="no GPU")
    absent["candidate_state"] = "unavailable"
    good = [cell("numpy:cpu/dense", "call_s", 0.1), absent, cell("numpy:cpu/dense", "error", 1e-7)]
    assert check_suite.problems(frame(*good), every) == []
    for place, change, expected in (
        (0, {"state": "failed", "value": None, "reason": "boom"}, "boom"),
        (2, {"state": "not run", "value": None}, "not run"),
        (1, {"candidate_state": "timeout"}, "skipped"),
        (
            2,
            {"state": "skipped", "candidate_state": "unsupported", "reason": "hm", "value": None},
            "gave no number on numpy:cpu",
        ),
    ):
        wrong = [dict(row) for row in good]
        wrong[place].update(change)
        told = check_suite.problems(frame(*wrong), every)
        assert any(expected in problem for problem in told), (expected, told)
    assert any("absent" in problem for problem in check_suite.problems(frame(*good[:2]), every))


def test_a_draw_of_the_suite_passes_over_what_only_gpus_have() -> None:
    timed = ("descriptors.Sum.time_call", "numpy:cpu/direct", "vgg-b1")
    absent = ("descriptors.Sum.time_call", f"{check_suite.ABSENT}/direct", "vgg-b1")
    on_gpus = ("descriptors.Sum.track_peak_device_bytes", f"{check_suite.ABSENT}/direct", "vgg-b1")
    assert check_suite.drawn([timed, absent, on_gpus]) == {timed, absent}
