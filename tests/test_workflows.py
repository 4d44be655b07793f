"""The shell steps of the workflows, run one after another in a clone, as a runner would.

asv is a fake that takes each commit's time from a file; GitHub's own command notes what it was
asked. The rest is real: make, git with a remote, the results branch, the report and the history.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from demopool import results
from demopool.common import places

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
PERSON = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

FEWER = """
_every = slices
slices = lambda profile, _: _every(profile, ("numpy:cpu",))[:3]
"""
"""Put at the end of profiles.py, so that a night takes seconds."""

TURNS = """
import subprocess
from contextlib import contextmanager
from demopool.results.history import asv_runs

@contextmanager
def _measuring(project, group, patterns):
    def measure(commit, cells):
        speed = subprocess.check_output(["git", "show", f"{commit}:SPEED"], text=True)
        return dict.fromkeys(cells, float(speed))
    yield measure

asv_runs.measuring = _measuring
"""
"""A module, ``turns``, that commands import: turns use asv as a library, which is not faked."""

COMMAND = "import turns; from demopool.commands import main; main()"


def steps_of(workflow: str) -> list[dict[str, Any]]:
    read = yaml.safe_load((WORKFLOWS / f"{workflow}.yml").read_text())
    (job,) = read["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


class Runner:
    """A machine with a clone of a repository, where nothing but the steps is done."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone, self.origin = folder, folder / "clone", folder / "origin.git"
        self.summary = folder / "summary.md"
        self.asked = folder / "gh.txt"
        self._copy_project()
        self._stub_environment()
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("init", "--quiet", "--bare", "--initial-branch", "main", str(self.origin))
        self.git("remote", "add", "origin", str(self.origin))
        self.commit(0.010)
        self.git("push", "--quiet", "origin", "main")

    def _copy_project(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for name in listed:
            if not name.startswith(("docs/", "tests/")) and (ROOT / name).is_file():
                (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.clone / name)
        with (self.clone / "benchmarks" / "profiles.py").open("a") as file:
            file.write(FEWER)
        with (self.clone / "tools" / "verdicts.py").open("a") as file:
            file.write("import turns\n")

    def _stub_environment(self) -> None:
        """A .venv that needs no installing, with a fake asv."""
        fake = self.folder / "fake"
        shutil.copytree(ROOT / "tests" / "fake_asv", fake / "asv")
        (fake / "turns.py").write_text(TURNS)
        suite = self.folder / "suite.json"
        suite.write_text(json.dumps(_suite()))
        scripts = self.clone / ".venv" / "bin"
        scripts.mkdir(parents=True)
        programs = {
            scripts / "python": f'exec {sys.executable} "$@"',
            scripts / "asv": f'exec {sys.executable} -m asv "$@"',
            scripts
            / "demopool": f'[ "$1" = "$SKIP" ] || exec {sys.executable} -c "{COMMAND}" "$@"',
            self.folder / "bin" / "gh": f'echo "$@" >> {self.asked}; cat "$5" >> {self.asked}',
        }
        for file, text in programs.items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/sh\n{text}\n")
            file.chmod(0o755)
        sources = "find src reference implementations -type f ! -name '*.pyc' | sort"
        listed = subprocess.run(
            sources, shell=True, cwd=self.clone, capture_output=True, text=True, check=True
        )
        (self.clone / ".venv" / "files").write_text(listed.stdout)
        (self.clone / ".venv" / "ready").touch()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "COLUMNS"},
            **PERSON,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(fake),
            "FAKE_ASV_SUITE": str(suite),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            places.VARIABLE: str(self.folder / "cache"),
        }

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.clone,
            env={**os.environ, **PERSON, "GIT_CONFIG_GLOBAL": os.devnull},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, speed: float) -> str:
        (self.clone / "SPEED").write_text(f"{speed}\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", f"{speed} s")
        return self.git("rev-parse", "HEAD")

    def run(self, workflow: str, **variables: str) -> dict[str, int]:
        """Exit codes by the names of the shell steps; each runs, as ``!cancelled()`` says."""
        self.summary.touch()
        codes = {}
        for step in steps_of(workflow):
            if "run" not in step:
                continue
            done = subprocess.run(
                ["bash", "-e", "-c", step["run"]],
                cwd=self.clone,
                env={**self.environment, **variables},
                capture_output=True,
                text=True,
            )
            codes[step["name"]] = done.returncode
            self.said = done.stdout + done.stderr
            assert "Traceback" not in self.said, self.said
        return codes


def _suite() -> dict[str, Any]:
    """What asv would find in benchmarks/."""
    from benchmarks import profiles

    found: dict[str, dict[str, Any]] = {}
    for part in profiles.slices("full", ("numpy:cpu",)):
        for name in sorted({cell[0] for cell in part.cells}):
            module, owner, method = name.split(".")
            made = getattr(sys.modules[f"benchmarks.{module}"], owner)
            params = [[repr(value) for value in values] for values in getattr(made, method).params]
            names = list(made.param_names)
            found[name] = {"params": params, "param_names": names, "version": made.version}
    return found


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_two_nights(runner: Runner) -> None:
    night = {"PROFILE": "fast", "MACHINE": "hosted"}
    fine = {
        "Earlier results": 0,
        "Measure new commits": 0,
        "Keep the results": 0,
        "Publish": 0,
        "Judge": 0,
    }
    assert runner.run("nightly", **night) == fine, runner.said
    site = runner.clone / "build" / "site"
    assert (site / "report.html").exists()
    assert (site / "asv" / "index.html").exists()
    first = results.read(f"file://{runner.origin}")
    assert set(first["machine"]) == {"hosted"}
    assert set(first["commit"]) == {runner.git("rev-parse", "HEAD")}

    # The second night is on another host. Of its commits two made everything four times as slow;
    # the results are kept all the same.
    shutil.rmtree(runner.clone / ".asv")
    shutil.rmtree(site)
    second = [runner.commit(speed) for speed in (0.010, 0.040, 0.040)]
    assert runner.run("nightly", **night, SKIP="report") == {**fine, "Judge": 1}, runner.said
    measured = results.read(f"file://{runner.origin}")
    assert set(measured["commit"]) == {*first["commit"], *second}
    assert "numpy:cpu" in runner.summary.read_text()
    assert "Confirmed regression" in runner.summary.read_text()


def test_a_pull_request_that_is_slower_and_one_that_is_not(runner: Runner) -> None:
    request = {"BASE": "origin/main", "GH_TOKEN": "none", "NUMBER": "7"}
    for speed, code, headline in ((0.010, 0, r"No change in \d+"), (0.020, 2, r"\d+ slower")):
        runner.git("checkout", "--quiet", "-B", "topic", "origin/main")
        runner.commit(speed)
        codes = runner.run("pull-request-benchmarks", **request)
        # make's own code is 2 whatever a command's was; its message has that.
        assert codes == {"Compare": code, "Say it on the page of the run": 0, "Comment": 0}
        table = (runner.clone / "table.md").read_text()
        assert re.match(rf"\*\*{headline}", table)
        assert ("slower: x1.9" in table) == (speed == 0.020)
        assert runner.summary.read_text().endswith(table)
        asked = runner.asked.read_text()
        assert asked.startswith("pr comment 7 --body-file table.md")
        assert asked.endswith(table)


def test_results_of_two_machines_meet_in_one_branch(runner: Runner) -> None:
    """Both have begun before either has pushed."""
    for name in ("one", "two"):
        folder = runner.clone / ".asv" / "results" / name
        folder.mkdir(parents=True)
        (folder / "machine.json").write_text("{}")
        (folder / ".lock").touch()
    push = [str(runner.clone / ".venv/bin/python"), "-m", "tools.results_branch"]

    def call(word: str) -> str:
        done = subprocess.run(
            [*push, word], cwd=runner.clone, env=runner.environment, capture_output=True, text=True
        )
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    assert "first: python -m tools.results_branch pull" in call("push")
    assert "0 result files" in call("pull")
    other = runner.folder / "other"
    runner.git("clone", "--quiet", str(runner.origin), str(other))
    for command in (
        ["checkout", "--quiet", "--orphan", "results"],
        ["rm", "-r", "-f", "--quiet", "."],
    ):
        runner.git("-C", str(other), *command)
    (other / "three").mkdir()
    (other / "three" / "machine.json").write_text("{}")
    runner.git("-C", str(other), "add", "--all")
    runner.git("-C", str(other), "commit", "--quiet", "--message", "theirs")
    runner.git("-C", str(other), "push", "--quiet", "origin", "results")
    assert "pushed to results of origin" in call("push")
    runner.git("fetch", "--quiet", "origin", "results")
    names = runner.git("ls-tree", "-r", "--name-only", "FETCH_HEAD").split()
    assert names == [f"{name}/machine.json" for name in ("one", "three", "two")]
    assert runner.git("status", "--porcelain") == ""


@pytest.mark.parametrize("workflow", ["nightly", "pull-request-benchmarks"])
def test_no_step_has_text_of_others_in_its_shell(workflow: str) -> None:
    """An expression in a script is put in before the shell reads it, so it can be a command."""
    steps = steps_of(workflow)
    assert not any("${{" in step.get("run", "") for step in steps)
    (clone,) = [s for s in steps if str(s.get("uses")).startswith("actions/checkout")]
    assert clone["with"]["fetch-depth"] == 0


def test_a_pull_request_never_runs_on_a_machine_of_ones_own() -> None:
    read = yaml.safe_load((WORKFLOWS / "pull-request-benchmarks.yml").read_text())
    assert read["jobs"]["compare"]["runs-on"] == "ubuntu-latest"
    assert "pull_request_target" not in read[True]
