"""NVIDIA's own tools where they are installed: compute-sanitizer, and sections of Nsight Compute.

Each is a process with a time limit around a command of ours. Nothing of what they print about the
user or the machine is kept: folders are replaced, and of Nsight Compute only known metrics stay.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..measurement.worker import FULL_PRECISION
from ..problem.candidates import Candidate
from ..problem.cases import Case

SANITIZER, PROFILER = "compute-sanitizer", "ncu"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SECONDS = 1800.0
"""Maximum for one run: kernels are ten to a hundred times slower under either tool."""

_LINES = 60
"""Kept of a log, from its end."""
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_FOUND = 86
_NO_PERMISSION = "ERR_NVGPUCTRPERM"

POOLS_OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "DEMOPOOL_CUPY_POOL": "0"}
"""For the sanitizer: in a pool, what is beyond an array is still memory that was allocated, and
what is in a new array was written before. Numba has no pool, and Triton's arrays are torch's."""

_SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy")
_DRAM = "dram__bytes.sum"
"""Read and written; either alone has another name on some GPUs."""
_PLAIN_NUMBERS = {"LC_ALL": "C"}
"""Elsewhere 2,000.5 may be printed as 2.000,5."""
_SUMS = {
    "Duration": (
        "seconds",
        {
            **dict.fromkeys(("ns", "nsecond"), 1e-9),
            **dict.fromkeys(("us", "usecond"), 1e-6),
            **dict.fromkeys(("ms", "msecond"), 1e-3),
            **dict.fromkeys(("s", "second"), 1.0),
        },
    ),
    _DRAM: ("dram_bytes", {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}),
}
"""Added up over the launches of a kernel: what they are called here, and units."""
_MEANS = {
    "Compute (SM) Throughput": ("compute_percent", "%"),
    "Memory Throughput": ("memory_percent", "%"),
    "Achieved Occupancy": ("occupancy_percent", "%"),
    "Registers Per Thread": ("registers", "register/thread"),
    "Grid Size": ("blocks", ""),
    "Block Size": ("threads", ""),
}


def sanitize(backend: str, tool: str, *, seconds: float = SECONDS) -> dict[str, Any]:
    """``demopool check --quick`` of a backend in float32 under one tool of the sanitizer."""
    command = [
        *(SANITIZER, "--tool", tool, "--target-processes", "all"),
        *("--error-exitcode", str(_FOUND), "--show-backtrace", "device", "--print-limit", "20"),
        *(sys.executable, "-m", "demopool", "check", backend, "--quick", "--dtype", "float32"),
        *("--seconds", f"{seconds:g}"),
    ]
    code, output = _run(command, seconds, POOLS_OFF)
    found = [int(number) for number in _SUMMARY.findall(output)]
    row: dict[str, Any] = {"tool": tool, "backend": backend, "errors": None, "reason": ""}
    if code is None:
        row |= {"state": "timeout", "reason": f"it was stopped after {seconds:g} s"}
    elif not found:
        row |= {"state": "error", "reason": f"it gave no summary; its exit code is {code}"}
    elif code and not sum(found):
        reason = f"it reports no error, but what it ran ended with exit code {code}"
        row |= {"state": "error", "reason": reason}
    else:
        row |= {"state": "wrong" if sum(found) else "ok", "errors": sum(found)}
    row["log"] = [] if row["state"] == "ok" else _scrubbed(output).splitlines()[-_LINES:]
    return row


def profile(
    candidate: Candidate, case: Case, name: str, *, seconds: float = SECONDS
) -> dict[str, Any]:
    """The kernels of one call, after others that warm up, with their time and utilisation."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ncu.csv")
        command = [
            *(PROFILER, "--target-processes", "all", "--profile-from-start", "off"),
            *("--csv", "--page", "details", "--log-file", str(file)),
            *(word for section in _SECTIONS for word in ("--section", section)),
            *("--metrics", _DRAM),
            *(sys.executable, "-m", "demopool.gpu_report.one_call"),
            *(candidate.backend, candidate.route, case.descriptor, name),
        ]
        code, output = _run(command, seconds, _PLAIN_NUMBERS)
        log = file.read_text(errors="replace") if file.exists() else ""
    row: dict[str, Any] = {"candidate": str(candidate), "case": name, "reason": ""}
    row |= {"descriptor": str(case.descriptor), "kernels": kernels(log)}
    if code is None:
        row["reason"] = f"it was stopped after {seconds:g} s"
    elif _NO_PERMISSION in log + output:
        row["reason"] = (
            "the driver lets only administrators read performance counters "
            "(developer.nvidia.com/ERR_NVGPUCTRPERM says how to change it)"
        )
    elif not row["kernels"]:
        row["reason"] = f"it saw no kernel; its exit code is {code}"
        row["log"] = _scrubbed(log + output).splitlines()[-_LINES:]
    return row


def kernels(log: str) -> list[dict[str, Any]]:
    """From the table of Nsight Compute: a row for each kernel, the most time first.

    Bytes are those of all its launches; all else is a mean over them, weighted by their time.
    """
    lines = log.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches: dict[str, dict[str, Any]] = {}
    for cells in csv.DictReader(lines[start:]):
        launch = launches.setdefault(cells["ID"], {"kernel": _short(cells["Kernel Name"])})
        name, unit = cells.get("Metric Name") or "", cells.get("Metric Unit") or ""
        value = _number(cells.get("Metric Value") or "")
        if value is None:
            continue
        if name in _SUMS and unit in _SUMS[name][1]:
            key, units = _SUMS[name]
            launch[key] = value * units[unit]
        elif name in _MEANS and unit == _MEANS[name][1]:
            launch[_MEANS[name][0]] = value
    found: dict[str, dict[str, Any]] = {}
    for launch in launches.values():
        own = found.setdefault(launch["kernel"], {"kernel": launch["kernel"], "of": []})
        own["of"].append(launch)
    rows = [_added(of["kernel"], of["of"]) for of in found.values()]
    return sorted(rows, key=lambda row: -row["seconds"])


def _added(kernel: str, launches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seconds = sum(launch.get("seconds", 0.0) for launch in launches)
    moved = [launch["dram_bytes"] for launch in launches if "dram_bytes" in launch]
    row: dict[str, Any] = {"kernel": kernel, "launches": len(launches), "seconds": seconds}
    row["dram_bytes"] = sum(moved) if len(moved) == len(launches) else None
    for name, _ in _MEANS.values():
        known = [(one[name], one.get("seconds", 0.0)) for one in launches if name in one]
        weight = sum(time for _, time in known)
        row[name] = sum(value * time for value, time in known) / weight if weight else None
    return row


def _short(name: str) -> str:
    """Without arguments, which fill lines."""
    return name.partition("(")[0].removeprefix("void ").strip()[:80]


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str]
) -> tuple[int | None, str]:
    """The exit code, None after the time limit, and everything that was printed.

    In a session of its own, which ends as a whole: tools start what they watch.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **FULL_PRECISION, **environment},
            )
        except OSError as problem:
            return 127, f"{command[0]}: {problem.strerror}"
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _scrubbed(text: str) -> str:
    """Without folders that name a user."""
    for folder in sorted({sys.prefix, str(Path.cwd()), str(Path.home())}, key=len, reverse=True):
        if len(folder) > 1:
            text = text.replace(folder, "...")
    return text


def installed(tool: str) -> bool:
    return shutil.which(tool) is not None
