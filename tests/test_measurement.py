"""The machine and the memory meter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from demopool.machine import fingerprint, system


def _measured(code: str) -> float:
    """Megabytes that the meter sees for ``call``, in a process of its own."""
    program = f"""
import numpy as np
from demopool.measurement.memory import peak_host_bytes
{code}
call()
print(peak_host_bytes(call))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    if done.stdout.strip() == "None":
        pytest.skip("the peak of resident memory cannot be read on this system")
    return int(done.stdout) / 2**20


@pytest.mark.parametrize("megabytes", [2, 8, 64])
def test_memory_meter_sees_what_is_allocated(megabytes: int) -> None:
    code = f"call = lambda: np.ones({megabytes} * 2**20, dtype=np.uint8)"
    assert _measured(code) == pytest.approx(megabytes, abs=0.5)


def test_memory_that_is_given_back_counts_and_what_was_there_does_not() -> None:
    code = """
held = np.ones(32 * 2**20, dtype=np.uint8)
def call():
    np.ones(16 * 2**20, dtype=np.uint8)
    np.ones(12 * 2**20, dtype=np.uint8)
"""
    assert _measured(code) == pytest.approx(16, abs=0.5)


def test_memory_of_a_result_that_comes_later_is_waited_for() -> None:
    code = """
from demopool.contract.device import Host
from demopool.measurement import memory

class Later(Host):
    def wait(self, result):
        result.append(np.ones(8 * 2**20, dtype=np.uint8))

call = list
measured = memory.peak_host_bytes
peak_host_bytes = lambda call: measured(call, Later())
"""
    assert _measured(code) == pytest.approx(8, abs=0.5)


def test_a_peak_below_the_size_of_the_result_is_not_believed() -> None:
    program = """
import numpy as np
from demopool.measurement.memory import peak_host_bytes
kept = np.ones(8 * 2**20, dtype=np.uint8)
print(peak_host_bytes(lambda: kept))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None"


def test_machine_is_plain_values() -> None:
    machine = fingerprint.machine()
    assert machine["processor"]
    assert machine["cores"] >= 1
    assert all(isinstance(value, str | int | list | None) for value in machine.values())


def test_busy_share_is_a_share() -> None:
    busy = system.busy_share(0.05)
    assert busy is None or 0 <= busy <= 1
