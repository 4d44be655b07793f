"""What asv does not keep, written beside its results: why something was skipped or failed, and on
what machine with what software.

For results/<machine>/<commit>-<environment>.json there is a .jsonl with the same name: one JSON
object per line, ``kind`` is ``fingerprint`` (again when it changes), ``skip``, ``failure`` or
``trouble`` (what disturbed a measurement). asv reads only .json.
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
"""results/<machine>, set by asv_plugin.py."""
TICKS_VARIABLE = "DEMOPOOL_ASV_TICKS"
"""A file that gets a line for every measurement, for a progress bar."""


def note(kind: str, **facts: Any) -> None:
    """Append one line; nothing where there is no asv that keeps results."""
    file = _file()
    if file is None:
        return
    key, found = _fingerprint()
    if key != _last_key(file):
        _append(file, kind="fingerprint", key=key, fingerprint=found)
    if kind != "start":
        _append(file, kind=kind, **facts)


def start(what: str) -> None:
    """The first measurement of a commit writes down the machine; each notes that it has begun."""
    note("start")
    ticks = os.environ.get(TICKS_VARIABLE)
    if ticks:
        with Path(ticks).open("a", encoding="utf-8") as lines:
            lines.write(what + "\n")


@cache
def _fingerprint() -> tuple[str, dict[str, Any]]:
    found = harness.fingerprint.fingerprint()
    return harness.fingerprint.key(found), found


def _last_key(file: Path) -> str | None:
    """Of the machine and software that this file's last measurements were made on."""
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
    if len(environment) >= 128:  # asv shortens a long name; asking it costs a slow import
        from asv.results import get_filename

        return folder.parent / Path(get_filename(folder.name, commit, environment)).with_suffix(
            ".jsonl"
        )
    return folder / f"{commit[:8]}-{environment}.jsonl"
