"""``demopool new-backend`` and ``demopool.testing``: what an author begins with, end to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from effort import cases

from demopool import reference
from demopool.commands.new_backend import write_distribution
from demopool.conformance import features, tolerance
from demopool.conformance.examples import ask, examples
from demopool.errors import InvalidInput


def _run(*command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("DEMOPOOL_")}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**ours, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distribution as the command makes it."""
    folder = tmp_path_factory.mktemp("author")
    done = _run("demopool", "new-backend", "sample", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "demopool check sample:cpu" in done.stdout
    return folder / "demopool-sample"


@pytest.fixture(scope="module")
def site(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed: from its folder alone, without the network."""
    target = tmp_path_factory.mktemp("site")
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    done = _run("pip", "install", "--quiet", *offline, "--target", str(target), ".", folder=made)
    assert done.returncode == 0, done.stderr
    return target


def test_the_made_backend_conforms_as_it_comes(site: Path) -> None:
    quick = cases((), ("--quick",))
    done = _run("demopool", "check", "sample:cpu", *quick, folder=site, PYTHONPATH=str(site))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 cells conform to the reference." in done.stdout


def test_its_own_tests_pass_and_have_ids_one_can_read(made: Path, site: Path) -> None:
    some = cases((), ("-k", "normalize or pool-direct-float32"))
    path = {"PYTHONPATH": str(site), "DEMOPOOL_REQUIRE_BACKENDS": "sample:cpu"}
    done = _run("pytest", "-v", "-p", "no:cacheprovider", *some, folder=made, **path)
    assert done.returncode == 0, done.stdout + done.stderr
    for cell in ("pool-direct-float32", "normalize-direct-order1-float64"):
        assert f"test_conformance.py::test_cell[{cell}] " in done.stdout


WRONG = """
from dataclasses import replace

from demopool_sample import SPECIFICATION as RIGHT
from demopool_sample.implementation import ArrayImplementation


class Wrong(ArrayImplementation):
    kernels = {**ArrayImplementation.kernels}
    kernels["pool", "direct"] = lambda X, a, order: 1.001 * RIGHT_POOL(X, a, order=order)
    kernels["normalize", "direct"] = lambda v, **options: __import__("os")._exit(3)


RIGHT_POOL = ArrayImplementation.kernels["pool", "direct"]
SPECIFICATION = replace(RIGHT, library="wrong", load=lambda device, threads: Wrong())
ABSENT = replace(SPECIFICATION, library="absent", probe=lambda device: __import__("gone"))
"""


def test_a_cell_that_fails_shows_error_and_tolerance_side_by_side(
    site: Path, tmp_path: Path
) -> None:
    """And the next cell is judged, although a kernel ended the process."""
    (tmp_path / "wrong_backend.py").write_text(WRONG)
    information = tmp_path / "wrong_backend-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[demopool.backends]\nwrong = wrong_backend:SPECIFICATION\nabsent = wrong_backend:ABSENT\n"
    )
    (tmp_path / "test_wrong.py").write_text(
        "from demopool.testing import conformance_cells as cells\n"
        "one = dict(dtypes='float32', quick=True)\n"
        "test_wrong = cells('wrong:cpu', operations=('pool', 'normalize', 'weights'), **one)\n"
        "test_absent = cells('absent:cpu', operations='pool', **one)\n"
    )
    path = os.pathsep.join((str(tmp_path), str(site)))
    done = _run(
        *("pytest", "-rs", "-p", "no:cacheprovider", "test_wrong.py"),
        folder=tmp_path,
        PYTHONPATH=path,
    )
    # Those of weights fail too: a law of theirs describes, which needs the other two.
    assert "6 failed, 2 skipped" in done.stdout, done.stdout + done.stderr
    assert "wrong:cpu pool by direct, order 2, float32 is wrong on: n=1" in done.stdout
    (line, *_) = (line for line in done.stdout.splitlines() if "    tolerance " in line)
    assert "error 1.00e-03" in line
    assert "reproduce('wrong:cpu', 'pool', 'direct', dtype='float32'," in done.stdout
    assert "exited with code 3" in done.stdout
    assert "absent:cpu: its probe raised ModuleNotFoundError" in done.stdout
    required = _run(
        *("pytest", "-p", "no:cacheprovider", "test_wrong.py", "-k", "absent"),
        folder=tmp_path,
        PYTHONPATH=path,
        DEMOPOOL_REQUIRE_BACKENDS="absent:cpu",
    )
    assert "2 failed" in required.stdout, required.stdout
    assert "absent:cpu is required" in required.stdout


def test_what_is_made_is_formatted_and_without_lint(made: Path) -> None:
    pytest.importorskip("ruff")
    for check in (("format", "--check"), ("check", "--select", "E,F,W,B,UP,SIM")):
        done = _run("ruff", *check, "--isolated", "--line-length", "100", ".", folder=made)
        assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_overwritten_and_nothing_is_left_half(tmp_path: Path) -> None:
    made = write_distribution("sample", tmp_path)
    mine = made / "README.md"
    mine.write_text("mine")
    with pytest.raises(InvalidInput, match="is there already, and nothing is overwritten"):
        write_distribution("sample", tmp_path)
    assert mine.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["demopool-sample"]
    with pytest.raises(InvalidInput, match="must be a folder"):
        write_distribution("sample", tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["", "My-lib", "../up", "a b", "9lives", "class", "x" * 41, "é"])
def test_a_bad_name_is_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"NAME must be the library as it is imported.*; got"):
        write_distribution(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_one_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="numpy is one of its own"):
        write_distribution("numpy", tmp_path)


# --- the kernels are in the style of the array API: any library that has it can take them over ---


@pytest.fixture(scope="module")
def strict(made: Path) -> ModuleType:
    """The kernels on a library that has the standard and nothing else."""
    pytest.importorskip("array_api_strict")
    text = (made / "src" / "demopool_sample" / "kernels.py").read_text()
    module = ModuleType("strict_kernels")
    exec(text.replace("import numpy as xp", "import array_api_strict as xp"), module.__dict__)
    assert module.xp.__name__ == "array_api_strict"
    return module


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("operation", "order"), [("weights", 1), ("weights", 2), ("pool", 1), ("pool", 2)]
)
def test_kernels_need_the_standard_only(
    strict: ModuleType, operation: str, order: int, dtype: str
) -> None:
    route = "dense" if operation == "weights" else "direct"
    kernel: Any = getattr(strict, operation)
    for example in examples(operation, route, quick=True):
        asked = ask(example, operation, order, dtype)
        if example.features.startswith("VGG"):
            continue
        arrays = [None if a is None else strict.xp.asarray(a.copy()) for a in asked.arrays.values()]
        found = np.asarray(kernel(*arrays, **asked.options)).astype(np.float64)
        assert found.shape == asked.expected.shape
        last = tuple(range(-asked.axes, 0))
        size = np.abs(asked.expected)
        scale = size if asked.entrywise else size.max(axis=last, keepdims=True, initial=0.0)
        allowed = np.asarray(asked.allowed(route))
        allowed = allowed.reshape(allowed.shape + (1,) * (asked.expected.ndim - allowed.ndim))
        assert (np.abs(found - asked.expected) <= allowed * scale).all(), example.name


@pytest.mark.parametrize("kind", ["signed-sqrt-l2", "l2", "none"])
def test_the_norm_needs_the_standard_only(strict: ModuleType, kind: str) -> None:
    v = features.make("zero rows", "float32") * np.float32(1e12)
    given = strict.xp.asarray(v.copy())
    found = np.asarray(strict.normalize(given, axes=1, kind=kind, overwrite=False))
    expected = reference.normalize(v, axes=1, kind=kind)
    allowed = tolerance.for_normalize("float32", v.shape[-1])
    np.testing.assert_array_less(np.abs(found - expected), allowed * np.abs(expected).max() + 1e-30)
