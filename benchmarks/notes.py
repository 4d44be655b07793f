"""Notes beside asv's results, on what asv does not keep: why something was skipped or failed, and
the machine and software.

For results/<machine>/<commit>-<environment>.json there is a .jsonl with the same name, with one
JSON object per line. Its ``kind`` is ``fingerprint`` (repeated when it changes), ``load``,
``skip``, ``failure`` or ``trouble`` (what disturbed a measurement). asv reads only .json.

A ``load`` is written when a measurement starts: the processor time that all processes, and our own,
have used so far. From one to the next one can tell what others used in between, and nothing has to
run beside a measurement to see it.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from . import harness

SCHEMA = 1
FOLDER_VARIABLE = "DEMOPOOL_ASV_NOTES"
"""Names the folder results/<machine>; set by asv_plugin.py."""
TICKS_VARIABLE = "DEMOPOOL_ASV_TICKS"
"""Names a file that gets a line for every measurement, for a progress bar."""
PROCESS_VARIABLE = "DEMOPOOL_ASV_PROCESS"
"""The process of asv itself; set by asv_plugin.py."""


def note(kind: str, **facts: Any) -> None:
    """Append one line; do nothing if asv is not running or keeps no results."""
    file = _file()
    if file is None:
        return
    key, found = _fingerprint()
    if key != _last_key(file):
        _append(file, kind="fingerprint", key=key, fingerprint=found)
    if kind != "start":
        _append(file, kind=kind, **facts)


def start(what: str) -> None:
    """Report the start of a measurement; the first one of a commit also records the machine."""
    note("start")
    counters = _counters()
    if counters:
        note("load", what=what, **counters)
    ticks = os.environ.get(TICKS_VARIABLE)
    if ticks:
        with Path(ticks).open("a", encoding="utf-8") as lines:
            lines.write(what + "\n")


def end(folder: Path) -> None:
    """asv ends or goes on to another commit: the last measurement needs counters after it, too."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    counters = _counters()
    if files and counters and f'"asv": {os.getpid()},' in files[-1].read_text(encoding="utf-8"):
        _append(files[-1], kind="load", what=None, **counters)


def _counters() -> dict[str, Any] | None:
    """Seconds since the system started, of processor time in all and of it our own."""
    asv = int(os.environ.get(PROCESS_VARIABLE, os.getppid()))
    # asv, its fork server, which counts what has ended, and this process.
    ours = {asv, os.getppid()} - {os.getpid()} if asv != os.getpid() else set()
    found = harness.others.Others(lambda: ours).seconds()
    if found is None:
        return None
    wall, busy, own = (round(seconds, 3) for seconds in found)
    return {"asv": asv, "wall_s": wall, "busy_s": busy, "own_s": own, "cores": os.cpu_count()}


@cache
def _fingerprint() -> tuple[str, dict[str, Any]]:
    found = harness.fingerprint.fingerprint()
    return harness.fingerprint.key(found), found


def _last_key(file: Path) -> str | None:
    """The key of the machine and software of this file's last measurements."""
    if not file.exists():
        return None
    keys = re.findall(r'"kind": "fingerprint", "key": "(\w+)"', file.read_text(encoding="utf-8"))
    return keys[-1] if keys else None


def _append(file: Path, **facts: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"schema": SCHEMA, "measured_at": now, **facts}, allow_nan=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")


def _file() -> Path | None:
    try:
        folder, commit = Path(os.environ[FOLDER_VARIABLE]), os.environ["ASV_COMMIT"]
        environment = os.environ["ASV_ENV_NAME"]
    except KeyError:
        return None
    if len(environment) >= 128:  # asv shortens a long name; only then import asv, which is slow
        from asv.results import get_filename

        return folder.parent / Path(get_filename(folder.name, commit, environment)).with_suffix(
            ".jsonl"
        )
    return folder / f"{commit[:8]}-{environment}.jsonl"
