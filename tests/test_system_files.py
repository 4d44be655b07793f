"""What is read of a system: processor, caches, frequency and limits, from files of any kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from demopool.machine import fingerprint as module
from demopool.machine import system
from demopool.machine.fingerprint import fingerprint, key, warnings


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders where the system's are read."""
    monkeypatch.setattr(system, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(system, "_CPU", tmp_path / "cpu")
    monkeypatch.setattr(system, "_CGROUP", tmp_path / "cgroup")
    return tmp_path


def _write(tree: Path, **files: str) -> None:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text + "\n")


def test_what_a_system_does_not_tell_is_none(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows."""

    def refuse(*_: object) -> Any:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", refuse)
    monkeypatch.setattr(os, "sysconf", refuse)
    found = fingerprint()
    unknown = ("model", "physical_cores", "quota_cores", "caches", "smt", "virtual")
    assert {found["cpu"][name] for name in unknown} == {None}
    assert set(found["frequency"].values()) == set(found["memory"].values()) == {None}
    assert found["load_average"] is None
    assert found["cpu"]["name"] == module.machine()["processor"]
    assert system.busy_share(0) is None
    assert warnings(found) == []
    assert key(json.loads(json.dumps(found, allow_nan=False))) == key(found)


def test_processor_is_read(tree: Path) -> None:
    second = "\n\nprocessor : 1\nmodel name : Other\nmodel : 2"
    info = "model name\t: Some CPU @ 2.0GHz\ncpu family : 6\nmodel : 85\nstepping : 7\nflags : fpu"
    _write(tree, **{"proc/cpuinfo": f"processor : 0\n{info} hypervisor{second}"})
    _write(tree, **{"cpu/smt/active": "1"})
    for core, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        _write(tree, **{f"cpu/cpu{core}/topology/thread_siblings_list": siblings})
    found = system.cpu()
    assert system.processor() == found["name"] == "Some CPU @ 2.0GHz"
    assert found["model"] == "6 85 7"
    assert found["physical_cores"] == 2
    assert found["smt"] is True
    assert found["virtual"] is True
    _write(tree, **{"proc/cpuinfo": info})
    assert system.cpu()["virtual"] is False


def test_caches_are_read(tree: Path) -> None:
    for number, (level, kind, size, shared) in enumerate(
        [("1", "Data", "32K", "0"), ("3", "Unified", "32768K", "0-3,8-11")]
    ):
        folder = f"cpu/cpu0/cache/index{number}"
        _write(tree, **{f"{folder}/level": level, f"{folder}/type": kind})
        _write(tree, **{f"{folder}/size": size, f"{folder}/shared_cpu_list": shared})
    assert system.caches() == [
        {"level": 1, "type": "Data", "size_bytes": 2**15, "shared_by": 1},
        {"level": 3, "type": "Unified", "size_bytes": 2**25, "shared_by": 8},
    ]


@pytest.mark.parametrize(
    ("file", "text", "turbo"),
    [
        ("cpu/intel_pstate/no_turbo", "0", True),
        ("cpu/intel_pstate/no_turbo", "1", False),
        ("cpu/cpufreq/boost", "1", True),
        ("cpu/cpufreq/boost", "0", False),
    ],
)
def test_frequency_is_read(tree: Path, file: str, text: str, turbo: bool) -> None:
    governed = "cpu/cpu0/cpufreq"
    _write(tree, **{f"{governed}/scaling_governor": "powersave", file: text})
    _write(tree, **{f"{governed}/scaling_cur_freq": "1200000"})
    _write(tree, **{f"{governed}/cpuinfo_max_freq": "3600000"})
    assert system.frequency() == {
        "governor": "powersave",
        "current_mhz": 1200,
        "max_mhz": 3600,
        "turbo": turbo,
    }


MIB = 2**20


@pytest.mark.parametrize(
    ("groups", "files", "limit", "quota"),
    [
        # Version 2: its own group, a parent's that is lower, none.
        ("0::/a/b", {"a/b/memory.max": str(64 * MIB)}, 64 * MIB, None),
        ("0::/a", {"a/memory.max": "max", "memory.max": str(32 * MIB)}, 32 * MIB, None),
        ("0::/", {"memory.max": "max", "cpu.max": "max 100000"}, None, None),
        ("0::/", {"cpu.max": "150000 100000"}, None, 1.5),
        # Version 1; inside a container the path is that of the host and does not exist.
        ("4:memory:/host/x", {"memory/memory.limit_in_bytes": str(64 * MIB)}, 64 * MIB, None),
        ("4:memory:/", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, None, None),
        (
            "1:cpu,cpuacct:/a",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "200000",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            None,
            2.0,
        ),
    ],
)
def test_limits_of_containers_are_read(
    tree: Path, groups: str, files: dict[str, str], limit: int | None, quota: float | None
) -> None:
    _write(tree, **{"proc/self/cgroup": f"9:name=systemd:/x\n{groups}"})
    _write(tree, **{f"cgroup/{name}": text for name, text in files.items()})
    assert system.memory_limit() == limit
    assert system.quota_cores() == quota
