"""Nobody wins by not working: whole runs of ``choose`` against backends that cheat."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cheats import CHEATS, HARMLESS, UNSEEN_BY_CHECK
from effort import cases

GROUPS = 6
"""Cheats of a group compete in one race, each in a process of its own."""

BUDGET = str(cases(40, 20))
SEEN_IN = ("weights", "pool", "normalize")
"""Operations that the cheats spoil."""

CASE = ("--batch", "3", "--n", "30", "--d", "12")

MAIN = """
from demopool import commands
from demopool.choosing.conforming import Conformance

# What check refuses is not raced. Here it is, to see that a race refuses it as well.
Conformance.refusal = Conformance.known_refusal = lambda *given: None
commands.main()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the cheats are installed as a distribution would be."""
    folder = tmp_path_factory.mktemp("cheats")
    information = folder / "cheats-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: cheats\nVersion: 1\n")
    names = "".join(f"{name} = cheats:backend_{name.replace('-', '_')}\n" for name in CHEATS)
    (information / "entry_points.txt").write_text(f"[demopool.backends]\n{names}")
    return folder


def _run(installed: Path, cache: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments, "--json"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "DEMOPOOL_REQUIRE_BACKENDS": "",
            "DEMOPOOL_CACHE_DIR": str(cache),
            "PYTHONPATH": os.pathsep.join([str(installed), str(Path(__file__).parent)]),
        },
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("group", cases(range(GROUPS), (3,)))
def test_choose_refuses_every_cheat(group: int, installed: Path, tmp_path: Path) -> None:
    names = sorted(CHEATS)[group::GROUPS]
    data = ("--data", "device") if "computes-while-data-is-placed" in names else ()
    backends = ",".join(["numpy:cpu", *(f"{name}:cpu" for name in names)])
    (result,) = _run(
        installed,
        tmp_path,
        *("choose", *CASE, *data, "--threads", "1", "--budget", BUDGET, "--backends", backends),
    )["results"]
    rows = {row["backend"]: row for row in result["candidates"] if row["route"] == "dense"}
    assert rows["numpy:cpu"]["state"] == "ok", rows["numpy:cpu"]["reason"]
    for name in names:
        row, (reason, _) = rows[f"{name}:cpu"], CHEATS[name]
        if name in HARMLESS:
            assert row["state"] == "ok", (name, row["reason"])
            assert row["median_s"] > 0.7 * rows["numpy:cpu"]["median_s"], name
        else:
            assert row["state"] in ("wrong", "error"), (name, row["state"], row["reason"])
            assert re.search(reason, row["reason"]), (name, row["reason"])
            assert result["verdict"]["backend"] != f"{name}:cpu"


CHECKED = sorted(CHEATS)


@pytest.mark.parametrize("name", cases(CHECKED, CHECKED[::17]))
def test_check_refuses_every_cheat(name: str, installed: Path, tmp_path: Path) -> None:
    """It judges in the process that the backend runs in, which a backend can tamper with."""
    operations = [option for name in SEEN_IN for option in ("--operation", name)]
    found = _run(installed, tmp_path, "check", "--quick", *operations, f"{name}:cpu")
    states = {cell["state"] for cell in found["rows"]}
    if name in UNSEEN_BY_CHECK:
        assert not states & {"wrong", "error"}, found
    else:
        assert states & {"wrong", "error"}, found


def test_there_are_thirty_cheats_and_reasons_for_those_that_gain_nothing() -> None:
    assert len(CHEATS) >= 30
    for reasons in (HARMLESS, UNSEEN_BY_CHECK):
        assert set(reasons) <= set(CHEATS)
        assert all(reasons.values())
