"""What README and docs say is so: examples run, tables are those of the code, pages build."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

pytest.importorskip("asv")
pytest.importorskip("torch")

import asv_project
import documentation
from documentation import NOT_EXECUTED, PAGES, ROOT, blocks, console_commands

from demopool.common import places
from demopool.contract import capabilities, registry
from demopool.contract.support_matrix import insert_matrix, markdown_matrix
from demopool.problem.vocabulary import BACKENDS, State

DOCS = ROOT / "docs"
README = ROOT / "README.md"
JSON = DOCS / "reference" / "json.md"
"""Run by a test of its own, which needs what its commands print."""
WITH_EXAMPLES = [
    page
    for page in PAGES
    if page != JSON and any(b.language in ("python", "console") for b in blocks(page))
]
WITH_HISTORY = ("timing-history", "history-in-ci", "read-results", "json")
"""Pages whose examples need results over commits."""
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}

Ran = Callable[[Path], dict[str, str]]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


@pytest.fixture(scope="session")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Runs a page, once a session: the output of each of its commands.

    Pages run two at a time: nothing they measure is judged.
    """
    alone, temporary = Lock(), tmp_path_factory.getbasetemp()
    with ThreadPoolExecutor(max_workers=2) as pool:

        @cache
        def start(page: Path) -> Future[dict[str, str]]:
            folder = tmp_path_factory.mktemp(page.stem) / "clone"
            return pool.submit(_run, page, folder, temporary / "toy", alone)

        if "PYTEST_XDIST_WORKER" not in os.environ:
            for item in request.session.items:
                parameters = item.callspec.params if hasattr(item, "callspec") else {}
                if item.path == Path(__file__) and "page" in parameters:
                    start(parameters["page"])
        yield lambda page: start(page).result()


def _run(page: Path, folder: Path, toy: Path, alone: Lock) -> dict[str, str]:
    """In a folder that has what a reader's clone has, as far as examples need it."""
    if page.stem in WITH_HISTORY:
        with alone:
            project = asv_project.measured(toy)
        shutil.copytree(project.folder, folder, ignore=shutil.ignore_patterns("env"))
    else:
        folder.mkdir()
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "site").mkdir()  # for what the page installs; only a folder is searched
    command = [sys.executable, documentation.__file__, page]
    done = subprocess.run(
        command, cwd=folder, env=_environment(folder), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    outputs: dict[str, str] = json.loads((folder / "outputs.json").read_text())
    return outputs


def _environment(folder: Path) -> dict[str, str]:
    """Nothing was measured before, one thread, and what the page installs is found."""
    ours = ("COLUMNS", "FORCE_COLOR", registry.REQUIRED_VARIABLE)
    scripts = sysconfig.get_path("scripts")
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
        "PYTHONPATH": str(folder / "site"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        places.VARIABLE: str(folder.parent / "cache"),
    }


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=_name)
def test_every_example_of_a_page_runs(page: Path, ran: Ran) -> None:
    ran(page)


def test_what_is_not_executed_is_still_in_a_page() -> None:
    shown = [command for page in PAGES for command in console_commands(page)]
    gone = [start for start in NOT_EXECUTED if not any(c.is_like(start) for c in shown)]
    assert gone == []


def test_no_fence_hides_an_example_from_this_test() -> None:
    """Shell sessions and Python under another name, or none, would not be run."""
    found = {b.language for page in PAGES for b in blocks(page)}
    of_sphinx = {"{command-help}", "{eval-rst}", "{glossary}", "{image}", "{toctree}"}
    assert found == {"python", "console", "text"} | of_sphinx


@pytest.mark.parametrize(
    "target", sorted({c.text for p in PAGES for c in console_commands(p) if c.text[:5] == "make "})
)
def test_a_target_of_make_that_is_shown_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *target.split()[1:]], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if target == "make choose":  # which is run as that command
        assert "-m demopool choose\n" in done.stdout


# --- tables ---


def _rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table."""
    for line in text.splitlines():
        if line.startswith("|") and not set(line) <= set("|- "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_backends_at_a_glance_are_those_of_the_capability_table() -> None:
    shown = {cells[0].strip("`"): cells for cells in _rows(README.read_text())}
    found = {name: shown[name] for name in shown if name in BACKENDS}
    assert list(found) == list(BACKENDS)
    for name, (_, _, dtypes, routes, *_) in found.items():
        rows = capabilities.table((name,))
        has = [row for row in rows if row.state is State.OK]
        known = {dtype for row in has for dtype in row.dtypes}
        assert dtypes == " ".join(short for dtype, short in SHORT.items() if dtype in known), name
        count, total = ({(row.operation, row.route) for row in each} for each in (has, rows))
        assert routes == f"{len(count)} of {len(total)}", name


def test_the_support_matrix_is_not_stale() -> None:
    text = (DOCS / "reference" / "support-matrix.md").read_text()
    assert insert_matrix(text, markdown_matrix()) == text, "run `make matrix`"


def test_every_route_is_explained() -> None:
    _, _, text = (DOCS / "reference" / "support-matrix.md").read_text().partition("## Routes")
    explained = {name for cells in _rows(text) for name in re.findall("`(.+?)`", cells[0])}
    rows = capabilities.table(BACKENDS)
    assert explained == {part for row in rows for part in row.route.split("+")}


def test_every_variable_of_ours_is_listed_and_no_other() -> None:
    folders = ("src", "implementations", "benchmarks", "tools")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    files += [ROOT / "Makefile", ROOT / "tests" / "effort.py"]
    pattern = re.compile(r"\b_?DEMOPOOL_[A-Z_]+")
    used = {name for file in files for name in pattern.findall(file.read_text())}
    assert set(pattern.findall((DOCS / "reference" / "environment.md").read_text())) == used


def test_json_keys_are_those_documented(ran: Ran) -> None:
    outputs = ran(JSON)
    envelope: set[str] = set()
    for section in JSON.read_text().split("\n## ")[1:]:
        (command,) = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
        documented = {key for cells in _rows(section) for key in re.findall("`(.+?)`", cells[0])}
        found = set(_keys(json.loads(outputs[command])))
        if not envelope:
            envelope = {key for key in documented if not key.startswith("backends")}
        documented |= envelope
        unknown = {key for key in found if not any(_covers(name, key) for name in documented)}
        assert unknown == set(), command
        gone = {name for name in documented if not any(_covers(name, key) for key in found)}
        assert gone == set(), command


def _keys(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _keys(below, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for below in value:
            yield from _keys(below, f"{path}[]")
    if path and not (isinstance(value, dict | list) and value):
        yield path


def _covers(documented: str, key: str) -> bool:
    return key == documented or key.startswith((f"{documented}.", f"{documented}["))


# --- pages ---


def test_the_readme_is_one_page() -> None:
    assert len(README.read_text().splitlines()) <= 180


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text()):
        assert (ROOT / target).exists(), target


def test_pages_build_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "cache", DOCS, tmp_path / "html"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) >= len(PAGES) - 1
    for page in pages:
        outside = re.findall(
            r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', page.read_text()
        )
        assert outside == [], f"{page.name} needs the network"
