"""A machine's own list of plug-ins: asv measures them, and what it has for all stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import plugins
from demopool import results
from demopool.problem.candidates import Candidate
from demopool.results import asv_files
from demopool.results.history import points

ROOT = Path(__file__).parent.parent

LISTED = """
import json
from benchmarks import profiles, plugins

def parameters(module):
    return {
        f"{module.__name__}.{name}.{method}": [list(map(str, p)) for p in found.params]
        for name, made in vars(module).items() if isinstance(made, type) and name[0] != "_"
        for method, found in vars(made).items() if hasattr(found, "params")
    }

from benchmarks import (
    plugins_descriptors, plugins_operations, plugins_scaling_d, plugins_scaling_n
)
ours = {k: v for module in profiles.MODULES for k, v in parameters(module).items()}
extra = (plugins_descriptors, plugins_operations, plugins_scaling_d, plugins_scaling_n)
theirs = {k: v for module in extra for k, v in parameters(module).items()}
backends = ("numpy:cpu", *plugins.listed())
cells = {p.title: sorted(p.cells) for p in profiles.slices("fast", backends)}
names = [profiles.cell_name(*cell) for found in cells.values() for cell in found]
print(json.dumps([ours, theirs, cells, names]))
"""


def _listed(variable: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", LISTED],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, plugins.VARIABLE: variable},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_list_adds_benchmarks_and_changes_none() -> None:
    ours, none, before, _ = _listed("")
    same, theirs, after, names = _listed("mine:cpu, other:npu,numpy:cpu")
    assert same == ours
    assert none == {}
    assert {title: after[title] for title in before} == before
    name = "benchmarks.plugins_descriptors.Democratic.time_call"
    candidates, cases = theirs[name]
    assert candidates == [
        f"{b}/{r}" for b in ("mine:cpu", "other:npu") for r in ("dense", "matrix-free")
    ]
    assert cases == ours["benchmarks.descriptors.Democratic.time_call"][1]
    # Memory of a device is asked of those that have one.
    on_devices = theirs["benchmarks.plugins_scaling_n.Sum.track_peak_device_bytes"][0]
    assert on_devices == ["other:npu/direct"]
    added = [cell for title in after.keys() - before.keys() for cell in after[title]]
    assert {Candidate.parse(cell[1]).backend for cell in added} == {"mine:cpu", "other:npu"}
    assert "plugins_scaling_n.Democratic.time_call('mine:cpu/dense', 16)" in names


def _store(folder: Path, known: list[str]) -> Path:
    """Results of asv with a plug-in, and the list of benchmarks of the last machine that ran it."""
    columns = ["result", "params", "version"]
    cells = [["'mine:cpu/dense'"], ["'vgg-b1'"]]
    sizes = [["'mine:cpu/dense'"], ["16"]]
    base = [["'baseline/plain'"], ["'vgg-b1'"]]
    stored = {
        "version": asv_files.RESULT_VERSION,
        "commit_hash": "0123456789abcdef",
        "env_name": "borrowed-py3.11-OPENBLAS_NUM_THREADS2",
        "date": 1.7e12,
        "params": {"machine": "host"},
        "python": "3.11",
        "result_columns": columns,
        "results": {
            "descriptors.Democratic.time_call": [[2.0], base, "2"],
            "plugins_descriptors.Democratic.time_call": [[1.0], cells, "2"],
            "plugins_scaling_n.Democratic.time_call": [[0.5], sizes, "2"],
            "plugins_descriptors.Sum.time_call": [[1.0], cells, "1"],
            "plugins_descriptors.Gone.time_call": [[1.0], cells, "2"],
        },
    }
    machine = folder / "host"
    machine.mkdir(parents=True)
    (machine / "01234567-borrowed-py3.11.json").write_text(json.dumps(stored))
    entry = {"unit": "seconds", "param_names": ["candidate", "case"], "version": "2"}
    benchmarks = dict.fromkeys(known, entry)
    benchmarks["scaling_n.Democratic.time_call"] = {**entry, "param_names": ["candidate", "n"]}
    (folder / "benchmarks.json").write_text(json.dumps(benchmarks))
    return folder


def test_results_of_a_plugin_are_read_beside_the_others_by_every_machine(tmp_path: Path) -> None:
    """Also where another machine, which does not list it, was the last to write its benchmarks."""
    names = [f"descriptors.{name}.time_call" for name in ("Democratic", "Sum")]
    frame = results.read(_store(tmp_path, names))
    assert frame.attrs["stale"] == 2  # of an older version, and of a benchmark that is gone
    rows = {row.benchmark: row for row in frame.itertuples()}
    plugin, scaled = (
        rows[f"plugins_{m}.Democratic.time_call"] for m in ("descriptors", "scaling_n")
    )
    for row in (plugin, scaled):
        assert (row.kind, row.subject, row.measure) == ("descriptor", "democratic", "call_s")
        assert (row.backend, row.route, row.unit) == ("mine:cpu", "dense", "seconds")
    assert plugin.case == rows["descriptors.Democratic.time_call"].case == "vgg-b1"
    assert scaled.n == 16
    found = {points.beside(one) for one in points.series(frame) if one.case == "vgg-b1"}
    assert len(found) == 1  # the baseline is that of the others
