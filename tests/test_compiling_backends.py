"""Libraries that compile when they are first called, for every shape or once: how they compete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = """
import os, time
from dataclasses import replace
from demopool.implementations.numpy_cpu import SPECIFICATION as BASE

COMPILATION = float(os.environ.get("COMPILATION", "2.5"))  # longer than a first call may take


def compiled(name, per):
    def load(device, threads):
        from demopool.implementations.numpy_cpu.implementation import NumpyImplementation

        pool, seen = NumpyImplementation.kernels["pool", "direct"], set()

        def slow_at_first(X, a, **options):
            key = X.shape if per == "shape" else X.dtype
            if key not in seen:
                seen.add(key)
                time.sleep(COMPILATION)
            return pool(X, a, **options)

        class Compiled(NumpyImplementation):
            kernels = {**NumpyImplementation.kernels, ("pool", "direct"): slow_at_first}

        return Compiled()

    kept = tuple(c for c in BASE.capabilities if c.operation in ("pool", "normalize"))
    kept = tuple(replace(c, dtypes=("float32",)) for c in kept)
    return replace(
        BASE,
        library=name,
        capabilities=kept,
        load=load,
        recognise=lambda array: None,
        compiles_per=per,
    )


SHAPED = compiled("shaped", "shape")
TYPED = compiled("typed", "dtype")
"""

RACE = """
import json, demopool as dp
case = dp.Case("sum", batch=1, n=30, d=8)
names = ("numpy:cpu", "shaped:cpu", "typed:cpu")
found = dp.choose(case, backends=names, budget=4, threads=1)
print(found)
print(json.dumps(found.as_result()))
"""
EXPLAINED = """
import json, demopool as dp
for n in (30, 31):
    print(json.dumps(dp.explain((1, n, 8), "sum").as_result()["options"]))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of commands that know the plug-in, with a cache of their own."""
    (tmp_path / "compiling.py").write_text(PLUGIN)
    information = tmp_path / "compiling-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: compiling\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[demopool.backends]\nshaped = compiling:SHAPED\ntyped = compiling:TYPED\n"
    )
    return {
        **os.environ,
        "DEMOPOOL_REQUIRE_BACKENDS": "",
        "PYTHONPATH": str(tmp_path),
        "DEMOPOOL_CACHE_DIR": str(tmp_path / "cache"),
    }


def _python(environment: dict[str, str], code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_compilation_is_timed_apart_and_auto_takes_no_new_shape_to_it(
    environment: dict[str, str],
) -> None:
    told, _, found = _python(environment, RACE).rpartition("\n{")
    result = json.loads("{" + found)
    rows: dict[str, dict[str, Any]] = {row["backend"]: row for row in result["candidates"]}
    assert {row["state"] for row in rows.values()} == {"ok"}, rows
    for backend, per in (("shaped:cpu", "shape"), ("typed:cpu", "dtype"), ("numpy:cpu", None)):
        row = rows[backend]
        assert row["compiles_per"] == per
        assert (row["compile_s"] >= 2.4) == (per is not None), row
        assert row["first_call_s"] >= row["compile_s"]
        assert row["median_s"] < 2.4  # an ordinary call
    assert result["setup_s"] >= 5  # outside the budget
    assert re.search(r"shaped:cpu/direct by 2\.\d+ s for every new shape", told)
    assert re.search(r"typed:cpu/direct by 2\.\d+ s for a dtype, in a process", told)
    measured, other = (
        {option["backend"]: option for option in json.loads(line)}
        for line in _python(environment, EXPLAINED).splitlines()
    )
    assert measured["shaped:cpu"]["state"] == "ok"
    assert other["shaped:cpu"]["state"] == "unsupported"
    assert "compiles for every new shape" in other["shaped:cpu"]["reason"]
    assert other["typed:cpu"]["state"] == "ok"


def test_a_cell_shows_that_it_compiles(environment: dict[str, str], tmp_path: Path) -> None:
    written = tmp_path / "cells.json"
    code = f"""
import json, sys, demopool as dp
from demopool.commands.check import _compilations, _tell
from pathlib import Path

sys.stderr = sys.stdout
cells = [c for c in dp.check("shaped:cpu", operations="pool", quick=True) if c.dtype]
Path({str(written)!r}).write_text(json.dumps([c.as_row() for c in cells]))
for cell in cells:
    _tell(cell)
print(*_compilations(cells))
"""
    told = _python({**environment, "COMPILATION": "0.2"}, code)
    for cell in json.loads(written.read_text()):
        # The second too, of the same shapes: what was compiled for the first is gone.
        assert 0.15 < cell["compile_s"] <= cell["first_call_s"]
    assert re.search(r"order 1, float32: .* \([\d.]+ s, 0\.\d s to compile before\)", told)
    assert "shaped:cpu compiles, as for every new shape: 2 first calls took up to 0." in told
