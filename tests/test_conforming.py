"""What ``check`` rejects ``choose`` does not recommend: one set of examples, judged once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demopool.choosing.conforming import Conformance, cells_of
from demopool.common import places
from demopool.conformance import verdicts
from demopool.conformance.cells import Cell, CellProcess
from demopool.problem.candidates import Candidate
from demopool.problem.cases import Case
from demopool.problem.vocabulary import Descriptor, Dtype, State

PLUGIN = """
from dataclasses import replace
from pathlib import Path
from demopool.implementations.numpy_cpu import SPECIFICATION as BASE

CALLS = Path(__file__).with_name("calls.txt")


def load(device, threads):
    from demopool.implementations.numpy_cpu.implementation import NumpyImplementation

    pool = NumpyImplementation.kernels["pool", "direct"]

    def right_unless_a_row_is_zero(X, a, *, order):
        with CALLS.open("a") as calls:
            calls.write(f"{X.shape}\\n")
        result = pool(X, a, order=order)
        return result + 1 if (X == 0).all(axis=-1).any() else result

    class Careless(NumpyImplementation):
        kernels = {**NumpyImplementation.kernels, ("pool", "direct"): right_unless_a_row_is_zero}
        pools_normalized = False

    return Careless()


kept = tuple(c for c in BASE.capabilities if c.operation in ("pool", "normalize"))
SPECIFICATION = replace(
    BASE, library="careless", capabilities=kept, load=load, recognise=lambda array: None
)
"""

CHOOSE = """
import json, sys, demopool as dp
case = dp.Case("sum", batch=2, n=30, d=8)
found = dp.choose(case, backends=("numpy:cpu", "careless:cpu"), budget=3, threads=1)
print(json.dumps(found.as_result()))
"""
CHECK = """
import json, demopool as dp
cells = dp.check("careless:cpu", operations="pool", dtypes="float32", quick=True)
print(json.dumps([cell.as_row() for cell in cells if cell.order == 2]))
"""
JUDGED = Conformance.refusal  # of races; the other tests do not judge ours
DEMOCRATIC = Case(Descriptor("democratic"), batch=1, n=9, d=5)
NUMPY = Candidate("numpy:cpu", "dense")


def _cell(state: str = "ok", operation: str = "weights", route: str = "dense") -> Cell:
    reason = None if state == "ok" else "value: too far off"
    return Cell(operation, route, 2, "numpy:cpu", "float32", state, 1e-9, 1e-6, "n=1", reason, 0.1)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """Cells that were judged, in a cache of its own; all of them are right."""
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    monkeypatch.setattr(verdicts, "_unwritten", {})
    asked: list[tuple[str, str]] = []

    def judge(self: CellProcess, row: Any, dtype: str, quick: bool, seconds: float) -> Cell:
        assert quick
        asked.append((row.operation, row.route))
        return _cell("ok", row.operation, row.route)

    monkeypatch.setattr(CellProcess, "judge", judge)
    monkeypatch.setattr(Conformance, "refusal", JUDGED)
    return asked


def _refusal(of: Conformance, case: Case = DEMOCRATIC) -> Any:
    return of.refusal(NUMPY, case, lambda what: None)


@pytest.mark.parametrize("save", [True, False])
def test_every_cell_of_a_candidate_is_judged_once(
    judged: list[tuple[str, str]], tmp_path: Path, save: bool
) -> None:
    found = Conformance(1)
    found.save = save
    assert _refusal(found) is None
    assert judged == [("weights", "dense"), ("pool", "direct"), ("normalize", "direct")]
    assert _refusal(Conformance(1)) is None
    assert len(judged) == 3
    assert (tmp_path / "conformance").exists() == save


def test_a_failure_of_all_examples_is_not_cleared_by_the_quick_ones(
    judged: list[tuple[str, str]],
) -> None:
    verdicts.keep(_cell("wrong"), quick=False)
    for retry in (False, True):
        found = Conformance(1)
        found.retry = retry
        state, reason = _refusal(found)
        assert state is State.WRONG
        assert reason == "weights by dense does not conform: value: too far off (on: n=1)"
    verdicts.keep(_cell("ok"), quick=False)
    assert _refusal(Conformance(1)) is None


def test_what_failed_is_judged_again_when_asked_and_not_otherwise(
    judged: list[tuple[str, str]],
) -> None:
    verdicts.keep(_cell("error"), quick=True)
    state, _ = _refusal(Conformance(1))
    assert state is State.ERROR
    assert not judged
    again = Conformance(1)
    again.retry = True
    assert _refusal(again) is None
    assert judged[0] == ("weights", "dense")
    assert _refusal(Conformance(1)) is None


def test_a_lack_of_time_is_no_verdict_that_lasts(judged: list[tuple[str, str]]) -> None:
    verdicts.keep(_cell("timeout"), quick=True)
    assert _refusal(Conformance(1)) is None
    assert len(judged) == 3


def test_a_broken_file_of_verdicts_is_judged_anew(
    judged: list[tuple[str, str]], tmp_path: Path
) -> None:
    verdicts.keep(_cell("wrong"), quick=True)
    (file,) = (tmp_path / "conformance").iterdir()
    for text in (file.read_text()[:-20], "[]\n{}\nnull\n", '{"schema": 1, "state": "bad"}\n'):
        file.write_text(text)
        judged.clear()
        assert _refusal(Conformance(1)) is None
        assert len(judged) == 3


def test_the_cells_of_a_candidate_are_those_that_its_descriptor_runs() -> None:
    half = Case(Descriptor("sketched-democratic"), batch=1, n=9, d=5, dtype=Dtype("float16"))
    assert cells_of(Candidate("numpy:cpu", "dense+fft"), half) == [
        ("weights", "dense", 2, "float16"),
        ("pool_sketch", "fft", 2, "float16"),
        ("normalize", "direct", 1, "float32"),
    ]


def test_what_check_rejects_choose_does_not_recommend_and_neither_judges_twice(
    tmp_path: Path,
) -> None:
    (tmp_path / "careless.py").write_text(PLUGIN)
    information = tmp_path / "careless-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: careless\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[demopool.backends]\ncareless = careless:SPECIFICATION\n"
    )
    environment = {
        **os.environ,
        "DEMOPOOL_REQUIRE_BACKENDS": "",
        "PYTHONPATH": str(tmp_path),
        "DEMOPOOL_CACHE_DIR": str(tmp_path / "cache"),
    }

    def run(code: str) -> Any:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    (cell,) = run(CHECK)
    assert cell["state"] == "wrong"
    (tmp_path / "calls.txt").unlink()
    found = run(CHOOSE)
    rows = {row["backend"]: row for row in found["candidates"]}
    assert rows["careless:cpu"]["state"] == "wrong"
    assert "pool by direct does not conform" in rows["careless:cpu"]["reason"]
    assert "on: zero rows" in rows["careless:cpu"]["reason"]
    assert found["verdict"]["backend"] == "numpy:cpu"
    assert not (tmp_path / "calls.txt").exists()  # no kernel of it has run again
