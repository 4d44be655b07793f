"""``demopool pool`` as a process: killed, interrupted, in bounded memory, through a pipe."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from demopool.common.places import VARIABLE
from tools import pool_ratio

RNG = np.random.default_rng(0)
SMALL_UNITS = """
import sys
from demopool.datasets import planning
planning.MAX_ROWS = 4
from demopool.commands import main
sys.argv[0] = "demopool"
main()
"""
PEAK = """
import sys
import demopool as dp
from pathlib import Path
source, output, memory = sys.argv[1:]
dp.pool_files(source, output, "sum", order=1, normalize="l2", memory=float(memory))
status = Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0])
"""


@pytest.fixture
def folder(tmp_path: Path, plain_environment: dict[str, str]) -> Path:
    """120 images of two sizes, 30 units of four."""
    made = tmp_path / "in"
    made.mkdir()
    for number in range(12):
        shape = (10, 16 + number % 2, 8)
        np.save(made / f"{number:02}.npy", RNG.standard_normal(shape).astype(np.float32))
    return made


def _command(folder: Path, *options: str, name: str = "out.npy") -> list[str]:
    out = str(folder.parent / name)
    return [sys.executable, "-c", SMALL_UNITS, "pool", str(folder), "-o", out, *options]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def _killed(command: list[str], journal: Path, lines: int) -> None:
    """As soon as the journal has so many lines, in the middle of whatever is being done."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was over before it could be killed"


@pytest.mark.parametrize("name", ["out.npy", "out.zarr"])
def test_a_file_is_the_same_after_kill_9_at_any_moment(folder: Path, name: str) -> None:
    command, journal = _command(folder, name=name), folder.parent / f"{name}.journal"
    for lines in (1, 2, 9, 20):
        _killed(command, journal, lines)
    units = [json.loads(line)["unit"] for line in journal.read_bytes().splitlines()[1:]]
    assert len(units) == len(set(units)) >= 19
    done = _run(command)
    assert done.returncode == 0, done.stderr
    assert f"({4 * len(units)} were there before)" in done.stdout
    undisturbed = _run(_command(folder, name=f"whole{Path(name).suffix}"))
    assert undisturbed.returncode == 0
    assert _content(folder.parent / name) == _content(folder.parent / f"whole{Path(name).suffix}")


def _content(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def test_only_what_it_needs_is_imported(folder: Path) -> None:
    """The start of the process is part of what a small dataset costs."""
    code = SMALL_UNITS.replace("main()\n", "").replace("import main", "import cli")
    code += "cli.main(sys.argv[1:], standalone_mode=False)\nprint(*sys.modules)"
    command = _command(folder, "--backend", "numpy:cpu")
    command[2] = code
    imported = set(_run(command).stdout.split())
    assert "demopool.datasets.pooling" in imported
    others = {"torch", "numba", "dask", "distributed", "pandas", "zarr", "h5py", "sklearn"}
    ours = {"demopool.choosing", "demopool.report", "demopool.ptx", "demopool.conformance"}
    assert imported & (others | ours) == set()


def test_ctrl_c_keeps_what_was_finished(folder: Path) -> None:
    command, journal = _command(folder), folder.parent / "out.npy.journal"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1]
    if process.returncode:  # it may have been over
        assert (process.returncode, errors) == (130, "demopool: interrupted\n")
        assert "were there before" in _run(command).stdout


def test_memory_is_bounded_for_an_input_ten_times_as_large(tmp_path: Path) -> None:
    memory, n, d = 250_000_000, 512, 256
    images = 10 * memory // (n * d * 4)
    array = np.lib.format.open_memmap(
        tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(images, n, d)
    )
    del array  # a file of zeros that takes no room on the disk
    command = [sys.executable, "-c", PEAK, str(tmp_path / "x.npy"), str(tmp_path / "o.npy")]
    done = _run([*command, str(memory)])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 <= memory


def test_errors_are_one_sentence(folder: Path) -> None:
    images = np.load(folder / "03.npy")
    images[7, 0, 0] = np.inf
    np.save(folder / "03.npy", images)
    done = _run(_command(folder))
    assert done.returncode == 1
    assert done.stderr.startswith(f"demopool: {folder / '03.npy'}, image 7: X must be finite")
    assert done.stderr.count("\n") == 1
    done = _run(_command(folder, "--keep-going"))
    assert done.returncode == 1  # not all is well
    assert "1 image failed: out.npy.index.parquet says why." in done.stdout
    assert "were there before" in done.stdout
    done = _run(_command(folder, "--memory", "much"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--memory must be like 500MB or 2GB" in done.stderr


def test_json_has_no_nan_and_nothing_else_is_printed(folder: Path) -> None:
    done = _run(_command(folder, "--json", "--descriptor", "sum", "--accuracy", "accurate"))
    found: dict[str, Any] = json.loads(done.stdout, parse_constant=lambda name: 1 / 0)
    assert (found["images"], found["computed"], found["length"]) == (120, 120, 64)
    assert done.stderr == ""


@pytest.mark.serial
def test_the_comparison_with_a_loop_by_hand_runs(
    monkeypatch: pytest.MonkeyPatch, plain_environment: dict[str, str]
) -> None:
    """Its figures mean nothing for maps as small as these."""
    monkeypatch.setattr(pool_ratio, "SHAPE", (4, 3, 3))
    monkeypatch.setenv(VARIABLE, "set back afterwards")
    options = ["--images", "8", "--turns", "1", "--kills", "2", "--no-jobs", "--budget", "1"]
    found = CliRunner().invoke(pool_ratio.main, options).output
    assert "command / script with the maps in memory:" in found
    assert "after 2 kills: the same file" in found
