"""The tool that plants regressions: its plants apply, and it judges what history says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("asv")

from tools import planted
from tools.planted import BAD, MENDED, NOTHING, PLANTS, Copy


@pytest.mark.skipif(not (planted.ROOT / ".git").exists(), reason="there is no clone to copy")
def test_every_plant_applies_and_is_mended(tmp_path: Path) -> None:
    copy = planted.planted(tmp_path / "copy", (*BAD, *MENDED), len(BAD))
    assert [step for step, _ in copy.steps] == [*BAD, *MENDED]
    last = planted.BASE
    for step, commit in copy.steps:
        changed = set(planted._git(copy.folder, "diff", "--name-only", last, commit).split())
        planted_in = {PLANTS[step.removeprefix("-")].file} if step else set()
        assert changed - {"planted.txt", "asv.conf.json"} == planted_in
        for file in planted_in:
            compile(planted._git(copy.folder, "show", f"{commit}:{file}"), file, "exec")
        last = commit
    left = planted._git(copy.folder, "diff", "--name-only", planted.BASE, last).split()
    assert left == ["asv.conf.json", "planted.txt"]
    # The same commits again, so that what asv has built of them can be used.
    assert planted.planted(copy.folder, (*BAD, *MENDED), len(BAD)).steps == copy.steps


def test_a_plant_that_does_not_apply_is_told(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("a = 1\na = 1\n")
    for old in ("a = 1\n", "b = 1\n"):
        with pytest.raises(click.ClickException, match=r"code\.py must have this text once"):
            planted.replace_once(file, old, "c = 1\n")
    assert file.read_text() == "a = 1\na = 1\n"


MEASURES = {"time": "call_s", "memory": "peak_host_bytes", "error": "error"}
COPY = Copy(Path(), [(step, f"commit {n}") for n, step in enumerate((*BAD, *MENDED))], len(BAD))
NONE = Copy(Path(), [(step, f"commit {n}") for n, step in enumerate(NOTHING)], len(NOTHING))


def said(mended: bool) -> dict[str, list[dict[str, Any]]]:
    """What history should say."""
    found: dict[str, list[dict[str, Any]]] = {"regressions": [], "lost": []}
    for name, plant in PLANTS.items():
        fixed = COPY.commit(f"-{name}") if mended else None
        row = {"candidate": plant.candidate, "fixed_by": fixed}
        if plant.quantity == "lost":
            row = {**row, "candidate": f"{plant.candidate}/dense"}
            found["lost"].append({**row, "since": COPY.commit(name), "by_machine": False})
        else:
            row |= {"measure": MEASURES[plant.quantity], "commit": COPY.commit(name)}
            found["regressions"].append({**row, "state": "fixed" if mended else "open"})
    return found


def test_what_history_says_is_judged() -> None:
    history = [said(mended=False), said(mended=True)]
    right = {"right": True, "missing": [], "besides": []}
    assert planted.judged(COPY, {"history": history}) == right
    history[0]["regressions"][0]["state"] = "refuted"
    history[1]["lost"] = []
    found = planted.judged(COPY, {"history": history})
    assert not found["right"]
    assert found["missing"] == [
        "time of numpy:cpu/dense at slow",
        "lost of torch:cpu at gone, fixed by -gone",
    ]
    assert found["besides"] == []


def test_what_is_named_besides_is_wrong() -> None:
    nothing: dict[str, list[dict[str, Any]]] = {"regressions": [], "lost": []}
    assert planted.judged(NONE, {"history": [nothing]})["right"]
    noise = {"candidate": "numpy:cpu/dense", "measure": "call_s", "commit": "commit 3"}
    for state, right in (("suspect", False), ("refuted", True), ("machine", True)):
        row = {**noise, "state": state, "fixed_by": None}
        found = planted.judged(NONE, {"history": [{**nothing, "regressions": [row]}]})
        assert found["right"] is right
        besides = [] if right else ["time of numpy:cpu/dense at nothing 3"]
        assert found["besides"] == besides
