"""asv run and asv publish, as far as their files go."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

THREADS = {"OPENBLAS_NUM_THREADS": "2"}
ENVIRONMENT = "borrowed-py3.11"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run", "publish"])
    for option in ("--config", "--machine", "--attribute", "--html-dir"):
        parser.add_argument(option)
    parser.add_argument("--bench", action="append")
    parser.add_argument("--interleave-rounds", action="store_true")
    parser.add_argument("commits", nargs="?")
    given = parser.parse_intermixed_args()
    if given.command == "publish":
        Path(given.html_dir).mkdir(parents=True)
        Path(given.html_dir, "index.html").write_text("<p>asv</p>")
        return
    text = Path(given.config).read_text()
    results = Path(re.search(r'"results_dir": "(.*?)"', text)[1])  # type: ignore[index]
    suite = json.loads(Path(os.environ["FAKE_ASV_SUITE"]).read_text())
    folder = results / given.machine
    folder.mkdir(parents=True, exist_ok=True)
    (results / "benchmarks.json").write_text(json.dumps({"version": 2, **suite}))
    (folder / "machine.json").write_text(json.dumps({"machine": given.machine, "version": 1}))
    for commit in _commits(given.commits):
        _measure(folder, commit, suite, given.bench)


def _commits(given: str) -> list[str]:
    if given.startswith("HASHFILE:"):
        return Path(given.removeprefix("HASHFILE:")).read_text().split()
    return _git("rev-list", given).split()


def _measure(folder: Path, commit: str, suite: dict[str, Any], patterns: list[str]) -> None:
    speed = float(_git("show", f"{commit}:SPEED"))
    file = folder / f"{commit[:8]}-{ENVIRONMENT}.json"
    columns = ["result", "params", "version", "started_at", "stats_ci_99_a", "stats_ci_99_b"]
    stored: dict[str, Any] = {
        "version": 2,
        "commit_hash": commit,
        "env_name": ENVIRONMENT,
        "date": 1000 * int(_git("show", "--no-patch", "--format=%at", commit)),
        "params": {"machine": folder.name},
        "python": "3.11",
        "env_vars": THREADS,
        "result_columns": columns,
        "results": {},
    }
    if file.exists():
        stored = json.loads(file.read_text())
    for name, entry in suite.items():
        cells = list(itertools.product(*entry["params"]))
        old = stored["results"].get(name, [[float("nan")] * len(cells)])[0]
        chosen = [
            any(re.search(p, f"{name}({', '.join(cell)})") for p in patterns) for cell in cells
        ]
        if not any(chosen):
            continue
        # A baseline does not depend on the commit.
        times = [0.1 if "baseline" in cell[0] else speed for cell in cells]
        values = [t if is_new else o for t, is_new, o in zip(times, chosen, old, strict=True)]
        now = int(1000 * time.time())
        row = [values, entry["params"], entry["version"], now, values, values]
        stored["results"][name] = row
    file.write_text(json.dumps(stored))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
