"""The load of others: counters that the benchmarks write down, and the share that is read off."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks import notes
from benchmarks.harness import others
from demopool.results import asv_files
from demopool.results.load import Counters, Loads

pytest.importorskip("asv")

from asv.plugins.virtualenv import Virtualenv

from benchmarks.asv_plugin import Borrowed

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def counters(what: str | None, wall: float, busy: float, own: float, **changes: Any) -> Counters:
    found = Counters(NOW + timedelta(seconds=wall), what, 7, wall, busy, own, cores=2)
    return found._replace(**changes)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(notes.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(notes.PROCESS_VARIABLE, str(os.getpid()))
    monkeypatch.setenv("ASV_COMMIT", "0" * 40)
    monkeypatch.setenv("ASV_ENV_NAME", "e")
    monkeypatch.setattr(notes, "_fingerprint", lambda: ("key", {}))
    return tmp_path / "00000000-e.jsonl"


def test_what_others_used_is_all_that_we_did_not() -> None:
    # Two cores for 10 s; we use one of them, others a quarter of both.
    loads = Loads(
        [counters("a", 0, 100, 30), counters("b", 10, 115, 40), counters(None, 20, 125, 50)]
    )
    assert loads.of("a", NOW, 60.0) == pytest.approx(0.25)
    assert loads.of("b", NOW, 60.0) == 0.0
    assert loads.of("c", NOW, 60.0) is None


def test_only_while_the_benchmark_ran() -> None:
    runs = [counters("a", 0, 0, 0), counters("a", 100, 100, 0), counters(None, 200, 100, 0)]
    assert Loads(runs).of("a", NOW, 60.0) == 0.5
    assert Loads(runs).of("a", NOW, 160.0) == 0.5
    assert Loads(runs).of("a", NOW + timedelta(seconds=90), 60.0) == 0.0
    assert Loads(runs).of("a", None, 60.0) is None
    assert Loads(runs).of("a", NOW, None) is None


def test_counters_of_two_runs_of_asv_are_not_compared() -> None:
    first, last = counters("a", 0, 0, 0), counters(None, 10, 5, 5)
    assert Loads([first, last]).of("a", NOW, 60.0) == 0.0
    for changes in ({"asv": 8}, {"wall": 0.0}, {"own": -1.0}):
        assert Loads([first, last._replace(**changes)]).of("a", NOW, 60.0) is None


def test_every_measurement_notes_its_counters(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([(100.0, 50.0, 10.0), (102.0, 53.0, 12.0), (104.0, 54.0, 13.0)])
    monkeypatch.setattr(others.Others, "seconds", lambda _: next(clock, (0.0, 0.0, 0.0)))
    # It reads the clock as well.
    monkeypatch.setattr(others.Others, "__init__", lambda *_: None)
    notes.start("sum numpy:cpu/direct vgg-b1")
    notes.start("sum torch:cpu/direct vgg-b1")
    notes.end(file.parent)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["fingerprint", "load", "load", "load"]
    started = datetime.fromisoformat(rows[0]["measured_at"])
    loads = asv_files.notes(file).loads
    cores = rows[1]["cores"]
    assert loads.of("sum numpy:cpu/direct vgg-b1", started, 60.0) == pytest.approx(0.5 / cores)
    assert loads.of("sum torch:cpu/direct vgg-b1", started, 60.0) == 0.0


def test_the_last_measurement_of_every_commit_has_counters_after_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Virtualenv, "install_project", lambda *_: None)
    notes.start("sum numpy:cpu/direct vgg-b1")
    Borrowed.install_project(object.__new__(Borrowed), None, None, "the next commit")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row.get("what") for row in rows[1:]] == ["sum numpy:cpu/direct vgg-b1", None]


def test_the_end_of_an_asv_that_measured_nothing_is_not_noted(file: Path) -> None:
    notes.end(file.parent)
    assert not file.exists()
    file.write_text('{"asv": 1, "kind": "load"}\n')
    notes.end(file.parent)
    assert file.read_text() == '{"asv": 1, "kind": "load"}\n'


def test_where_nothing_is_known_nothing_is_noted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(others.Others, "seconds", lambda _: None)
    notes.start("sum numpy:cpu/direct vgg-b1")
    assert '"load"' not in file.read_text()


@pytest.mark.parametrize(
    "broken",
    [{"wall_s": "x"}, {"cores": None}, {"what": ["a"]}, {"busy_s": float("nan")}, {"cores": 0}],
)
def test_broken_counters_are_passed_over(file: Path, broken: dict[str, Any]) -> None:
    note = {"schema": 1, "measured_at": NOW.isoformat(), "kind": "load", "what": "a", "asv": 7}
    note |= {"wall_s": 1.0, "busy_s": 1.0, "own_s": 1.0, "cores": 2}
    lines = [json.dumps({**note, **changes}) for changes in (broken, {"wall_s": 9.0})]
    file.write_text("\n".join(lines))
    assert asv_files.notes(file).loads.of("a", NOW, 60.0) in (None, 0.0)
