"""The machine and the memory meter."""

from __future__ import annotations

import numpy as np
import pytest

from demopool.measurement import fingerprint
from demopool.measurement.memory import peak_host_bytes


@pytest.mark.parametrize("megabytes", [8, 64])
def test_memory_meter_sees_what_is_allocated(megabytes: int) -> None:
    def call() -> int:
        return int(np.ones(megabytes * 2**20, dtype=np.uint8).sum())

    call()
    measured = peak_host_bytes(call)
    if measured is None:
        pytest.skip("the peak of resident memory cannot be read on this system")
    assert abs(measured - megabytes * 2**20) < 0.5e6


def test_memory_that_is_given_back_counts_and_what_was_there_does_not() -> None:
    held = np.ones(32 * 2**20, dtype=np.uint8)

    def call() -> int:
        first = int(np.ones(16 * 2**20, dtype=np.uint8).sum())
        return first + int(np.ones(16 * 2**20, dtype=np.uint8).sum())

    measured = peak_host_bytes(call)
    if measured is None:
        pytest.skip("the peak of resident memory cannot be read on this system")
    assert abs(measured - 16 * 2**20) < 0.5e6
    assert held.any()


def test_machine_is_plain_values() -> None:
    machine = fingerprint.machine()
    assert machine["processor"]
    assert machine["cores"] >= 1
    assert all(isinstance(value, str | int | None) for value in machine.values())


def test_busy_share_is_a_share() -> None:
    busy = fingerprint.busy_share(0.05)
    assert busy is None or 0 <= busy <= 1
