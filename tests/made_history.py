"""A repository and asv's result files for it, made without measuring: values are given.

Commits are empty; all are of the same second unless told otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Run = Callable[..., tuple[int, str, str]]
"""The fixture ``run``."""

MACHINE = "made"
NUMPY, TORCH, BASELINE = "numpy:cpu/dense", "torch:cpu/dense", "baseline/plain"
TIME = "descriptors.Democratic.time_call"
CASE = "vgg-b1"
STEP = [0.010] * 8 + [0.0142] * 4
STARTED = 1_790_000_000_000
"""Milliseconds; every file is measured a minute after the one before."""


@dataclass
class Skipped:
    """Instead of a value: n/a with this note."""

    state: str
    reason: str
    kind: str = "skip"


@dataclass
class Made:
    """A folder with a repository of as many commits as asked for, oldest first."""

    folder: Path
    commits: list[str] = field(default_factory=list)
    results_dir: str = ".asv/results"

    @property
    def results(self) -> Path:
        return self.folder / self.results_dir

    def git(self, *arguments: str) -> str:
        env = {
            **os.environ,
            **{
                f"GIT_{who}_{what}": "made" for who in ("AUTHOR", "COMMITTER") for what in ("NAME",)
            },
            **{f"GIT_{who}_EMAIL": "made@made" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_DATE": "2026-03-04T05:06:07+00:00" for who in ("AUTHOR", "COMMITTER")},
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, name: str) -> str:
        self.git("commit", "--quiet", "--allow-empty", "--message", name)
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]

    def measure(
        self,
        number: int,
        values: Mapping[str, float | Skipped | None],
        *,
        threads: int = 2,
        machine: str = MACHINE,
        load: float | None = None,
        fingerprint: str = "0123456789abcdef",
        benchmark: str = TIME,
    ) -> None:
        """Write the result file of a commit: a value, a gap with its reason, or None for failed."""
        commit, environment = self.commits[number], f"env-OPENBLAS_NUM_THREADS{threads}"
        started = STARTED + 60_000 * number
        at = f"2026-09-21T14:{13 + number:02}:20+00:00"
        notes: list[dict[str, Any]] = [{"kind": "fingerprint", "key": fingerprint}]
        for candidate, value in values.items():
            where = {"benchmark": benchmark, "candidate": candidate, "case": CASE}
            if isinstance(value, Skipped):
                notes.append(
                    {**where, "kind": value.kind, "state": value.state} | {"reason": value.reason}
                )
        if load is not None:
            notes += _counters(values, load)
        stored = {
            "version": 2,
            "commit_hash": commit,
            "env_name": environment,
            "env_vars": {"OPENBLAS_NUM_THREADS": str(threads)},
            # asv has the author's date.
            "date": STARTED,
            "params": {"machine": machine},
            "python": "3.11",
            "result_columns": ["result", "params", "version", "started_at", "duration"],
            "results": {
                benchmark: [
                    [float("nan") if isinstance(v, Skipped) else v for v in values.values()],
                    [[repr(candidate) for candidate in values], [repr(CASE)]],
                    "1",
                    started,
                    30.0,
                ]
            },
        }
        file = self.results / machine / f"{commit[:8]}-{environment}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(stored))
        lines = [json.dumps({"schema": 1, "measured_at": at, **note}) for note in notes]
        file.with_suffix(".jsonl").write_text("\n".join(lines) + "\n")


def _counters(candidates: Sequence[str] | Mapping[str, Any], load: float) -> list[dict[str, Any]]:
    """Of two cores: each measurement takes 2 s and one of them, others a share of both."""
    found = []
    for number, candidate in enumerate([*candidates, None]):
        what = None if candidate is None else f"democratic {candidate} {CASE}"
        wall = 100.0 + 2.0 * number
        own, other = 2.0 * number, 2.0 * number * 2 * load
        counters = {"wall_s": wall, "busy_s": 50.0 + own + other, "own_s": own}
        found.append({"kind": "load", "what": what, "asv": 7, "cores": 2, **counters})
    return found


def made(folder: Path, count: int) -> Made:
    """So many commits, none measured."""
    folder.mkdir(exist_ok=True)
    project = Made(folder)
    project.git("init", "--quiet", "--initial-branch", "main")
    (folder / "asv.conf.json").write_text('{"results_dir": ".asv/results"}\n')
    for number in range(count):
        project.commit(f"commit {number}")
    return project


def measured(
    folder: Path,
    candidate: Sequence[float | Skipped | None],
    baseline: Sequence[float] = (),
    **how: Any,
) -> Made:
    """NumPy's values and the baseline's, commit by commit, in seconds."""
    project = made(folder, len(candidate))
    for number, value in enumerate(candidate):
        beside = {BASELINE: baseline[number]} if baseline else {}
        project.measure(number, {**beside, NUMPY: value}, **how)
    return project


def gate(run: Run, project: Made, *arguments: object) -> tuple[int, str]:
    code, out, _ = run(project, "--fail-on-regression", *arguments)
    return code, out


def payload(run: Run, project: Made, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(project, "--json", *arguments)[1])
    return found
