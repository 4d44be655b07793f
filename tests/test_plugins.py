"""Plug-ins: backends that other distributions bring, right ones and all kinds of wrong ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import demopool as dp
from demopool.contract.support_matrix import BEGIN, END
from demopool.errors import InvalidInput


def _python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env={**environment} or None,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PLUGIN = """
from dataclasses import replace

import numpy as np
from demopool.contract import ArrayFacts, Capability, Implementation, Probe, Specification
from demopool.contract import State


class Plain(Implementation):
    kernels = {("pool", "direct"): lambda X, a, order: np.einsum(
        "...n,...ni,...nj->...ij", np.ones(X.shape[:-1], X.dtype) if a is None else a, X, X)}

    def inspect(self, array):
        return ArrayFacts(array.shape, array.dtype.name, "cpu")

    def asarray(self, array):
        return array

    def to_numpy(self, array):
        return array

    def cast(self, array, dtype):
        return array.astype(dtype)

    def row_magnitudes(self, X):
        return abs(X).max(-1)


SPECIFICATION = Specification(
    library="plain",
    devices=("cpu",),
    probe=lambda device: Probe(State.OK, device="a processor"),
    capabilities=(Capability("pool", "direct", (2,), ("float64",)),),
    load=lambda device, threads: Plain(),
    recognise=lambda array: None,
    contract=1,
)
NOT_ONE = "a string"


def fail(*arguments):
    raise ImportError("no [such] library")


class Wrong(Plain):
    kernels = {("pool", "direct"): lambda X, a, order: 1e-30 + X.swapaxes(-1, -2) @ X}


POOL = (Capability("pool", "direct", (2,), ("float64",)),)
TYPO = (Capability("pol", "x"),)


def there(device):
    return Probe(State.OK)


BROKEN = Specification("broken", ("cpu",), there, POOL, fail, fail, 1)
ODD = Specification("odd", ("cpu",), there, TYPO, fail, fail, 1)
WRONG = replace(SPECIFICATION, library="wrong", load=lambda device, threads: Wrong())
"""


PROBE = """probe=lambda device: Probe(State.OK, device="a processor"),"""


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder with an installed distribution that brings a good and two bad backends."""
    (tmp_path / "plain_backend.py").write_text(PLUGIN)
    information = tmp_path / "plain_backend-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: plain-backend\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(
        "[demopool.backends]\nplain = plain_backend:SPECIFICATION\n"
        "missing = no_such_module:SPECIFICATION\nstring = plain_backend:NOT_ONE\n"
        "broken = plain_backend:BROKEN\nodd = plain_backend:ODD\n"
    )
    return tmp_path


def test_a_plugin_is_listed_checked_and_used_like_ours(plugins: Path) -> None:
    code = """
        import numpy as np, demopool as dp
        listed = {row["backend"]: row for row in dp.backends()}
        assert listed["plain:cpu"]["state"] == "ok", listed
        assert listed["missing:unknown"]["state"] == "error"
        assert "no_such_module" in listed["missing:unknown"]["reason"]
        assert "Specification" in listed["string:unknown"]["reason"]
        assert "no route x" in listed["odd:unknown"]["reason"]
        assert {c.state for c in dp.check(["broken:cpu"]) if c.dtype} == {"error"}
        assert dp.describe([[1.0, 2.0], [3.0, 4.0]], "sum").shape == (4,)
        cells = dp.check(["plain:cpu"], quick=True)
        states = {(c.operation, c.order, c.dtype): c.state for c in cells}
        assert states["pool", 2, "float64"] == "ok", cells
        assert states["pool", 1, None] == "unsupported"
        assert dp.backend("plain:cpu").pool(np.ones((3, 2))).tolist() == [[3.0] * 2] * 2
    """
    _python(code, PYTHONPATH=str(plugins), PATH="/usr/bin")


def test_a_plugin_is_loaded_with_the_number_of_threads(plugins: Path) -> None:
    file = plugins / "plain_backend.py"
    keeping = "load=lambda device, threads: setattr(Plain, 'given', (device, threads)) or Plain(),"
    file.write_text(file.read_text().replace("load=lambda device, threads: Plain(),", keeping))
    code = "import demopool as dp; print(dp.backend('plain:cpu').implementation.given)"
    given = _python(code, PYTHONPATH=str(plugins), PATH="/usr/bin", OMP_NUM_THREADS="1")
    assert given.strip() == "('cpu', 1)"


FAULTY = """
from dataclasses import replace
from plain_backend import POOL, Plain, SPECIFICATION
from demopool.contract import ArrayFacts, Capability, Specification


class Elsewhere(Plain):
    def inspect(self, array):
        return ArrayFacts(array.shape, array.dtype.name, "tpu:0")


class Looking(Plain):
    def looks_ordinary(self, X, low, high):
        return False


LISTED = (*POOL, Capability("weights", "dense", (2,), ("float64",)))
DTYPE = replace(
    SPECIFICATION, library="dtype", capabilities=(Capability("pool", "direct", (2,), ("double",)),)
)
PROBE = replace(SPECIFICATION, library="probe", probe=lambda device: True)
KERNEL = replace(SPECIFICATION, library="kernel", capabilities=LISTED)
LOADED = replace(SPECIFICATION, library="loaded", load=lambda device, threads: Plain)
PLACE = replace(SPECIFICATION, library="place", load=lambda device, threads: Elsewhere())
LOOK = replace(SPECIFICATION, library="look", load=lambda device, threads: Looking())
OLD = replace(SPECIFICATION, library="old", contract=0)
ALONE = replace(SPECIFICATION, library="alone", load=lambda device: Plain())
EACH = replace(SPECIFICATION, library="each", compiles_per="call")
FIELDS = ("library", "devices", "probe", "capabilities", "load", "recognise")
KNOWN = {name: getattr(SPECIFICATION, name) for name in FIELDS}


def __getattr__(name):
    if name == "NONE":  # made when the entry point is loaded, and fails there
        return Specification(**KNOWN)
    raise AttributeError(name)
"""


def test_the_identity_of_a_plugin_is_its_file_and_the_versions_that_its_probe_reports(
    plugins: Path,
) -> None:
    code = """
        from demopool.measurement.code_identity import code_key
        print(code_key("plain:cpu"))
    """

    def key() -> str:
        return _python(code, PYTHONPATH=str(plugins), PATH="/usr/bin")

    file = plugins / "plain_backend.py"
    before, text = key(), file.read_text()
    assert key() == before
    file.write_text(text + "# changed\n")
    assert key() != before
    (plugins / "version.txt").write_text("1")
    probed = "probe=lambda device: Probe(State.OK, versions={'x': open(VERSION).read()}),"
    named = f"VERSION = {str(plugins / 'version.txt')!r}\n"
    file.write_text(named + text.replace(PROBE, probed))
    versioned = key()
    (plugins / "version.txt").write_text("2")
    assert key() != versioned


def test_the_matrix_shows_plugins_and_the_documentation_does_not(plugins: Path) -> None:
    command = [sys.executable, "-m", "demopool", "backends", "--matrix"]
    environment = {"PYTHONPATH": str(plugins), "PATH": "/usr/bin"}
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "plain:cpu" in shown.stdout.splitlines()[0]
    page = plugins / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    subprocess.run([*command, "--write", str(page)], check=True, env=environment)
    assert "numpy:cpu" in page.read_text()
    assert "plain:cpu" not in page.read_text()


def test_every_mistake_of_a_plugin_is_a_sentence(plugins: Path) -> None:
    (plugins / "faulty.py").write_text(FAULTY)
    names = ("dtype", "probe", "kernel", "loaded", "place", "look", "old", "alone", "each", "none")
    lines = (f"{name} = faulty:{name.upper()}" for name in names)
    entry = plugins / "plain_backend-1.0.dist-info" / "entry_points.txt"
    entry.write_text("\n".join(["[demopool.backends]", *lines]))
    code = """
        import demopool as dp
        from demopool.errors import BackendUnavailable

        listed = {row["backend"]: row["reason"] for row in dp.backends()}
        print(listed["dtype:unknown"], listed["probe:cpu"], listed["old:unknown"], sep="\\n")
        print(listed["alone:unknown"], listed["each:unknown"], listed["none:unknown"], sep="\\n")
        for backend in ("kernel:cpu", "loaded:cpu", "look:cpu"):
            try:
                dp.backend(backend)
            except BackendUnavailable as problem:
                print(problem.reason)
        (cell,) = (c for c in dp.check("place:cpu", quick=True) if c.dtype)
        print(cell.state, cell.reason)
    """
    said = _python(code, PYTHONPATH=str(plugins), PATH="/usr/bin").splitlines()
    expected = (
        "dtype must be one of float16, .*; got 'double'",
        "its probe raised TypeError: a bool instead of a demopool.contract.Probe",
        "it was written for contract 0, this is 1",
        r"load must take two arguments, load\(device, threads\)",
        "compiles_per must be 'shape', 'dtype' or None; got 'call'",
        "missing 1 required positional argument: 'contract'",
        "it lists weights by dense but has no kernel for it",
        "load returned a .*, not a demopool.contract.Implementation",
        r"looks_ordinary must take looks_ordinary\(X, low, high, \*, zero_rows=False\)",
        "wrong device: inspect says tpu:0, but this is place:cpu",
    )
    assert len(said) == len(expected), said
    for line, pattern in zip(said, expected, strict=True):
        assert re.search(pattern, line), line


def test_a_wrong_plugin_is_reported_in_strict_json_and_as_a_table(plugins: Path) -> None:
    entry = plugins / "plain_backend-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[demopool.backends]\nwrong = plain_backend:WRONG\n")
    environment = {"PYTHONPATH": str(plugins), "PATH": "/usr/bin"}
    command = [sys.executable, "-m", "demopool", "check", "wrong:cpu", "--quick", "--worst"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert told.returncode == 1, told.stderr
    assert "value: error" in told.stdout
    assert "0 of 1 cells conform" in told.stdout
    command[-1] = "--json"
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert told.returncode == 1
    states = [row["state"] for row in json.loads(told.stdout)["rows"] if row["dtype"]]
    assert states == ["wrong"]


UNRULY = """
import os, signal, sys, time
from dataclasses import replace
from demopool.implementations.numpy_cpu import SPECIFICATION as BASE


def unruly(name, pool):
    def load(device, threads):
        from demopool.implementations.numpy_cpu.implementation import NumpyImplementation

        class Unruly(NumpyImplementation):
            kernels = {**NumpyImplementation.kernels, ("pool", "direct"): pool}

        return Unruly()

    kept = tuple(c for c in BASE.capabilities if c.operation in ("pool", "normalize"))
    kept = tuple(replace(c, dtypes=("float32",)) for c in kept)
    return replace(
        BASE, library=name, capabilities=kept, load=load, recognise=lambda array: None
    )


LEAVES = unruly("leaves", lambda X, a, order: os._exit(0))
EXITS = unruly("exits", lambda X, a, order: sys.exit())
CRASHES = unruly("crashes", lambda X, a, order: os.kill(os.getpid(), signal.SIGSEGV))
HANGS = unruly("hangs", lambda X, a, order: time.sleep(1000))
LOST = replace(LEAVES, library="lost", load=lambda device, threads: os._exit(0))
"""


def test_a_kernel_that_exits_crashes_or_hangs_fails_its_cell_and_the_next_is_judged(
    plugins: Path,
) -> None:
    (plugins / "unruly_backends.py").write_text(UNRULY)
    entry = plugins / "plain_backend-1.0.dist-info" / "entry_points.txt"
    names = ("leaves", "exits", "crashes", "hangs", "lost")
    lines = (f"{name} = unruly_backends:{name.upper()}" for name in names)
    entry.write_text("\n".join(["[demopool.backends]", *lines]))
    written = plugins / "cells.json"
    told = subprocess.run(
        [
            *(sys.executable, "-m", "demopool", "check", *(f"{name}:cpu" for name in names)),
            *("--quick", "--seconds", "10", "--output", str(written)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(plugins), "PATH": "/usr/bin"},
    )
    assert told.returncode == 1, told.stderr
    rows = [row for row in json.loads(written.read_text())["rows"] if row["dtype"]]
    pooled = {r["backend"]: r for r in rows if (r["operation"], r["order"]) == ("pool", 2)}
    expected = {
        "leaves:cpu": ("error", r"exited with code 0"),
        "exits:cpu": ("error", r"raised: SystemExit, at .*unruly_backends\.py:\d+ in"),
        "crashes:cpu": ("error", r"Segmentation fault.* at .*unruly_backends\.py:\d+ in"),
        "hangs:cpu": ("timeout", r"no answer within 10 s, at .*unruly_backends\.py:\d+ in"),
        "lost:cpu": ("error", r"exited with code 0 in loading its library"),
    }
    for backend, (state, reason) in expected.items():
        assert pooled[backend]["state"] == state, pooled[backend]
        assert re.search(reason, pooled[backend]["reason"]), pooled[backend]
        assert f"{backend} pool by direct, order 2, float32: {state}" in told.stderr
    others = [r for r in rows if r["operation"] == "normalize"]
    assert {r["state"] for r in others if r["backend"] != "lost:cpu"} == {"ok"}


def test_check_can_be_narrowed() -> None:
    cells = dp.check("numpy:cpu", operations="weights", routes="dense", dtypes="float32")
    assert [(c.route, c.order, c.dtype) for c in cells] == [
        ("dense", 1, "float32"),
        ("dense", 2, "float32"),
    ]
    with pytest.raises(InvalidInput, match=r"route must be one of .*dense.*; got 'dens'"):
        dp.check("numpy:cpu", routes="dens")
    with pytest.raises(InvalidInput, match="Nothing is left to check"):
        dp.check("numpy:cpu", routes="dense", dtypes="bfloat16")
