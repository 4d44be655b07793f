"""A toy project with a history, measured by a real ``asv run`` over a range of its commits.

Each commit has a planted fate; the clear ratios (2 ms against 8 ms) make it deterministic. Results
take a few seconds, once a session: the environment is a bare one that borrows the libraries of the
Python that runs the tests, so nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MACHINE = "alpha"
NUMPY, TORCH = "numpy:cpu/dense", "torch:cpu/dense"

# Fate of each commit: name, when its author wrote it (in minutes), and what is in its toy.py.
# "fixed" was rebased: by its author's date it comes before "slow". "gap" and "broken" share a date.
COMMITS = (
    ("root", 0, {}),
    ("start", 1, {}),
    ("tidy", 2, {}),
    ("slow", 20, {"SECONDS": 0.008}),
    ("fat", 21, {"BYTES": 40e6}),
    ("fixed", 5, {"SECONDS": 0.002, "ERROR": 1e-2}),
    ("gap", 30, {"MISSING": True}),
    ("broken", 30, {"MISSING": False, "BROKEN": True}),
    ("last", 31, {"BROKEN": False, "ERROR": 1e-7}),
)
TOY = {"SECONDS": 0.002, "BYTES": 10e6, "ERROR": 1e-7, "MISSING": False, "BROKEN": False}

CONFIGURATION = """{
    // A comment, as asv allows.
    "version": 1, "project": "toy", "repo": ".", "branches": ["main"],
    "plugins": [".toy_plugin"], "environment_type": "borrowed", "pythons": ["%d.%d"],
    "build_command": [], "install_command": [], "uninstall_command": [],
    "benchmark_dir": "benchmarks", "env_dir": ".asv/env", "results_dir": ".asv/results",
    "matrix": {"env_nobuild": {"OPENBLAS_NUM_THREADS": ["1"]}}, "launch_method": "forkserver"
}
"""

PLUGIN = """
import subprocess, sys
from pathlib import Path
from asv.plugins.virtualenv import Virtualenv


class Borrowed(Virtualenv):
    tool_name = "borrowed"

    def _setup(self):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self._path], check=True)
        (folder,) = Path(self._path).glob("lib/python*/site-packages")
        (folder / "borrowed.pth").write_text(f"{self._path}/project/package\\n" + %r)
"""

BENCHMARKS = """
import json, os, time
from datetime import datetime, timezone
from pathlib import Path


def note(**facts):
    file = "-".join([os.environ["ASV_COMMIT"][:8], os.environ["ASV_ENV_NAME"]])
    now = datetime.now(timezone.utc).isoformat()
    with Path(os.environ["TOY_NOTES"], file + ".jsonl").open("a") as lines:
        lines.write(json.dumps({"schema": 1, "measured_at": now, **facts}) + "\\n")


class Democratic:
    param_names = ("candidate", "case")
    params = (["numpy:cpu/dense", "torch:cpu/dense"], ["vgg-b1", "n49-d64"])
    version = "1"
    number, repeat, rounds, warmup_time = 1, 7, 1, 0

    def setup(self, candidate, case):
        import toy

        self.toy = toy
        note(kind="fingerprint", key="0123456789abcdef", fingerprint={})
        if toy.MISSING and candidate.startswith("torch"):
            # For the class: every method of it is skipped.
            note(kind="skip", benchmark="descriptors.Democratic", candidate=candidate, case=case,
                 state="unavailable", reason="not written yet")
            raise NotImplementedError

    def time_call(self, candidate, case):
        if self.toy.BROKEN:
            note(kind="failure", benchmark="descriptors.Democratic.time_call",
                 candidate=candidate, case=case, state="error", reason="ValueError: planted")
            raise ValueError("planted")
        time.sleep(self.toy.SECONDS)

    def track_peak_host_bytes(self, candidate, case):
        return self.toy.BYTES

    track_peak_host_bytes.unit = "bytes"

    def track_error(self, candidate, case):
        return self.toy.ERROR

    track_error.unit = "relative error"


def track_nothing():
    import toy

    if toy.BROKEN:
        raise ValueError("planted")
    return 1.0
"""


@dataclass(frozen=True)
class Project:
    """Where it is, and its commits by name."""

    folder: Path
    commits: dict[str, str]

    @property
    def results(self) -> Path:
        return self.folder / ".asv" / "results"

    def file(self, commit: str) -> Path:
        (found,) = (self.results / MACHINE).glob(f"{self.commits[commit][:8]}-*.json")
        return found


@cache
def measured(folder: Path) -> Project:
    """Made and measured in this new folder, once however many test files ask for it."""
    folder.mkdir()
    project = Project(folder, _commit(folder))
    notes = project.results / MACHINE
    notes.mkdir(parents=True)
    env = {**environment(folder), "TOY_NOTES": str(notes)}
    run(["asv", "machine", "--yes", "--machine", MACHINE], folder, env)
    # What is not selected is never measured: torch on the small case.
    wanted = ["--bench", "vgg-b1|numpy|nothing", "--machine", MACHINE]
    # The fastest call is followed: of sleeps, it is right however busy the machine is.
    wanted.append("--record-samples")
    commits = f"{project.commits['root']}..main"
    # 2 is asv's exit code where something failed, as it must here.
    run(["asv", "run", *wanted, commits], folder, env, code=2)
    return project


def _commit(folder: Path) -> dict[str, str]:
    borrowed = "".join(f"{sysconfig.get_path(kind)}\n" for kind in ("purelib", "platlib"))
    files = {
        "asv.conf.json": CONFIGURATION % sys.version_info[:2],
        "toy_plugin.py": PLUGIN % borrowed,
        "benchmarks/__init__.py": "",
        "benchmarks/descriptors.py": BENCHMARKS,
        ".gitignore": ".asv\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "package").mkdir()
    run(["git", "init", "--quiet", "--initial-branch", "main"], folder, environment(folder))
    commits, toy = {}, dict(TOY)
    for number, (name, written, changes) in enumerate(COMMITS):
        toy.update(changes)
        lines = [f"NAME = {name!r}", *(f"{key} = {value!r}" for key, value in toy.items())]
        (folder / "package" / "toy.py").write_text("\n".join(lines) + "\n")
        dates = {
            "GIT_AUTHOR_DATE": f"2026-01-05T12:{written:02}:00+00:00",
            "GIT_COMMITTER_DATE": f"2026-01-06T12:{number:02}:00+00:00",
        }
        env = {**environment(folder), **dates}
        run(["git", "add", "--all"], folder, env)
        run(["git", "commit", "--quiet", "--message", name], folder, env)
        commits[name] = run(["git", "rev-parse", "HEAD"], folder, env).strip()
    run(["git", "tag", "v1", commits["fat"]], folder, environment(folder))
    return commits


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's: no settings of git, and asv's list of machines in this folder."""
    person = {
        f"GIT_{role}_{part}": "toy"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    return {
        **os.environ,
        **person,
        "HOME": str(folder / ".asv"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]),
    }


def run(command: list[str], folder: Path, env: dict[str, str], code: int = 0) -> str:
    if command[0] == "asv":
        command = [sys.executable, "-m", *command]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
