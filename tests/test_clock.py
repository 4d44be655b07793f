"""The clock and the device memory meter, on a fake device whose time and memory are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import demopool
from demopool.contract.device import Host, MeasuredDevice
from demopool.measurement import clock as clock_module
from demopool.measurement.clock import Clock, resolution
from demopool.measurement.memory import available_host_bytes, peak_device_bytes

LAUNCH = 1e-5


class FakeGpu:
    """Work is queued at once and done later; time passes only when something takes it."""

    gpu_index: int | None = None

    def __init__(self) -> None:
        self.host = 0.0
        self.busy_until = 0.0
        self.flushes = 0
        self.held = 1000
        self.highest = 0

    def now(self) -> float:
        return self.host

    def launch(self, seconds: float) -> None:
        self.host += LAUNCH
        self.busy_until = max(self.busy_until, self.host) + seconds

    def allocate(self, size: int) -> None:
        self.held += size
        self.highest = max(self.highest, self.held)

    def synchronize(self) -> None:
        self.host = max(self.host, self.busy_until)

    def event(self) -> float:
        return max(self.host, self.busy_until)

    def elapsed(self, start: float, end: float) -> float:
        assert end <= self.host, "the device has not come that far"
        return end - start

    def flush_caches(self) -> None:
        self.flushes += 1
        self.launch(0.5)

    def peak_device_bytes(self, call: Callable[[], Any]) -> int | None:
        before, self.highest = self.held, self.held
        call()
        self.synchronize()
        return self.highest - before


def test_a_call_that_only_starts_work_is_charged_for_the_work() -> None:
    gpu = FakeGpu()
    reading = Clock(gpu, now=gpu.now).read(lambda: gpu.launch(0.005))
    assert reading.wall == pytest.approx(0.005 + LAUNCH)
    assert reading.device == pytest.approx(0.005, abs=2 * LAUNCH)


def test_a_library_that_can_only_wait_for_a_result_is_charged_for_the_work() -> None:
    class Lazy(FakeGpu):
        def synchronize(self) -> None:
            """It has no barrier."""

        def wait(self, result: object) -> None:
            assert result == "result"
            super().synchronize()

        def event(self) -> None:  # type: ignore[override]
            return None

    lazy = Lazy()

    def call() -> str:
        lazy.launch(0.424)
        return "result"

    assert Clock(lazy, now=lazy.now).read(call).wall == pytest.approx(0.424 + LAUNCH)


def test_work_left_by_others_is_not_charged() -> None:
    gpu = FakeGpu()
    gpu.launch(3.0)
    reading = Clock(gpu, now=gpu.now).read(lambda: gpu.launch(0.005))
    assert reading.wall == pytest.approx(0.005 + LAUNCH)


def test_cold_flushes_before_every_reading_and_does_not_time_it() -> None:
    gpu = FakeGpu()
    readings = Clock(gpu, cold=True, now=gpu.now).block(lambda: gpu.launch(0.005), 4, discard=2)
    assert gpu.flushes == 6
    assert [r.wall for r in readings] == pytest.approx([0.005 + LAUNCH] * 4)
    Clock(gpu, now=gpu.now).read(lambda: gpu.launch(0.005))
    assert gpu.flushes == 6


def test_first_call_is_apart_and_warm_up_is_not_reported() -> None:
    gpu = FakeGpu()
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        gpu.launch(2.0 if calls == 1 else 0.05 if calls < 5 else 0.01)

    timing = Clock(gpu, now=gpu.now).time(call, seconds=0.1, warm_up=2.14)
    assert timing.first == pytest.approx(2.0 + LAUNCH)
    assert [r.wall for r in timing.readings] == pytest.approx([0.01 + LAUNCH] * 10)
    assert timing.warning == ""


@given(duration=st.floats(1e-6, 2.0), seconds=st.floats(0, 1), least=st.integers(1, 5))
def test_number_of_readings(duration: float, seconds: float, least: int) -> None:
    gpu = FakeGpu()
    timing = Clock(gpu, now=gpu.now).time(
        lambda: gpu.launch(duration), seconds=seconds, warm_up=0.0, at_least=least, at_most=50
    )
    assert least <= len(timing.readings) <= max(least, 50)
    spent = sum(r.wall for r in timing.readings)
    one = duration + LAUNCH
    assert spent <= max(seconds + one, least * one) * (1 + 1e-9)
    assert len(timing.readings) == 50 or spent >= seconds or len(timing.readings) >= least


def test_trouble_of_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watch:
        def __init__(self, index: int) -> None:
            assert index == 1

        def __enter__(self) -> Watch:
            return self

        def __exit__(self, *_: object) -> None: ...

        def warning(self) -> str:
            return "throttled: thermal"

    monkeypatch.setattr(clock_module, "Watch", Watch)
    gpu = FakeGpu()
    gpu.gpu_index = 1
    timing = Clock(gpu, now=gpu.now).time(lambda: gpu.launch(0.01), seconds=0.02, warm_up=0.0)
    assert timing.warning == "throttled: thermal"


def test_device_memory_above_what_was_there() -> None:
    gpu = FakeGpu()

    def call() -> None:
        gpu.allocate(3 * 2**20)
        gpu.allocate(-(2**20))
        gpu.launch(0.1)

    gpu.launch(1.0)
    assert peak_device_bytes(call, gpu) == 3 * 2**20
    assert gpu.host >= 1.1


def test_the_host_has_no_device_memory_and_no_events() -> None:
    host = Host()
    assert peak_device_bytes(lambda: None, host) is None
    reading = Clock(host).read(lambda: None)
    assert reading.device is None
    assert 0 <= reading.wall < 1
    Clock(host, cold=True).read(lambda: None)


def test_every_backend_is_a_device(usable: str) -> None:
    ops = demopool.backend(usable)
    device: MeasuredDevice = ops.implementation
    X = ops.asarray(np.ones((2, 5, 4), np.float32))
    reading = Clock(device, cold=True).read(lambda: ops.pool(X))
    assert reading.wall > 0
    on_host = device.gpu_index is None
    assert (reading.device is None) == on_host
    assert (peak_device_bytes(lambda: ops.pool(X), device) is None) == on_host


def test_resolution_of_the_clock() -> None:
    assert 0 < resolution() < 1e-3
    ticks = iter(t // 3 for t in range(10_000))
    assert resolution(lambda: next(ticks)) == 1


def test_available_memory_is_told_or_unknown() -> None:
    found = available_host_bytes()
    assert found is None or found > 2**20
