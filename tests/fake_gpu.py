"""A plug-in that says it works on a GPU, and NVIDIA's tools as scripts: for ``gpu-report``."""

from __future__ import annotations

import os
from pathlib import Path

PLUGIN = """
import os
from dataclasses import replace

from demopool.contract import Probe, State
from demopool.implementations.numpy_cpu import SPECIFICATION as BASE
from demopool.implementations.numpy_cpu.implementation import NumpyImplementation


class Fake(NumpyImplementation):
    def inspect(self, array):
        facts = super().inspect(array)
        return None if facts is None else facts._replace(device="cuda")


def load(device, threads):
    with open(os.environ["LOADED"], "a") as file:
        file.write("loaded\\n")
    return Fake()


KEPT = {("weights", "dense"), ("pool", "direct"), ("normalize", "direct")}
SPECIFICATION = replace(
    BASE,
    library="fake",
    devices=("cuda",),
    probe=lambda device: Probe(State.OK, device="a made-up GPU"),
    capabilities=tuple(
        replace(c, dtypes=("float32",), orders=(2,))
        for c in BASE.capabilities
        if (c.operation, c.route) in KEPT
    ),
    load=load,
    recognise=lambda array: None,
)
"""

SANITIZER = """#!/bin/sh
# compute-sanitizer --tool TOOL ... python -m demopool check ...: says what a clean run says.
echo "========= COMPUTE-SANITIZER"
test "$PYTORCH_NO_CUDA_MEMORY_CACHING,$DEMOPOOL_CUPY_POOL" = 1,0 || exit 1
test "$2" = racecheck && echo "========= Error: Race reported in {home}/kernels.cu"
test "$2" = racecheck && echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error)" && exit 86
test "$2" = synccheck && echo "no summary" && exit 1
echo "========= ERROR SUMMARY: 0 errors"
"""

NCU = """#!/bin/sh
# ncu ... --log-file FILE ... python -m demopool.gpu_report.one_call ...: runs it, writes a table.
test "$LC_ALL" = C || exit 1
case " $* " in *" --metrics dram__bytes.sum "*) ;; *) exit 1;; esac
while [ "$1" != --log-file ]; do shift; done
cat > "$2" <<'TABLE'
==PROF== Connected to process 1
{table}
TABLE
while [ "$1" != -m ]; do shift; done
exec {python} "$@"
"""

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
_ROWS = (
    ("0", "void gram<float>(const float *)", "Duration", "us", "2,000.5"),
    ("0", "void gram<float>(const float *)", "Compute (SM) Throughput", "%", "30.00"),
    ("0", "void gram<float>(const float *)", "Memory Throughput", "%", "20.00"),
    ("0", "void gram<float>(const float *)", "Registers Per Thread", "register/thread", "40"),
    ("0", "void gram<float>(const float *)", "Grid Size", "", "1,040"),
    ("0", "void gram<float>(const float *)", "Block Size", "", "64"),
    ("0", "void gram<float>(const float *)", "dram__bytes.sum", "Mbyte", "2.5"),
    ("1", "step", "dram__bytes.sum", "byte", "2,508,800"),
    ("2", "step", "dram__bytes.sum", "Kbyte", "0"),
    ("1", "step", "Duration", "nsecond", "1000"),
    ("1", "step", "Achieved Occupancy", "%", "50.0"),
    ("2", "step", "Duration", "nsecond", "3000"),
    ("2", "step", "Achieved Occupancy", "%", "90.0"),
    ("2", "step", "Memory Throughput", "byte/second", "9e9"),
    ("2", "step", "Waves Per SM", "", "n/a"),
)
TABLE = "\n".join(
    [
        HEAD,
        *(
            f'"{id}","1","python","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(4, 1, 1)","0",'
            f'"8.0","a section","{name}","{unit}","{value}"'
            for id, kernel, name, unit, value in _ROWS
        ),
    ]
)
"""As Nsight Compute prints it: two launches of one kernel, one of another."""


def install(folder: Path, python: str) -> dict[str, str]:
    """The plug-in and the tools, and the environment of commands that know them."""
    (folder / "fake_gpu_plugin.py").write_text(PLUGIN)
    information = folder / "fake_gpu_plugin-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fake_gpu\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[demopool.backends]\nfake = fake_gpu_plugin:SPECIFICATION\n"
    )
    tools = folder / "tools"
    tools.mkdir()
    scripts = {
        "compute-sanitizer": SANITIZER.format(home=Path.home()),
        "ncu": NCU.format(table=TABLE, python=python),
    }
    for name, text in scripts.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return {
        **os.environ,
        "DEMOPOOL_REQUIRE_BACKENDS": "",
        "PYTHONPATH": str(folder),
        "DEMOPOOL_CACHE_DIR": str(folder / "cache"),
        "LOADED": str(folder / "loaded"),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }
