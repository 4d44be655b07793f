"""A stranger's folder of results: nothing of it runs, hangs, escapes or ends in a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("asv")

HASH = "0123456789abcdef0123456789abcdef01234567"
NAME = f"{HASH[:8]}-py.json"
TIME = "descriptors.Democratic.time_call"


def stored(**changes: Any) -> dict[str, Any]:
    """A result file as asv writes it, with two cells."""
    return {
        "commit_hash": HASH,
        "date": 1_767_614_460_000,
        "params": {"machine": "stranger", "python": "3.11"},
        "python": "3.11",
        "env_name": "py",
        "env_vars": {"OPENBLAS_NUM_THREADS": "1"},
        "requirements": {},
        "result_columns": ["result", "params", "version", "started_at", "duration"],
        "results": {
            TIME: [
                [0.002, 0.004],
                [["'numpy:cpu/dense'", "'torch:cpu/dense'"], ["'vgg-b1'"]],
                "1",
                1_767_614_470_000,
                1.0,
            ]
        },
        "durations": {},
        "version": 2,
        **changes,
    }


def plant(folder: Path, content: Any = None) -> Path:
    """A results folder with one file."""
    machine = folder / "stranger"
    machine.mkdir(parents=True)
    file = machine / NAME
    file.write_text(json.dumps(stored() if content is None else content))
    return file


def demopool(*arguments: Any, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demopool", *map(str, arguments)]
    settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, **options}
    return subprocess.run(command, cwd=cwd, check=False, **settings)


# --- git ---


@pytest.fixture
def trap(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of results with a ``.git`` whose every fetch runs a program; what that leaves."""
    folder, mark = tmp_path / "downloaded", tmp_path / "executed"
    plant(folder)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    git = folder / ".git"
    for part in ("objects", "refs/heads"):
        (git / part).mkdir(parents=True)
    (git / "HEAD").write_text(HASH + "\n")
    (git / "config").write_text(
        "[core]\n\trepositoryformatversion = 1\n\tbare = false\n"
        f"\tfsmonitor = {program}\n\tpager = {program}\n\tsshCommand = {program}\n"
        "[extensions]\n\tpartialClone = origin\n"
        '[protocol "file"]\n\tallow = always\n[protocol "ext"]\n\tallow = always\n'
        f'[remote "origin"]\n\turl = {tmp_path}\n\tpromisor = true\n\tuploadpack = {program}\n'
    )
    return folder, mark


def test_the_trap_is_one(trap: tuple[Path, Path]) -> None:
    folder, mark = trap
    subprocess.run(["git", "rev-list", "HEAD", "--"], cwd=folder, capture_output=True, check=False)
    assert mark.exists()


@pytest.mark.parametrize("command", [("history",), ("history", "--since", "v1"), ("report",)])
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_in_a_folder_of_results_is_executed(
    trap: tuple[Path, Path], tmp_path: Path, command: tuple[str, ...], inside: bool
) -> None:
    """Neither from outside nor, by a user who has gone into it, from inside."""
    folder, mark = trap
    where = folder if inside else tmp_path
    given = ("--results", folder, "-o", tmp_path / "out") if command[0] == "report" else (folder,)
    done = demopool(*command, *given, cwd=where)
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if "--since" in command else 0), done.stderr
    assert not mark.exists()
