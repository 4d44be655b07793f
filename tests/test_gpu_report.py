"""`demopool gpu-report`: on a made-up GPU with made-up tools, and on kernels executed on the CPU.

No test here shows how NVIDIA's tools behave on a real GPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fake_gpu
import pytest
from click.testing import CliRunner

from demopool import ptx
from demopool.commands import cli
from demopool.contract import registry
from demopool.gpu_report import clocks, collecting, counts, external, findings, page
from demopool.gpu_report.building import Built
from demopool.gpu_report.kept import Kept
from demopool.machine import gpu
from demopool.machine.limits import Limits
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case, named
from demopool.problem.vocabulary import State

ARGUMENTS = ("--quick", "--case", "n49-d64", "--descriptor", "democratic", "--budget", "1")


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demopool", "gpu-report", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


# --- the whole command ---


def test_a_gpu_is_checked_raced_and_profiled_and_the_second_run_only_reads(tmp_path: Path) -> None:
    environment = fake_gpu.install(tmp_path, sys.executable)
    arguments = ("fake:cuda", *ARGUMENTS, "-o", str(tmp_path / "out"), "--json")
    done = _run(environment, *arguments)
    assert done.returncode == 1, done.stderr  # the made-up racecheck finds something
    found = json.loads(done.stdout)
    assert [cell["state"] for cell in found["cells"] if cell["dtype"]] == ["ok"] * 3
    (race,) = found["races"]
    assert race["name"] == "n49-d64"
    assert race["verdict"]["backend"] == "fake:cuda"
    states = {row["tool"]: row["state"] for row in found["sanitizer"]}
    assert states["memcheck"] == states["initcheck"] == "ok"
    assert (states["racecheck"], states["synccheck"]) == ("wrong", "error")
    (profile,) = found["profiles"]
    assert [row["kernel"] for row in profile["kernels"]] == ["gram<float>", "step"]
    assert [text.split(": ")[1][:9] for text in found["findings"]] == ["racecheck", "synccheck"]
    with zipfile.ZipFile(found["files"][1]) as archive:
        sent = archive.read("gpu-report.json").decode()
        assert archive.read("gpu-report.html").decode() == Path(found["files"][0]).read_text()
    for private in (str(Path.home()), str(tmp_path), "127.0.0.1"):
        assert private not in sent
    loaded = Path(environment["LOADED"]).read_text()
    again = _run(environment, *arguments)
    assert json.loads(again.stdout)["races"] == found["races"]
    assert Path(environment["LOADED"]).read_text() == loaded, "something was done twice"


@pytest.mark.parametrize(
    ("cell", "raced", "sanitized", "conforms"),
    [
        ("ok", "ok", "ok", True),
        ("unsupported", "unsupported", "timeout", True),
        ("ok", "out-of-memory", "ok", True),
        ("wrong", "ok", "ok", False),
        ("ok", "wrong", "ok", False),
        ("ok", "error", "ok", False),
        ("ok", "ok", "wrong", False),
    ],
)
def test_anything_wrong_is_said_by_the_exit_code(
    cell: str, raced: str, sanitized: str, conforms: bool
) -> None:
    races = [{"candidates": [{"state": raced}]}]
    found = {"cells": [{"state": cell}], "races": races, "sanitizer": [{"state": sanitized}]}
    assert Built((Path(), Path()), (), found).conforms == conforms


INTERRUPTED = """
import sys
from pathlib import Path
from demopool.gpu_report.building import build
from demopool.gpu_report.collecting import Plan

seen = []

def progress(done, total, what):
    seen.append(what)
    if what.startswith(sys.argv[2]):
        raise KeyboardInterrupt

plan = Plan(("fake:cuda",), ("n49-d64",), ("democratic",), 1.0, quick=True, tools=False)
try:
    build(plan, Path(sys.argv[1]), fresh=False, progress=progress)
except KeyboardInterrupt:
    pass
print("\\n".join(seen))
"""


def test_an_interrupted_report_goes_on_where_it_was(tmp_path: Path) -> None:
    environment = fake_gpu.install(tmp_path, sys.executable)

    def run(stop: str) -> list[str]:
        command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "out"), stop]
        return subprocess.check_output(command, text=True, env=environment).splitlines()

    first = run("checking 2 of")
    assert not (tmp_path / "out" / "gpu-report.html").exists()
    second = run("racing")
    third = run("never")
    assert first[1].startswith("checking 0 of")
    assert second[1].startswith("checking 2 of")
    (last,) = [what for what in third if what.startswith("checking ")]
    assert len(set(re.findall(r"\d+", last))) == 1, "all cells were known"
    assert (tmp_path / "out" / "gpu-report.html").exists()


def _cupy() -> bool:
    return registry.probe("cupy:ptx").state is State.OK


@pytest.mark.skipif(not _cupy(), reason="no compiler for CUDA")
def test_emulated_kernels_are_checked_and_counted_but_not_timed(tmp_path: Path) -> None:
    arguments = ["cupy:ptx", "--quick", "--operation", "normalize", "-o", str(tmp_path), "--json"]
    done = CliRunner().invoke(cli, ["gpu-report", *arguments])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {cell["state"] for cell in found["cells"]} == {"ok"}
    assert (found["races"], found["limits"], found["findings"]) == ([], None, [])
    rows = {row["kernel"]: row for row in found["counts"] if row["candidate"] == "cupy:ptx/dense"}
    gram = next(row for name, row in rows.items() if name.startswith("gram"))
    # The lower triangles of two K, in whole tiles, are at least n (n + 1) products of d.
    assert gram["flops"] >= 2 * 49 * 50 * 64
    assert all(0 < row["useful_share"] <= 1 for row in rows.values())
    counted = {row["candidate"] for row in found["counts"]}
    assert {f"cupy:ptx/dense-{how}" for how in ("cublas", "syrk", "128", "tf32")} <= counted
    html = (tmp_path / "gpu-report.html").read_text()
    assert "gram" in html
    assert "http" not in html.replace("http-equiv", "")
    both = ("cupy:cuda", "torch:cuda")
    (sentence,) = (text for text in page._counts(found["counts"], both) if "No counts" in text)
    assert "for torch:cuda: nothing" in sentence


def test_what_has_no_counts_is_said_with_the_reason() -> None:
    chosen = ("cupy:cuda", "torch:cuda", "triton:cuda", "numba:cuda")
    lacking, never = page._counts([], chosen)
    assert "for cupy:cuda and numba:cuda: pip install" in lacking
    assert "for torch:cuda and triton:cuda: nothing here" in never


def test_without_a_gpu_it_says_why_and_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "available", lambda: ("numpy:cpu",))
    done = CliRunner().invoke(cli, ["gpu-report"])
    assert done.exit_code == 1
    text = str(done.exception)
    assert "torch:cuda" in text
    assert "demopool gpu-report cupy:ptx" in text


# --- its parts ---


def test_steps_of_other_settings_and_broken_files_are_not_used(tmp_path: Path) -> None:
    kept = Kept(tmp_path, fresh=False)
    kept.put("a", {"x": 1}, "setting")
    assert kept.get("a", "setting") == {"x": 1}
    assert kept.get("a", "another") is None
    assert kept.get("b") is None
    (tmp_path / "a.json").write_text('{"of": ')
    assert kept.get("a", "setting") is None
    kept.put("a", 1)
    assert Kept(tmp_path, fresh=True).get("a") is None


def test_what_could_not_be_done_is_tried_again(tmp_path: Path) -> None:
    kept, reasons = Kept(tmp_path, fresh=False), iter(("no permission", "", "never asked"))

    def row() -> dict[str, str]:
        return {"reason": next(reasons)}

    assert kept.or_found("one", row)["reason"] == "no permission"
    assert [kept.or_found("one", row)["reason"] for _ in range(2)] == ["", ""]
    reasons = iter(("", "stopped", "", "", "never asked"))
    assert kept.or_found("several", lambda: [row(), row()])[1]["reason"] == "stopped"
    assert kept.or_found("several", lambda: [row(), row()])[1]["reason"] == ""
    assert kept.or_found("several", lambda: [row(), row()])[1]["reason"] == ""


def test_the_table_of_nsight_compute_is_added_up_by_kernel() -> None:
    first, second = external.kernels("noise\n" + fake_gpu.TABLE)
    assert (first["kernel"], first["launches"], first["registers"]) == ("gram<float>", 1, 40)
    assert (first["blocks"], first["threads"], first["dram_bytes"]) == (1040, 64, 2.5e6)
    assert first["seconds"] == pytest.approx(2.0005e-3)
    assert second["seconds"] == pytest.approx(4e-6)
    assert second["occupancy_percent"] == pytest.approx((50 * 1 + 90 * 3) / 4)
    assert second["dram_bytes"] == 2_508_800
    assert second["memory_percent"] is None  # it was not in percent
    without = fake_gpu.TABLE.replace('"byte","2,508,800"', '"","n/a"')
    assert external.kernels(without)[1]["dram_bytes"] is None, "a launch is missing in the sum"
    assert external.kernels("==ERROR== nothing was profiled") == []


def test_the_page_has_what_nsight_compute_said_of_a_kernel() -> None:
    """What step 5 of docs/howto/use-a-gpu.md looks at."""
    names = {"candidate": "cupy:cuda/dense", "case": "vgg-b8", "descriptor": "democratic"}
    one = {**names, "reason": "", "kernels": external.kernels(fake_gpu.TABLE)}
    html = "".join(page._profiles({"profiles": [one]}))
    for name, text in (("blocks", "1,040"), ("DRAM", "2.5 MB"), ("occupancy %", "80")):
        assert re.search(f'data-label="{name}"[^>]*>{text}<', html), name


def _tool(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_tool_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path, "compute-sanitizer", "sleep 600", monkeypatch)
    row = external.sanitize("cupy:cuda", "memcheck", seconds=0.2)
    assert (row["state"], row["reason"]) == ("timeout", "it was stopped after 0.2 s")


def test_a_check_that_fails_under_a_tool_is_not_taken_for_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "echo not available; echo '========= ERROR SUMMARY: 0 errors'; exit {}"
    _tool(tmp_path, "compute-sanitizer", says.format(1), monkeypatch)
    row = external.sanitize("cupy:cuda", "memcheck")
    assert (row["state"], row["errors"]) == ("error", None)
    assert "exit code 1" in row["reason"]
    assert "not available" in row["log"]
    _tool(tmp_path, "compute-sanitizer", says.format(0), monkeypatch)
    assert external.sanitize("cupy:cuda", "memcheck")["state"] == "ok"


def test_the_fastest_of_every_backend_is_profiled_and_its_fastest_without_tf32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is the one that a finding explains."""
    found = _found()
    names = ("cupy:cuda/dense-tf32", "torch:cuda/dense", "cupy:cuda/dense", "cupy:cuda/dense-128")
    found["races"][0]["candidates"] = [
        {"backend": one.backend, "route": one.route, "median_s": 1.0}
        for one in map(Candidate.parse, names)
    ]
    monkeypatch.setattr(external, "installed", lambda tool: True)
    monkeypatch.setattr(external, "profile", lambda candidate, *case: {"candidate": str(candidate)})
    kept = Kept(tmp_path, fresh=False)
    rows = collecting._profiles(kept, collecting.Plan(), found["races"], lambda what: None)
    assert {row["candidate"] for row in rows} == set(names[:3])
    assert len(rows) == 3


def test_counters_that_need_rights_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tool(tmp_path, "ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1", monkeypatch)
    row = external.profile(Candidate("cupy:cuda", "dense"), named("vgg-b1"), "vgg-b1")
    assert row["kernels"] == []
    assert "administrators" in row["reason"]


def test_clocks_of_a_gpu_at_work_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(
        {
            "reasons": reasons,
            "sm_clock_mhz": clock,
            "max_sm_clock_mhz": 1980,
            "memory_clock_mhz": None,
            "temperature_c": 60,
        }
        for clock, reasons in ((210, ["idle"]), (1900, []), (1980, []), (1200, ["thermal"]))
    )
    monkeypatch.setattr(gpu, "telemetry", lambda index: next(states))
    monkeypatch.setattr(clocks, "_SECONDS", 0.0)
    watched = clocks.Clocks()
    for _ in range(4):
        watched.look()
    found = watched.summary()
    assert found is not None
    assert (found["looks"], found["sm_clock_mhz"]) == (3, [1200, 1900, 1980])
    assert found["memory_clock_mhz"] is None
    assert found["warning"] == "GPU clock fell from 1980 to 1200 MHz; throttled: thermal"


def _found(seconds: float = 1.0, **changes: Any) -> dict[str, Any]:
    """One race on a GPU of 10 TFLOP/s and 1 TB/s."""
    row = {"backend": "cupy:cuda", "route": "dense", "state": "ok", "reason": "", "verdict": None}
    race = {
        "case": {"descriptor": "democratic", "batch": 8, "n": 784, "d": 512, "data": "device"},
        "name": "vgg-b8",
        "candidates": [{**row, "median_s": seconds}],
        "clocks": None,
    }
    limits = {"flops": 1e13, "cached_bytes": 1e12, "memory_bytes": 1e12}
    return {
        "cells": [],
        "sanitizer": [],
        "races": [race],
        "profiles": [],
        "limits": {**limits, "data_sheet": None, "reason": ""},
        **changes,
    }


def _profile(seconds: float, compute: float) -> list[dict[str, Any]]:
    row = {"kernel": "gram", "launches": 1, "seconds": seconds, "compute_percent": compute}
    row |= {"memory_percent": 5.0}
    names = {"candidate": "cupy:cuda/dense", "case": "vgg-b8", "descriptor": "democratic"}
    return [{**names, "kernels": [row]}]


def test_a_time_near_its_roofline_is_not_conspicuous() -> None:
    found = _found()
    (distance,) = findings.distances(found["races"][0], found["limits"])
    assert findings.findings(_found(1.9 * distance.least_s)) == []
    (far,) = findings.findings(_found(2.1 * distance.least_s))
    assert "2.1 times the roofline" in far
    assert "ncu" in far


def test_tf32_has_no_roofline_and_hides_no_slow_race() -> None:
    """On an A100 three products of TF32 may take less than one of float32 can."""
    found = _found(2e-3)
    a100 = next(device for device in ptx.DEVICES if device.name == "A100")
    found["limits"] |= {"flops": a100.flops, "memory_bytes": a100.bytes}
    (race,) = found["races"]
    (dense,) = race["candidates"]
    race["candidates"] = [{**dense, "route": "dense-tf32", "median_s": 3e-4}, dense]
    (distance,) = findings.distances(race, found["limits"])
    assert str(distance.candidate) == "cupy:cuda/dense"
    (far,) = findings.findings(found)
    assert far.startswith("cupy:cuda/dense, ")


@pytest.mark.skipif(not _cupy(), reason="no compiler for CUDA")
@pytest.mark.parametrize(
    ("n", "d", "routes"),
    [
        (49, 64, ("dense", "matrix-free", "dense-128", "dense-tf32", "dense-resident")),
        (300, 32, ("dense", "dense-resident")),
        (16, 256, ("dense",)),
    ],
)
def test_no_roofline_is_above_what_a_data_sheet_says_of_the_kernels(
    n: int, d: int, routes: tuple[str, ...]
) -> None:
    """K in one block, in several, and descriptors that are all the memory there is."""
    case = Case(batch=2, n=n, d=d, data="device")
    counted = {route: counts.run_counts("cupy:ptx", route, case) for route in routes}
    rows = [{"backend": "cupy:ptx", "route": route, "median_s": 1.0} for route in routes]
    race = {"case": asdict(case), "name": "", "candidates": rows}
    for device in ptx.DEVICES:
        limits = {"flops": device.flops, "cached_bytes": device.bytes, "reason": ""}
        near = findings.distances(race, limits | {"memory_bytes": device.bytes})
        assert len(near) == len(set(routes) - {"dense-tf32"})
        for one in near:
            needs = sum(row["least_s"][device.name] for row in counted[one.candidate.route])
            assert one.least_s <= needs, f"{one.candidate} on {device.name}"


def test_a_k_that_no_cache_holds_is_read_in_every_iteration() -> None:
    found = _found(1.0)
    found["limits"] |= {"flops": 1e99, "cached_bytes": 1.0, "memory_bytes": 1.0}
    least = []
    for n in (5000, 6000):
        found["races"][0]["case"] |= {"batch": 1, "n": n, "d": 1}
        (distance,) = findings.distances(found["races"][0], found["limits"])
        least.append(distance.least_s)
    assert least[0] == 4 * (5000 + 1), "features and the descriptor"
    assert least[1] > 10 * 4 * 6000**2 / 2


@pytest.mark.parametrize(
    ("profiles", "words"),
    [
        (lambda s: _profile(0.2 * s, 50.0), "waits for the host"),
        (lambda s: _profile(0.9 * s, 90.0), "near its own limit"),
        (lambda s: _profile(0.9 * s, 30.0), "it waits"),
    ],
)
def test_where_to_look_follows_from_the_kernels(
    profiles: Callable[[float], list[dict[str, Any]]], words: str
) -> None:
    (far,) = findings.findings(_found(1.0, profiles=profiles(1.0)))
    assert words in far


def test_work_shorter_than_launches_is_up_to_the_host() -> None:
    found = _found(1e-3)
    found["races"][0]["case"] |= {"batch": 1, "n": 16, "d": 16}
    (far,) = findings.findings(found)
    assert "the host decides" in far


def test_a_gpu_far_below_its_data_sheet_is_named() -> None:
    sheet = clocks.data_sheet("NVIDIA A100-SXM4-40GB", Limits(9e12, 2e12, 1.4e12))
    assert sheet is not None
    assert sheet["flops_share"] == pytest.approx(9 / 19.5)
    limits = {**_found()["limits"], "data_sheet": sheet}
    told = [text for text in findings.findings(_found(1e-5, limits=limits)) if "sheet" in text]
    assert len(told) == 1
    assert "46%" in told[0]
    assert "float32" in told[0]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        *((name, None) for name in ("a made-up GPU", "NVIDIA T400 4GB", "NVIDIA H100 PCIe")),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        *((name, None) for name in ("NVIDIA A1000", "NVIDIA A100-SXM4-80GB")),
    ],
)
def test_a_data_sheet_is_that_of_the_very_gpu(name: str, device: str | None) -> None:
    sheet = clocks.data_sheet(name, Limits(1, 1, 1))
    assert (sheet and sheet["device"]) == device


def test_what_is_wrong_comes_first() -> None:
    wrong = {"operation": "pool", "route": "direct", "order": 2, "backend": "cupy:cuda"}
    wrong |= {"dtype": "float32", "state": "wrong", "worst_error": 1.0, "tolerance": 1e-6}
    wrong |= {"worst_case": "n>d", "reason": "its error is 1"}
    throttled = _found(1.0, cells=[wrong])
    throttled["races"][0]["clocks"] = {"warning": "throttled: thermal"}
    first, second, third = findings.findings(throttled)
    assert "is wrong: its error is 1" in first
    assert "throttled" in second
    assert "roofline" in third
