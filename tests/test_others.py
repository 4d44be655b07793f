"""How much of the machine others use, from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from demopool.measurement import others


def test_what_others_use_is_what_is_left_of_the_busy_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All cores, less this process and its workers; a name with spaces and brackets in it."""
    monkeypatch.setattr(others, "_PROC", tmp_path)
    tick = others.os.sysconf("SC_CLK_TCK")
    (tmp_path / "7").mkdir()

    def write(busy: float, worker: float) -> None:
        ticks = [int(busy * tick), 0, 0, 5 * tick, 3 * tick, 0, 0, 0, 0, 0]
        (tmp_path / "stat").write_text(f"cpu  {' '.join(map(str, ticks))}\n")
        fields = ["0"] * 11 + [str(int(worker * tick)), "0", "0", "0"]
        (tmp_path / "7/stat").write_text(f"7 (a ) b) {' '.join(fields)}\n")

    clock = [0.0]
    monkeypatch.setattr(others.time, "monotonic", lambda: clock[0])
    own = others.os.times()
    monkeypatch.setattr(others.os, "times", lambda: own)
    write(100.0, 10.0)
    meter = others.Others(lambda: [7, 99])
    clock[0] = 10.0
    write(125.0, 20.0)
    assert meter.cores() == pytest.approx(1.5)
    assert meter.cores() is None  # no time has passed
    (tmp_path / "stat").unlink()
    clock[0] = 20.0
    assert meter.cores() is None
