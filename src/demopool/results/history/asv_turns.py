"""A process that measures cells at some commits in turns, with asv's own parts, for ``asv_runs``.

    python -P -m demopool.results.history.asv_turns SOCKET

It works in the folder of asv's configuration. SOCKET is the number of an open socket, with a JSON
object a line. The first request has what :class:`Turns` takes, and is answered when all commits
are ready; every other one has a commit and patterns of cells, and is answered by their values.

``asv run`` starts anew and installs its commit in every turn. Here each commit has an
environment and a process that has imported the suite, so that a turn costs little more than its
measurements, each of which is a process of its own as with asv.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

ENVIRONMENTS = Path(".asv", "confirm")
"""They stay, as asv's own do: the next commits are installed into the same ones."""


class Turns:
    """Some commits, and the cells that asv's patterns select, ready to be measured."""

    def __init__(self, file: str, threads: int | None, commits: list[str], patterns: list[str]):
        from asv.build_cache import BuildCache
        from asv.config import Config
        from asv.plugin_manager import plugin_manager
        from asv.repo import get_repo

        self._prepared: dict[tuple[str, str], str | None] = {}
        conf = Config.load(file)
        for plugin in conf.plugins:
            plugin_manager.import_plugin(plugin)
        _set_threads(conf, threads)
        repo, history = get_repo(conf), _environment(conf)
        environments = {}
        for number, commit in enumerate(commits):
            conf.env_dir = str(ENVIRONMENTS.absolute() / str(number))
            environments[commit] = own = _environment(conf)
            own.create()
            # What asv has built for the history need not be built again.
            own._cache = BuildCache(conf, history._path)
            own.install_project(conf, repo, commit)
        self._cells = _cells(conf, repo, own, patterns)
        # Last, because a server that runs must be closed.
        self._servers = {commit: _server(own, conf) for commit, own in environments.items()}

    def measure(self, commit: str, patterns: list[str]) -> dict[str, float | None]:
        """None of what failed or was skipped."""
        return {pattern: self._value(commit, *self._cells[pattern]) for pattern in patterns}

    def _value(self, commit: str, benchmark: dict[str, Any], place: int) -> float | None:
        from asv.runner import run_benchmark

        where = self._setup_cache(commit, benchmark)
        done = run_benchmark(benchmark, self._servers[commit], False, [place], cwd=where)
        calls, value = done.samples[place], done.result[place]
        # Of calls that are timed the fastest: it feels least what else the machine does.
        value = min(calls) if calls else value
        return None if value is None or value != value else float(value)

    def _setup_cache(self, commit: str, benchmark: dict[str, Any]) -> str | None:
        """The folder that the benchmark's ``setup_cache`` has filled, once for each commit."""
        key = benchmark.get("setup_cache_key")
        if key is not None and (commit, key) not in self._prepared:
            seconds = benchmark.get("setup_cache_timeout") or benchmark["timeout"]
            server = self._servers[commit]
            made, _ = server.create_setup_cache(benchmark["name"], seconds, "{}")
            self._prepared[commit, key] = made
        return self._prepared[commit, key] if key is not None else None

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


def _set_threads(conf: Any, threads: int | None) -> None:
    for variables in conf.matrix.values() if threads is not None else ():
        if isinstance(variables, dict):
            counts = [name for name in variables if name.endswith("_NUM_THREADS")]
            variables.update({key: [str(threads)] for key in counts})


def _environment(conf: Any) -> Any:
    """The first one of asv's matrix."""
    from asv.environment import get_environments

    return next(iter(get_environments(conf, None)))


def _server(own: Any, conf: Any) -> Any:
    """With the suite imported; what it cannot import fails when it is measured."""
    from asv.runner import get_spawner

    server = get_spawner(own, conf.benchmark_dir, conf.launch_method)
    server.preimport()
    return server


def _cells(
    conf: Any, repo: Any, own: Any, patterns: list[str]
) -> dict[str, tuple[dict[str, Any], int]]:
    """Of each pattern the benchmark and the place of the parameters, by asv's own rule."""
    from asv.benchmarks import Benchmarks

    every = Benchmarks.discover(conf, repo, [own], [own.installed_commit_hash])
    found = {}
    for pattern in patterns:
        chosen = Benchmarks(conf, list(every.values()), regex=[pattern])
        if len(chosen) != 1:
            raise LookupError(f"The suite has no benchmark {pattern}.")
        ((name, benchmark),) = chosen.items()
        (place,) = chosen.benchmark_selection[name] or [0]
        timeout = benchmark.get("timeout") or own._default_benchmark_timeout
        found[pattern] = {**benchmark, "timeout": timeout}, place
    return found


def main() -> None:
    # What asv says is for standard error; the answers have a socket of their own.
    os.dup2(2, 1)
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rw") as lines:
        turns = Turns(**json.loads(lines.readline()))
        try:
            _answer(lines, {})
            for line in lines:
                _answer(lines, turns.measure(**json.loads(line)))
        finally:
            turns.close()


def _answer(lines: Any, answer: dict[str, float | None]) -> None:
    lines.write(json.dumps(answer) + "\n")
    lines.flush()


if __name__ == "__main__":
    main()
