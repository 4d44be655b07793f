"""``choose`` as a command with real processes, and what it must survive."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demopool.trials import samples

BAD = """
import os, signal, time
from dataclasses import replace
import numpy as np
from demopool.implementations.numpy_cpu import SPECIFICATION as BASE


def bad(name, pool):
    def load(device, threads):
        from demopool.implementations.numpy_cpu.implementation import NumpyImplementation

        class Bad(NumpyImplementation):
            pools_normalized = False
            kernels = {**NumpyImplementation.kernels, ("pool", "direct"): pool}

        return Bad()

    return replace(BASE, library=name, load=load, recognise=lambda array: None)


CRASHES = bad("crashes", lambda X, a, order: os.kill(os.getpid(), signal.SIGSEGV))
HANGS = bad("hangs", lambda X, a, order: time.sleep(1000))
GARBAGE = bad("garbage", lambda X, a, order: np.ones((*X.shape[:-2], X.shape[-1], X.shape[-1])))
"""


# A library that hangs is given up sooner than anybody's should be.
MAIN = """
from demopool import commands
from demopool.choosing import conforming, runners
runners.SETUP_SECONDS = conforming.QUICK_CELL_SECONDS = 8
commands.main()
"""


def _command(
    *arguments: str, timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, "choose", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "DEMOPOOL_REQUIRE_BACKENDS": "", **environment},
        timeout=timeout,
        check=False,
    )


TINY = ("--n", "30", "--d", "8", "--budget", "8", "--threads", "1")


@pytest.mark.skipif(not hasattr(signal, "SIGSEGV"), reason="no such signal here")
def test_backends_that_crash_hang_or_lie_are_shown_and_do_not_win(tmp_path: Path) -> None:
    (tmp_path / "bad_backends.py").write_text(BAD)
    information = tmp_path / "bad_backends-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-backends\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[demopool.backends]\ncrashes = bad_backends:CRASHES\nhangs = bad_backends:HANGS\n"
        "garbage = bad_backends:GARBAGE\n"
    )
    done = _command(
        *TINY,
        *("--backends", "numpy:cpu,crashes:cpu,hangs:cpu,garbage:cpu", "--json"),
        PYTHONPATH=str(tmp_path),
        DEMOPOOL_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.returncode == 1, done.stderr  # something is wrong, and said
    (result,) = json.loads(done.stdout)["results"]
    assert result["verdict"]["backend"] == "numpy:cpu"
    states = {(c["backend"], c["route"]): c for c in result["candidates"] if c["route"] == "dense"}
    assert states["numpy:cpu", "dense"]["state"] == "ok"
    assert states["crashes:cpu", "dense"]["state"] == "error"
    assert "Segmentation fault" in states["crashes:cpu", "dense"]["reason"]
    assert states["hangs:cpu", "dense"]["state"] == "error"
    assert states["garbage:cpu", "dense"]["state"] == "wrong"
    for backend in ("garbage:cpu", "hangs:cpu"):
        assert "does not conform" in states[backend, "dense"]["reason"]
    assert "no answer within 8 s" in states["hangs:cpu", "dense"]["reason"]
    assert states["hangs:cpu", "dense"]["at_least_s"] is None  # no call of the case was seen
    for candidate in result["candidates"]:
        assert "run_" not in candidate["reason"], "the name of a function of ours"
    keys = "backend route state verdict median_s low_s high_s first_call_s with_transfer_s"
    keys += " peak_host_bytes peak_device_bytes error reason"
    assert set(keys.split()) <= set(result["candidates"][0])


def test_sizes_of_one_and_a_narrow_terminal_without_colour(tmp_path: Path) -> None:
    done = _command(
        *("--n", "1", "--d", "1", "--budget", "4", "--threads", "1"),
        *("--backends", "numpy:cpu"),
        COLUMNS="60",
        TERM="dumb",
        DEMOPOOL_CACHE_DIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "numpy:cpu" in done.stdout
    assert "\x1b" not in done.stdout
    table = [line for line in done.stdout.splitlines() if line.startswith("numpy:cpu/")]
    assert table
    assert all(len(line) <= 60 for line in table)
    assert all(re.search("(fastest|slower|tie|unknown)$", line) for line in table)


def test_a_limit_below_every_candidate(tmp_path: Path) -> None:
    done = _command(*TINY, "--max-memory", "1KB", DEMOPOOL_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "Nothing is within --max-memory 1 kB" in done.stdout
    assert "predicted to need" in done.stdout


def test_a_cache_that_cannot_be_used(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    done = _command(*TINY, "--backends", "numpy:cpu", DEMOPOOL_CACHE_DIR=str(in_the_way))
    assert done.returncode == 0, done.stderr
    assert "could not be saved" in done.stdout


def test_two_at_once_and_one_killed(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "demopool", "choose", *TINY, "--backends", "numpy:cpu"]
    environment = {
        **os.environ,
        "DEMOPOOL_REQUIRE_BACKENDS": "",
        "DEMOPOOL_CACHE_DIR": str(tmp_path),
    }
    both = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    time.sleep(4)
    both[2].kill()
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both[:2]] == [0, 0]
    assert all(re.search("Use numpy:cpu|probably numpy:cpu", text) for text in outputs[:2])
    (path,) = (tmp_path / "samples").iterdir()
    assert list(samples.read(path))
    (profile,) = (tmp_path / "profiles").glob("*.json")
    assert json.loads(profile.read_text())["decided"]
    left = [p.name for p in tmp_path.rglob("*") if p.is_file() and p.name.startswith(".")]
    assert not left


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--case", "vgg-b1", "--n", "3"), "not several"),
        (("--max-memory", "lots"), "must be like 500MB"),
        (("--backends", "numpy:gpu"), "numpy:gpu"),
        (("--max-memory", "nan"), "must be like 500MB"),
        (("--max-memory=-5MB",), "must be like 500MB"),
        (("--budget", "inf"), "inf is not in the range"),
        (("--budget", "nan"), "budget must be a positive number"),
        (("--like", "absent.npy"), "absent.npy"),
        (("--like", os.devnull), "cannot be read"),
        (("--layout", "nchw"), "give --like"),
    ],
)
def test_bad_use(arguments: tuple[str, ...], sentence: str) -> None:
    done = _command(*arguments)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
